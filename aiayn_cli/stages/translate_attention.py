"""The page that `translate --attention` writes."""

from collections.abc import Sequence
from pathlib import Path

from aiayn_cli import logs
from aiayn_cli.data.input_lines import InputLine
from aiayn_cli.decoding.second_pass import SecondPass
from aiayn_cli.decoding.suspects import Judged
from aiayn_cli.errors import AiaynError
from aiayn_cli.evaluation.attention_page import AttentionExample, attention_page

_MOST_EXAMPLES = 50  # all layers and heads of a sentence take some hundred kilobytes


class AttentionPicture:
    """Collects the attention of the first outputs, and writes the page at the end.

    Args:
        path: of the page; None = nothing is done.
        second_pass: of the models whose attention it is; of an ensemble, the first one's.
    Raises:
        AiaynError: the page cannot be written there.
    """

    def __init__(self, path: Path | None, second_pass: SecondPass) -> None:
        self._path, self._second_pass = path, second_pass
        self._examples: list[AttentionExample] = []
        self._left_out = 0
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            why = "it is a folder" if path.is_dir() else f"there is no folder {path.parent}"
            raise AiaynError(f"cannot write {path}: {why}", "give another --attention")

    def take(self, lines: Sequence[InputLine], judged: Sequence[Judged]) -> None:
        """Look at the best output for each line."""
        if self._path is None:
            return
        for line, each in zip(lines, judged, strict=True):
            parts = each.outputs[0].parts
            for number, part in enumerate(parts, start=1):
                if len(self._examples) >= _MOST_EXAMPLES:
                    self._left_out += 1
                    continue
                label = f"line {line.number}" + (f", part {number}" if len(parts) > 1 else "")
                maps, src, tgt = self._second_pass.attention(part)
                self._examples.append(AttentionExample(label, line.text, each.outputs[0].text, src, tgt, maps))

    def write(self, title: str) -> None:
        """Write what was collected."""
        if self._path is None:
            return
        if not self._examples:
            logs.warning(f"{self._path} is not written: there was no line to draw the attention of")
            return
        unfinished = self._path.with_name(f"{self._path.name}.unfinished")
        unfinished.write_text(attention_page(title, self._examples), encoding="utf-8")
        unfinished.replace(self._path)
        more = f"; {self._left_out:,} more are left out" if self._left_out else ""
        logs.notice(f"attention: {self._path} shows {len(self._examples)} passes{more}")
