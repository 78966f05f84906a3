"""The page that `translate --attention` writes: attention drawn as in the paper's appendix."""

import base64
import json
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from aiayn_cli import logs
from aiayn_cli.files import write_output
from aiayn_cli.model.transformer import AttentionMaps
from aiayn_cli.pages.page import render_page
from aiayn_cli.text.vocab import BLANK_MARK
from aiayn_cli.translate.forced_decoding import ForcedDecoder
from aiayn_cli.translate.input import InputLine
from aiayn_cli.translate.trust.retry import Judged

MOST_EXAMPLES = 50  # all layers and heads of a sentence take some hundred kilobytes
_MOST_WEIGHTS = 25_000_000  # of one pass, a byte each: some 400 sub-words of a base model
_LONGEST_PAGE = 150_000_000  # characters, beyond which a browser gives up
_BOS, _EOS = "<s>", "</s>"  # as SentencePiece writes them


def encode_example(
    label: str, source: str, output: str, src: Sequence[str], tgt: Sequence[str], maps: AttentionMaps
) -> str:
    """What the page needs of one pass through the model, in JSON; a weight is stored in a byte, exact to 0.2 %.

    `label` names it in the list of sentences; `src` and `tgt` are sub-words without special tokens.
    """
    content = {
        "label": label,
        "source": source,
        "output": output,
        "cross": {"from": [*tgt, _EOS], "to": [*src, _EOS], **_weights(maps.cross)},
        "encoder": {"from": [*src, _EOS], "to": [*src, _EOS], **_weights(maps.encoder)},
        "decoder": {"from": [*tgt, _EOS], "to": [_BOS, *tgt], **_weights(maps.decoder)},
    }
    return json.dumps(content, ensure_ascii=False)


def _weights(weights: Tensor) -> dict[str, object]:
    """[layers, 1, heads, rows, columns] as bytes, one after the other, 255 = 1."""
    layers, _, heads, _, _ = weights.shape
    packed = (weights * 255).round().byte().cpu().numpy().tobytes()
    return {"layers": layers, "heads": heads, "weights": base64.b64encode(packed).decode("ascii")}


def attention_page(title: str, examples: Sequence[str]) -> str:
    """The page for examples that encode_example() wrote, at least one."""
    data = f"[{', '.join(examples)}]".replace("<", "\\u003c")  # no text may end the script
    return render_page("attention.html", "attention.js", title=title, data=data)


def draw_attention(
    decoder: ForcedDecoder, lines: Sequence[InputLine], judged: Sequence[Judged], at_most: int
) -> list[str]:
    """The first passes for the lines' best outputs that are not too long to draw, as encode_example() gives them."""
    examples: list[str] = []
    for line, each in zip(lines, judged, strict=True):
        parts = [part for part in each.outputs[0].parts if not part.word]
        for number, part in enumerate(parts, start=1):
            if len(examples) >= at_most or decoder.attention_size(part) > _MOST_WEIGHTS:
                continue
            label = f"line {line.number}" + (f", part {number}" if len(parts) > 1 else "")
            maps, src, tgt = decoder.attention(part)
            # A part of a line shows its own text: the whole line, 50 times, can be 100 MB.
            source, output = line.text, each.outputs[0].text
            if len(parts) > 1:
                source, output = ("".join(pieces).replace(BLANK_MARK, " ").strip() for pieces in (src, tgt))
            examples.append(encode_example(label, source, output, src, tgt, maps))
    return examples


class AttentionPicture:
    """Collects the attention of the first outputs, and writes the page at the end; without a path nothing."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._examples: list[str] = []
        self._length = 0

    def take(self, examples: Sequence[str]) -> None:
        """Add the results of draw_attention() while there is room."""
        for example in examples:
            if len(self._examples) < MOST_EXAMPLES and self._length + len(example) <= _LONGEST_PAGE:
                self._examples.append(example)
                self._length += len(example)

    def write(self, title: str) -> None:
        if self._path is None:
            return
        if not self._examples:
            logs.warning(f"{self._path} is not written: there is no output that is short enough to draw")
            return
        write_output(self._path, attention_page(title, self._examples), "give another --attention")
        logs.notice(f"attention: {self._path} shows {logs.counted(len(self._examples), 'output')}")
