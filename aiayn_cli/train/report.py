"""RUN/report.html: what a run did so far, on one self-contained page.

It is made from the run's own files alone (manifest.json, recipe.yaml, metrics.jsonl) and the manifest of its data, so
it is the same whether a run was stopped and resumed or not, and can be read while the run goes on.
"""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
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

REPORT = "report.html"
_SPEED = "target tokens/s, without padding"


def write_report(run: Path) -> Path:
    """Write or renew a run's report; the previous one stays whole until the new one is."""
    path = run / REPORT
    write_whole(path, report_html(run))
    return path


def report_html(run: Path) -> str:
    manifest = json.loads((run / "manifest.json").read_bytes())
    recipe = load_recipe(str(run / "recipe.yaml"))
    records = standing(read_metrics(run / "metrics.jsonl")) if (run / "metrics.jsonl").is_file() else []
    records = [record for record in records if is_complete(record)]
    data = _data_manifest(manifest)
    return render_page(
        "report.html",
        title=f"{run.name}: training report",
        summary=_summary(records, recipe, manifest),
        charts=_charts(records),
        resumed=bool(_all(records, "resume")),
        validations=_all(records, "validation"),
        samples=_samples(records, data or {}),
        costs=_costs(records),
        data=data,
        manifest=manifest,
        settings=[
            (f"{section}.{name}", value)
            for section in ("data", "model", "training", "decoding")
            for name, value in vars(getattr(recipe, section)).items()
        ],
        changed=changed_settings(Recipe(), recipe),
        origin=_origin,
        number=_number,
        clock=logs.clock,
    )


def _summary(records: Sequence[Record], recipe: Recipe, manifest: Mapping[str, Any]) -> list[tuple[str, object]]:
    train, start = _all(records, "train"), _latest(records, "start")
    updates = int(start.get("updates") or recipe.training.max_updates)
    last = train[-1] if train else {}
    step = int(last.get("step", 0))
    facts: list[tuple[str, object]] = [
        ("updates", f"{step:,} of {updates:,} ({100 * step / updates:.0f} %)"),
        ("parameters", f"{manifest.get('parameters', 0):,}"),
    ]
    if train:
        facts += [
            ("epochs", f"{int(last['epoch']):,} complete"),
            ("time in updates", logs.clock(last["seconds"])),
            ("loss, perplexity", f"{_number(last['loss'], '.3f')}, {_number(last['perplexity'], '.4g')}"),
            (_SPEED, _number(last["tokens_per_second"], ",.0f")),
            ("skipped updates", f"{int(last.get('skipped', 0)):,}"),
        ]
        if 0 < step < updates:
            facts.append(("time left", f"about {logs.clock((updates - step) * last['seconds'] / step)}"))
    best = [record for record in _all(records, "validation") if record.get("best")]
    if best:
        bleu = "" if best[-1].get("bleu") is None else f"BLEU {best[-1]['bleu']:.2f}, "
        loss = _number(best[-1]["loss"], ".4f")
        facts.append(("best validation", f"{bleu}loss {loss}, at update {best[-1]['step']:,}"))
    if resumes := _all(records, "resume"):
        facts.append(("resumed after update", ", ".join(f"{record['step']:,}" for record in resumes)))
    for record in _all(records, "rollback"):
        facts.append(("went back", f"from update {record['undone']:,} to {record['step']:,}, after bad gradients"))
    if smaller := _latest(records, "memory"):
        facts.append(("memory ran out", f"micro-batches have at most {smaller['max_tokens']:,} tokens a side"))
    if start:
        facts.append(("device", str(start.get("device", "")).removeprefix("device: ")))
    facts.append(("written", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())))
    return facts


def _charts(records: Sequence[Record]) -> list[str]:
    train, validation = _all(records, "train"), _all(records, "validation")
    losses = [Line("training", _points(train, "loss")), Line("validation", _points(validation, "loss"), dotted=True)]
    charts = {
        "loss, nats per target token": losses,
        "validation BLEU": [Line("BLEU", _points(validation, "bleu"), dotted=True)],
        "learning rate": [Line("rate", _points(train, "learning_rate"))],
        "gradient norm": [Line("norm", _points(train, "gradient_norm"))],
        _SPEED: [Line("speed", _points(train, "tokens_per_second"))],
        "MFU, %": [Line("MFU", [(x, 100 * y) for x, y in _points(train, "mfu")])],
    }
    marks = [record["step"] for record in _all(records, "resume")]
    return [chart for title, lines in charts.items() if (chart := line_chart(title, lines, marks=marks))]


def _samples(records: Sequence[Record], data: Mapping[str, Any]) -> list[list[tuple[str, str, str]]]:
    """Each sentence with its translation at each validation, the newest first: name, text and language of each line."""
    src_lang, tgt_lang = data.get("src_lang", ""), data.get("tgt_lang", "")
    found: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for record in _all(records, "samples"):
        sentences = zip(record["sources"], record["references"], record["translations"], strict=True)
        for source, reference, translation in sentences:
            found.setdefault((source, reference), []).append((record["step"], translation))
    return [
        [
            ("source", source, src_lang),
            ("reference", reference, tgt_lang),
            *((when, text, tgt_lang) for when, text in reversed(_without_repeats(outputs))),
        ]
        for (source, reference), outputs in found.items()
    ]


def _without_repeats(outputs: Iterable[tuple[int, str]]) -> list[tuple[str, str]]:
    """Merge outputs that stay the same over several validations: ("updates 100 to 300", text)."""
    merged: list[tuple[int, int, str]] = []
    for step, text in outputs:
        if merged and merged[-1][2] == text:
            merged[-1] = (merged[-1][0], step, text)
        else:
            merged.append((step, step, text))
    return [
        (f"update {first:,}" if first == last else f"updates {first:,} to {last:,}", text)
        for first, last, text in merged
    ]


def _costs(records: Sequence[Record]) -> dict[str, Any] | None:
    train, start = _all(records, "train"), _latest(records, "start")
    if not train or not start:
        return None
    counted = train[-1].get("flops", 0)
    by_time, device_seconds = by_the_papers_method(records)
    step, updates = train[-1]["step"], start["updates"]
    return {
        "paper": PAPER_FLOPS,
        "flops": {
            "counted so far, forward and backward": counted,
            f"counted, estimated for all {updates:,} updates": start["run_flops"],
            "so far by the paper's method: time x devices x sustained rate": by_time,
            "the same for all updates at this speed": by_time * updates / step if step else 0,
            "the paper's base model, by its method": PAPER_FLOPS["base"],
            "the paper's big model, by its method": PAPER_FLOPS["big"],
        },
        "facts": [
            ("devices", start["devices"]),
            ("device hours so far", f"{device_seconds / 3600:.3g}"),
            ("large matrix products, FLOP/s of one device", f"{start['matmul_rate']:.3g}"),
            ("MFU of the whole run", f"{100 * counted / by_time:.1f} %" if by_time else "unknown"),
        ],
    }


def by_the_papers_method(records: Sequence[Record]) -> tuple[float, float]:
    """FLOPs as time x devices x sustained rate, and device seconds, over calls with perhaps other devices."""
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


def _all(records: Sequence[Record], event: str) -> list[Record]:
    return [record for record in records if record["event"] == event]


def _latest(records: Sequence[Record], event: str) -> Record:
    return next((record for record in reversed(records) if record["event"] == event), {})


def _points(records: Sequence[Record], name: str) -> list[tuple[float, float]]:
    return [(record["step"], record[name]) for record in records if record.get(name) is not None]


def _number(value: float | None, form: str) -> str:
    return "not finite" if value is None else format(value, form)  # JSON has no NaN
