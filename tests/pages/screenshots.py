"""Screenshots of the pages, filled with made-up data: `python tests/pages/screenshots.py OUT_FOLDER`; needs Chromium.

Each page is shown at 1280 and 390 pixels, light and dark. report.png, for the README, lies in this folder.
"""

import contextlib
import itertools
import math
import random
import sys
from pathlib import Path

import torch
from chromium import Chromium

from aiayn_cli.model.attention_maps import AttentionMaps
from aiayn_cli.score.session import ScoreOptions, run_score
from aiayn_cli.translate.aids.attention_page import attention_page, encode_example

WIDTHS = (1280, 390)


def made_up_attention(path: Path) -> Path:
    """Heads that look along the diagonal, more or less sharply and more or less far away."""

    def weights(rows: int, columns: int, heads: int = 8, layers: int = 6, causal: bool = False) -> torch.Tensor:
        row = torch.arange(rows).view(1, 1, 1, rows, 1) * columns / rows
        column = torch.arange(columns).view(1, 1, 1, 1, columns)
        head = torch.arange(heads).view(1, 1, heads, 1, 1)
        sharpness = 0.3 + 0.5 * torch.arange(layers).view(layers, 1, 1, 1, 1)
        noise = torch.rand(layers, 1, heads, rows, columns, generator=torch.Generator().manual_seed(rows))
        scores = noise * 2 - sharpness * (column - row - (head - 4) / 1.5).abs()
        if causal:
            scores = scores.masked_fill(column > row + 0.5, -math.inf)
        return scores.softmax(-1)

    examples = []
    for number, (source, output) in enumerate(SENTENCES, start=1):
        src, tgt = (["▁" + word for word in text.replace(",", " ,").split()] for text in (source, output))
        m, n = len(src) + 1, len(tgt) + 1
        maps = AttentionMaps(weights(m, m), weights(n, n, causal=True), weights(n, m))
        examples.append(encode_example(f"line {number}", source, output, src, tgt, maps))
    path.write_text(attention_page("Attention of runs/base", examples), encoding="utf-8")
    return path


def made_up_comparison(lines: int = 120) -> Path:
    """Two systems that lose, repeat and exchange words: the second less often."""
    chance = random.Random(1)
    pairs = [tuple(" ".join(part) for part in zip(*parts, strict=True)) for parts in itertools.product(*PARTS)]
    pairs = chance.sample(pairs, lines)
    words = sorted({word for _, text in pairs for word in text.split()})

    def spoilt(text: str, share: float) -> str:
        kept = [
            w if chance.random() > share else chance.choice(["", "", w + " " + w, chance.choice(words)])
            for w in text.split()
        ]
        return " ".join(" ".join(kept).split())

    texts = {
        "test.en": [source for source, _ in pairs],
        "test.de": [target for _, target in pairs],
        "tiny.hyp": [spoilt(target, 0.2) for _, target in pairs],
        "base.hyp": [spoilt(target, 0.1) for _, target in pairs],
    }
    for name, content in texts.items():
        Path(name).write_text("".join(line + "\n" for line in content), encoding="utf-8")
    run_score(
        ScoreOptions(
            references=[Path("test.de")],
            hypotheses=["tiny.hyp", "base.hyp"],
            source="test.en",
            metrics="bleu,chrf,ter",
            compare=True,
            resamples=200,
            trials=200,
            html=Path("compare.html"),
        )
    )
    return Path("compare.html")


PARTS = (
    (
        ("The old captain", "Der alte Kapitän"),
        ("My neighbour", "Mein Nachbar"),
        ("The young teacher", "Die junge Lehrerin"),
    ),
    (("has repaired", "hat"), ("wants to sell", "will"), ("should paint", "sollte")),
    (("the small boat", "das kleine Boot"), ("a wooden bridge", "eine hölzerne Brücke"), ("our house", "unser Haus")),
    (("for her", "für sie"), ("with his friends", "mit seinen Freunden"), ("without any help", "ohne jede Hilfe")),
    (
        ("before the storm comes.", "reparieren, bevor der Sturm kommt."),
        ("next summer.", "im nächsten Sommer streichen."),
    ),
)
SENTENCES = (
    (
        "The law will never be perfect, but its application should be just",
        "Das Gesetz wird nie vollkommen sein, aber seine Anwendung sollte gerecht sein",
    ),
    ("A dog runs through the snow", "Ein Hund läuft durch den Schnee"),
)


def made_up_pages(folder: Path) -> list[Path]:
    with contextlib.chdir(folder):  # the pages name their files
        pages = [made_up_attention(Path("attention.html")), made_up_comparison()]
    return [folder / page for page in pages]


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with Chromium() as browser:
        for page in made_up_pages(out):
            for width, dark in itertools.product(WIDTHS, (False, True)):
                browser.open(page, width=width, dark=dark)
                browser.screenshot(out / f"{page.stem}-{width}-{'dark' if dark else 'light'}.png")
        print(*browser.complaints, sep="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
