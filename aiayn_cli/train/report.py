"""RUN/report.html: what a run did so far, on one self-contained page.

It is made only from the run's own files (manifest.json, recipe.yaml, metrics.jsonl) and the manifest of its data, so it
is the same whether or not a run was stopped and resumed, and can be read during the run.
"""

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from aiayn_cli import logs
from aiayn_cli.checkpoint.metrics_log import Record, is_complete, read_metrics, standing
from aiayn_cli.config import Recipe
from aiayn_cli.data.prepared import read_manifest
from aiayn_cli.errors import AiaynError
from aiayn_cli.files import write_whole
from aiayn_cli.model.cost import PAPER_FLOPS
from aiayn_cli.pages.curves import Line, line_chart
from aiayn_cli.pages.page import render_page
from aiayn_cli.recipe import load_recipe
from aiayn_cli.train.resume import changed_settings


def write_report(run: Path) -> None:
    """Write or renew a run's report; the previous one stays whole until the new one is."""
    write_whole(run / "report.html", report_html(run))


def report_html(run: Path) -> str:
    manifest = json.loads((run / "manifest.json").read_bytes())
    recipe = load_recipe(str(run / "recipe.yaml"))
    metrics = run / "metrics.jsonl"
    records = standing(read_metrics(metrics)) if metrics.is_file() else []
    events: dict[str, list[Record]] = defaultdict(list)
    for record in filter(is_complete, records):
        events[record["event"]].append(record)
    last = events["train"][-1] if events["train"] else {}
    start = events["start"][-1] if events["start"] else {}
    data = _data_manifest(manifest)
    by_time, device_seconds = by_the_papers_method(filter(is_complete, records))
    return render_page(
        "report.html",
        title=f"{run.name}: training report",
        events=events,
        last=last,
        start=start,
        step=int(last.get("step", 0)),
        updates=int(start.get("updates") or recipe.training.max_updates),
        best=next((record for record in reversed(events["validation"]) if record["best"]), None),
        written=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        charts=_charts(events),
        samples=_samples(events["samples"], data or {}),
        paper=PAPER_FLOPS,
        by_time=by_time,
        device_seconds=device_seconds,
        data=data,
        manifest=manifest,
        settings={f"{section}.{name}": v for section, part in vars(recipe).items() for name, v in vars(part).items()},
        changed=changed_settings(Recipe(), recipe),
        origin=_origin,
        number=lambda value, form: "not finite" if value is None else format(value, form),  # JSON has no NaN
        clock=logs.clock,
    )


def _charts(events: Mapping[str, Sequence[Record]]) -> list[str]:
    def line(name: str, event: str, value: str, factor: float = 1) -> Line:
        points = [(record["step"], record[value]) for record in events[event] if record.get(value) is not None]
        return Line(name, [(x, factor * y) for x, y in points], dotted=event == "validation")

    charts = {
        "loss, nats per target token": [line("training", "train", "loss"), line("validation", "validation", "loss")],
        "validation BLEU": [line("BLEU", "validation", "bleu")],
        "learning rate": [line("rate", "train", "learning_rate")],
        "gradient norm": [line("norm", "train", "gradient_norm")],
        "target tokens/s, without padding": [line("speed", "train", "tokens_per_second")],
        "MFU, %": [line("MFU", "train", "mfu", 100)],
    }
    marks = [record["step"] for record in events["resume"]]
    return [chart for title, lines in charts.items() if (chart := line_chart(title, lines, marks=marks))]


def _samples(records: Iterable[Record], data: Mapping[str, Any]) -> list[list[tuple[str, str, str]]]:
    """Each sentence with its translation at each validation, the newest first: name, text and language of each line."""
    src_lang, tgt_lang = data.get("src_lang", ""), data.get("tgt_lang", "")
    found: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for record in records:
        sentences = zip(record["sources"], record["references"], record["translations"], strict=True)
        for source, reference, translation in sentences:
            found.setdefault((source, reference), []).append((record["step"], translation))
    return [
        [
            ("source", source, src_lang),
            ("reference", reference, tgt_lang),
            *((when, text, tgt_lang) for when, text in reversed(list(_without_repeats(outputs)))),
        ]
        for (source, reference), outputs in found.items()
    ]


def _without_repeats(outputs: Iterable[tuple[int, str]]) -> Iterator[tuple[str, str]]:
    """Merge outputs that stay the same over several validations: ("updates 100 to 300", text)."""
    for text, same in groupby(outputs, key=lambda output: output[1]):
        first, *others = (step for step, _ in same)
        yield f"updates {first:,} to {others[-1]:,}" if others else f"update {first:,}", text


def by_the_papers_method(records: Iterable[Record]) -> tuple[float, float]:
    """FLOPs as time x devices x sustained rate, and device seconds; each call can have other devices."""
    flops = device_seconds = seconds_before = 0.0
    start: Record = {}
    for record in records:
        if record["event"] == "start":
            start = record
        elif record["event"] == "train":
            spent = max(0.0, record["seconds"] - seconds_before) * start.get("devices", 1)
            seconds_before = record["seconds"]
            device_seconds += spent
            flops += spent * (start.get("matmul_rate") or 0)
    return flops, device_seconds


def _data_manifest(manifest: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The prepared data's manifest, if it is still the one that the run was started on."""
    try:
        found, sha256 = read_manifest(Path(str(manifest.get("data", ""))))
    except AiaynError:
        return None
    return found if sha256 == manifest.get("data_sha256") else None


def _origin(entry: Mapping[str, Any]) -> str:
    names = [str(entry[key]) for key in ("part", "path", "url", "archive", "member", "made") if entry.get(key)]
    return ", ".join(dict.fromkeys(names))
