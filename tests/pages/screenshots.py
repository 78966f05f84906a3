"""Screenshots of the pages at 1280 and 390 pixels, light and dark; needs Chromium.

python tests/pages/screenshots.py OUT_FOLDER        of pages that are filled with made-up data
python tests/pages/screenshots.py OUT_FOLDER RUN    also report.png next to this file, for the README: RUN's report
"""

import contextlib
import itertools
import json
import math
import random
import sys
from pathlib import Path

import torch
from chromium import Chromium

from aiayn_cli.checkpoint.metrics_log import MetricsLog
from aiayn_cli.data.prepared import read_manifest, write_manifest
from aiayn_cli.model.transformer import AttentionMaps
from aiayn_cli.score.session import ScoreOptions, run_score
from aiayn_cli.train.report import run_report
from aiayn_cli.translate.aids.attention_page import attention_page, encode_example

WIDTHS = (1280, 390)
PICTURE = {"width": 1200, "height": 680}  # for the README: headline and first curves


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
    files = {"references": [Path("test.de")], "hypotheses": ["tiny.hyp", "base.hyp"], "source": "test.en"}
    tests = {"compare": True, "resamples": 200, "trials": 200}
    run_score(ScoreOptions(**files, **tests, metrics="bleu,chrf,ter", html=Path("compare.html")))
    return Path("compare.html")


def made_up_run(run: Path, prepared: Path, size: int, done: float) -> Path:
    """A run of 100,000 updates whose curves look like real ones; `size` of its layers, and what share is done."""
    chance, updates = random.Random(size), 100_000
    (run / "checkpoints").mkdir(parents=True)
    recipe = f"data:\n  corpus: wmt14-en-de\nmodel:\n  d_model: {size}\n  d_ff: {4 * size}\n  n_heads: {size // 64}\n"
    (run / "recipe.yaml").write_text(
        recipe + "training:\n  validation_bleu_pairs: 500\n  warmup_steps: 8000\n", encoding="utf-8"
    )
    manifest = {"format": 1, "aiayn": "0.1.0", "run_id": "5f0c" * 8, "data": str(prepared)}
    more = {"parameters": 126_000 * size, "vocab_sha256": "99f6267abef3a8ba" * 4}
    more["data_sha256"] = read_manifest(prepared)[1]
    (run / "manifest.json").write_text(json.dumps(manifest | more), encoding="utf-8")
    log = MetricsLog(run / "metrics.jsonl")
    device = "device: NVIDIA H200; bf16"
    log.write("start", step=0, updates=updates, run_flops=2.1e18, matmul_rate=6.1e14, devices=1, device=device)
    for step in range(500, int(updates * done) + 1, 500):
        loss = 1.1 + 60 / size + 7 * math.exp(-step / 2_500) + 3.5 * (step / 100) ** -0.5
        rate = size**-0.5 * min(step**-0.5, step * 8_000**-1.5)
        speed = 61_000_000 / size * chance.uniform(0.97, 1.02)
        gradient_norm = 0.4 + 3 * math.exp(-step / 900) + 0.05 * chance.random()
        log.write(
            "train", step=step, epoch=step // 22_000, seconds=step * size / 2_900,
            loss=loss * chance.uniform(0.99, 1.01), perplexity=math.exp(loss),
            learning_rate=rate, gradient_norm=gradient_norm, tokens_per_second=speed,
            mfu=speed / 300_000, flops=step * 2.1e13, skipped=0,
        )  # fmt: skip
        if step % 5_000 == 0:
            bleu = 27.6 - 300 / size - 24 * math.exp(-step / 9_000) + chance.uniform(-0.2, 0.2)
            values = {"loss": loss + 0.06, "perplexity": math.exp(loss + 0.06), "bleu": bleu, "best": True}
            log.write("validation", step=step, **values, validation_seconds=9.0, seconds=step * size / 2_900)
            outputs = [text if step > 60_000 else " ".join(text.split()[: step // 4_000]) for _, text in SENTENCES]
            sides = {"sources": [source for source, _ in SENTENCES], "references": [text for _, text in SENTENCES]}
            signature = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
            log.write("samples", step=step, signature=signature, **sides, translations=outputs)
        if step == 40_000:
            log.write("resume", step=step)
    return run


def made_up_data(folder: Path) -> Path:
    """The manifest of prepared data."""
    folder.mkdir(parents=True)
    dropped = {"too_many_tokens": 41_202, "length_ratio": 33_017, "wrong_script": 11_954}
    splits = {
        "train": {"pairs_kept": 4_434_402, "src_tokens": 131_408_112, "tgt_tokens": 137_590_417, "dropped": dropped},
        "valid": {"pairs_kept": 3_000, "src_tokens": 79_120, "tgt_tokens": 84_204, "dropped": {}},
        "test": {"pairs_kept": 3_003, "src_tokens": 83_771, "tgt_tokens": 87_990, "dropped": {}},
    }
    inputs = [
        {"split": split, "side": side, "part": part, "archive": archive, "sha256": f"{n:x}c0ffee1" * 8}
        for n, (split, part, archive) in enumerate(
            (("train", "europarl-v7", "training-parallel-europarl-v7.tgz"), ("valid", "newstest2013", "dev.tgz"))
        )
        for side in ("src", "tgt")
    ]
    content = {
        "corpus": "wmt14-en-de", "src_lang": "en", "tgt_lang": "de", "vocab": {"size": 37_000}, "splits": splits,
        "settings": {"vocab_size": 37_000, "max_length": 250, "dedupe": True}, "inputs": inputs,
    }  # fmt: skip
    write_manifest(folder, content)
    return folder


def made_up_reports() -> list[Path]:
    """The report of a run that is under way, and three runs side by side."""
    prepared = made_up_data(Path("prepared/wmt14-en-de"))
    runs = [
        made_up_run(Path("runs") / name, prepared, size, done)
        for name, size, done in (("base", 512, 0.9), ("small", 256, 1.0), ("big", 1024, 0.4))
    ]
    return [run_report(runs[:1], Path("report.html")), run_report(runs, Path("runs.html"))]


PARTS = [
    [tuple(pair.split(" = ")) for pair in part.split("; ")]
    for part in (
        "The old captain = Der alte Kapitän; My neighbour = Mein Nachbar; The young teacher = Die junge Lehrerin",
        "has repaired = hat; wants to sell = will; should paint = sollte",
        "the small boat = das kleine Boot; a wooden bridge = eine hölzerne Brücke; our house = unser Haus",
        "for her = für sie; with his friends = mit seinen Freunden; without any help = ohne jede Hilfe",
        "before the storm comes. = reparieren, bevor der Sturm kommt.; next summer. = im nächsten Sommer streichen.",
    )
]
SENTENCES = (
    (
        "The law will never be perfect, but its application should be just",
        "Das Gesetz wird nie vollkommen sein, aber seine Anwendung sollte gerecht sein",
    ),
    ("A dog runs through the snow", "Ein Hund läuft durch den Schnee"),
)


def made_up_pages(folder: Path) -> list[Path]:
    with contextlib.chdir(folder):  # the pages name their files
        pages = [made_up_attention(Path("attention.html")), made_up_comparison(), *made_up_reports()]
    return [folder / page for page in pages]


def main(out: Path, run: Path | None = None) -> None:
    out.mkdir(parents=True)
    with Chromium() as browser:
        for page in made_up_pages(out):
            for width, dark in itertools.product(WIDTHS, (False, True)):
                browser.open(page, width=width, dark=dark)
                browser.screenshot(out / f"{page.stem}-{width}-{'dark' if dark else 'light'}.png")
        if run is not None:
            browser.open(run_report([run], out / "run.html"), **PICTURE)
            browser.screenshot(Path(__file__).with_name("report.png"), whole=False)
        print(*browser.complaints, sep="\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
