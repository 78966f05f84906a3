"""RUN/report.html: what a run did so far, on one self-contained page.

It is made only from the run's own files (manifest.json, recipe.yaml, metrics.jsonl) and the manifest of its data, so it
is the same whether or not a run was stopped and resumed, and can be read during the run.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any

from aiayn_cli import logs
from aiayn_cli.checkpoint.metrics_log import Record, is_complete, read_metrics, standing
from aiayn_cli.checkpoint.tensor_files import read_json
from aiayn_cli.corpora.named_corpora import find_corpus
from aiayn_cli.data.prepared import read_manifest
from aiayn_cli.errors import AiaynError, UsageError
from aiayn_cli.files import write_output, write_whole
from aiayn_cli.model.cost import PAPER_FLOPS
from aiayn_cli.pages.page import Line, line_chart, render_page, without_steep_start
from aiayn_cli.recipe import load_recipe
from aiayn_cli.recipe_keys import Recipe
from aiayn_cli.train.resume import all_settings

_LINES = (  # of the charts: title, name of the line, event and value
    ("loss, nats per target token", "training", "train", "loss"),
    ("loss, nats per target token", "validation", "validation", "loss"),
    ("validation BLEU", "", "validation", "bleu"),
    ("learning rate", "", "train", "learning_rate"),
    ("gradient norm", "", "train", "gradient_norm"),
    ("target tokens/s", "", "train", "tokens_per_second"),
    ("MFU, %", "", "train", "mfu"),
)


def write_report(run: Path) -> None:
    """Write or renew a run's report, replacing the previous one only when complete."""
    write_whole(run / "report.html", report_html(run))


def run_report(runs: Sequence[Path], out: Path | None) -> Path:
    """Write a page on one run (default: its report.html) or several (default: compare.html next to the first)."""
    for number, run in enumerate(runs):
        if not ((run / "manifest.json").is_file() and (run / "recipe.yaml").is_file()):
            raise AiaynError(f"{run} is not the folder of a run", "name one that `aiayn train` has written")
        if any(run.samefile(other) for other in runs[:number]):
            raise UsageError(f"--report names the run {run} twice", "name each run once")
    page = out or (runs[0].parent / "compare.html" if len(runs) > 1 else runs[0] / "report.html")
    shown = {str(run): _read_run(run) for run in runs}
    write_output(page, _page(shown), "give another --out")
    for skipped in filter(None, (each["skipped"] for each in shown.values())):
        logs.warning(skipped)
    return page


def report_html(run: Path) -> str:
    return _page({str(run): _read_run(run)})


def _page(runs: Mapping[str, Mapping[str, Any]]) -> str:
    """The report of one run, or a page with several side by side."""
    first, *others = runs
    return render_page(
        "compare_runs.html" if others else "report.html", "curves.js",
        title=f"{len(runs)} runs" if others else Path(first).resolve().name, runs=runs, charts=_charts(runs),
        paper=PAPER_FLOPS, defaults=all_settings(Recipe()), clock=logs.clock,
        written=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        number=lambda value, form: "not finite" if value is None else format(value, form),  # JSON has no NaN
    )  # fmt: skip


def _read_run(run: Path) -> dict[str, Any]:
    """What a page shows of a run."""
    manifest, path = read_json(run / "manifest.json", "a run"), run / "metrics.jsonl"
    recipe, data = load_recipe(str(run / "recipe.yaml")), _data_manifest(manifest)
    whole = list(filter(is_complete, read_metrics(path)))
    records = standing(whole)
    events: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        events[record["event"]].append(record)
    last, start = ((events[event] or [{}])[-1] for event in ("train", "start"))
    return {
        "manifest": manifest,
        "skipped": _skipped(path, len(whole)), "settings": _settings(recipe, data), "data": data, "events": events,
        "last": last, "start": start, "step": int(last.get("step", 0)),
        "updates": int(start.get("updates") or recipe.training.max_updates),
        "best": next((record for record in reversed(events["validation"]) if record["best"]), None),
        "samples": _samples(events["samples"]), "cost": by_the_papers_method(records),
    }  # fmt: skip


def _skipped(path: Path, whole: int) -> str:
    """What a page lacks of a metrics.jsonl with this many whole records, in words; "" if nothing."""
    if not path.is_file():
        return f"{path} is missing, so there are no measurements to show"
    lost = sum(map(bool, path.read_bytes().split(b"\n"))) - whole
    return f"{path}: {logs.counted(lost, 'line')} skipped, cut short or damaged" if lost else ""


def _settings(recipe: Recipe, data: Mapping[str, Any] | None) -> dict[str, Any]:
    """Every setting by dotted name; those of the data as it was prepared, whatever the recipe says, if it is known."""
    prepared: dict[str, Any] = {}
    if data is not None:
        corpus, size = data.get("corpus") or "text files of your own", data.get("vocab", {}).get("size", 0)
        own = {**data.get("settings", {}), "corpus": corpus, "vocab_size": size}
        prepared = {f"data.{name}": value for name, value in own.items()}
    settings = all_settings(recipe).items()
    return {name: prepared.get(name, v) for name, v in settings if name in prepared or not name.startswith("data.")}


def _charts(runs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """For one run, training and validation share a chart; for several, each chart has a line per run."""
    charts: dict[str, list[Line]] = defaultdict(list)
    for title, name, event, value in _LINES:
        for run, shown in runs.items():
            records, factor = shown["events"][event], 100 if value == "mfu" else 1
            points = [(record["step"], factor * record[value]) for record in records if record.get(value) is not None]
            points = without_steep_start(points) if value == "loss" else points
            chart, line = (title, name or title) if len(runs) == 1 else (f"{name} {title}".strip(), run)
            charts[chart].append(Line(line, points, dotted=event == "validation"))
    marks = [record["step"] for shown in runs.values() for record in shown["events"]["resume"] if len(runs) == 1]
    return [chart for title, lines in charts.items() if (chart := line_chart(title, lines, marks=marks))]


def _samples(records: Iterable[Record]) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """By source and reference, the translations at each validation, the newest first: (update, text)."""
    found: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    for record in records:
        for *pair, text in zip(record["sources"], record["references"], record["translations"], strict=True):
            found[pair[0], pair[1]].append((record["step"], text))
    return {pair: list(_without_repeats(outputs))[::-1] for pair, outputs in found.items()}


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
            spent = max(0.0, record["seconds"] - seconds_before) * start.get("devices")
            seconds_before = record["seconds"]
            device_seconds += spent
            flops += spent * (start.get("matmul_rate") or 0)
    return flops, device_seconds


def _data_manifest(manifest: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The prepared data's manifest, with the licence of its corpus ("" = unknown), if the run was started on it."""
    try:
        found, sha256 = read_manifest(Path(str(manifest.get("data", ""))))
    except AiaynError:
        return None
    licence = ""
    with suppress(AiaynError):
        licence = find_corpus(str(found.get("corpus")), f"{found.get('src_lang')}-{found.get('tgt_lang')}").licence
    return {**found, "licence": licence} if sha256 == manifest.get("data_sha256") else None
