"""One page of HTML that draws attention, as the paper's appendix does: no network, no other file."""

import base64
import html
import json
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from aiayn_cli.model.attention_maps import AttentionMaps
from aiayn_cli.translate.aids.attention_script import SCRIPT, STYLE

_BOS, _EOS = "<s>", "</s>"  # as SentencePiece writes them
# The page loads nothing, whatever its texts hold.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


@dataclass(frozen=True)
class AttentionExample:
    """One pass through the model.

    Attributes:
        label: what the list of sentences calls it, such as "line 3".
        source, output: their text.
        src: the source's sub-words, without EOS.
        tgt: the output's sub-words, without BOS and EOS.
        maps: of a batch of this pair alone, EOS at the end of the source and BOS at the start of what was read.
    """

    label: str
    source: str
    output: str
    src: Sequence[str]
    tgt: Sequence[str]
    maps: AttentionMaps


def encode_example(example: AttentionExample) -> str:
    """Write what the page needs of an example, in JSON. A weight is stored in a byte, and so is exact to 0.2 %."""
    return json.dumps(_data(example), ensure_ascii=False)


def attention_page(title: str, examples: Sequence[str]) -> str:
    """Write the page.

    Args:
        title: its heading.
        examples: what it can show, at least one, as encode_example() writes it.
    """
    data = f"[{', '.join(examples)}]".replace("<", "\\u003c")  # no text may end the script
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<h1>{html.escape(title)}</h1>
<form id="controls">
<label>sentence <select id="sentence"></select></label>
<label>attention <select id="kind">
<option value="cross">decoder to encoder</option>
<option value="encoder">encoder</option>
<option value="decoder">decoder</option>
</select></label>
<label>layer <select id="layer"></select></label>
<fieldset id="heads"><legend>heads</legend></fieldset>
<button type="button" id="all">all heads</button>
<button type="button" id="none">no head</button>
<button type="button" id="png">save PNG</button>
</form>
<p id="source"></p>
<p id="output"></p>
<div id="picture"></div>
<p class="note">Each line is one weight: how much the sub-word on the left looks at the one on the right. Point at a
sub-word to see its weights in per cent, averaged over the heads chosen. A row of the decoder stands for the sub-word
that it chooses, and looks at those that were read before. <noscript>The picture needs JavaScript.</noscript></p>
<script type="application/json" id="data">{data}</script>
<script>{SCRIPT}</script>
</body>
</html>
"""


def _data(example: AttentionExample) -> dict[str, object]:
    src, tgt = [*example.src, _EOS], [*example.tgt, _EOS]
    maps = example.maps
    return {
        "label": example.label,
        "source": example.source,
        "output": example.output,
        "cross": {"from": tgt, "to": src, **_weights(maps.cross)},
        "encoder": {"from": src, "to": src, **_weights(maps.encoder)},
        "decoder": {"from": tgt, "to": [_BOS, *example.tgt], **_weights(maps.decoder)},
    }


def _weights(weights: Tensor) -> dict[str, object]:
    """[layers, 1, heads, rows, columns] as bytes, one after the other, 255 = 1."""
    layers, _, heads, _, _ = weights.shape
    packed = (weights * 255).round().byte().cpu().numpy().tobytes()
    return {"layers": layers, "heads": heads, "weights": base64.b64encode(packed).decode("ascii")}
