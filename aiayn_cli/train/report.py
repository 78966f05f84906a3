"""RUN/report.html: what a run did so far, on one page that needs no network, no script and nothing beside it.

It is made from the run's own files alone (manifest.json, recipe.yaml, metrics.jsonl) and the manifest of its data, so
it is the same whether a run was stopped and continued or not, and can be read while the run goes on.
"""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from aiayn_cli import logs
from aiayn_cli.checkpoint.metrics import Record, is_complete, read_metrics, standing
from aiayn_cli.config import Recipe
from aiayn_cli.data.prepared import read_manifest
from aiayn_cli.errors import AiaynError
from aiayn_cli.files import write_whole
from aiayn_cli.model.cost import PAPER_FLOPS
from aiayn_cli.pages.curves import Line, line_chart
from aiayn_cli.pages.report_page import link_free_page, rows, table
from aiayn_cli.recipe import load_recipe
from aiayn_cli.train.resume import changed_settings

REPORT = "report.html"
_SPEED = "target tokens/s, without padding"


def write_report(run: Path) -> Path:
    """Write or renew a run's report; the one before stays whole until the new one is.

    Raises:
        OSError: it cannot be written.
        AiaynError: the run's recipe or manifest is missing or damaged.
    """
    path = run / REPORT
    write_whole(path, report_html(run))
    return path


def report_html(run: Path) -> str:
    """The page, made of what the run's folder holds now."""
    manifest = json.loads((run / "manifest.json").read_bytes())
    recipe = load_recipe(str(run / "recipe.yaml"))
    records = standing(read_metrics(run / "metrics.jsonl")) if (run / "metrics.jsonl").is_file() else []
    records = [record for record in records if is_complete(record)]
    data = _data_manifest(manifest)
    langs = (data or {}).get("src_lang", ""), (data or {}).get("tgt_lang", "")
    sections = {
        "": _summary(records, recipe, manifest),
        "Curves": _curves(records),
        "Validations": _validations(records),
        "Sample translations": _samples(records, *langs),
        "Costs": _costs(records),
        "Where this model comes from": _chain(manifest, data),
        "Configuration": _configuration(recipe),
    }
    return link_free_page(f"{run.name}: training report", sections)


def _summary(records: Sequence[Record], recipe: Recipe, manifest: Mapping[str, Any]) -> str:
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
            ("loss, perplexity", f"{_float(last['loss'], '.3f')}, {_float(last['perplexity'], '.4g')}"),
            (_SPEED, _float(last["tokens_per_second"], ",.0f")),
            ("skipped updates", f"{int(last.get('skipped', 0)):,}"),
        ]
        if 0 < step < updates:
            facts.append(("time left", f"about {logs.clock((updates - step) * last['seconds'] / step)}"))
    best = [record for record in _all(records, "validation") if record.get("best")]
    if best:
        facts.append(("best validation", f"{_validation_text(best[-1])}, at update {best[-1]['step']:,}"))
    resumes = [record["step"] for record in _all(records, "resume")]
    if resumes:
        facts.append(("continued after update", ", ".join(f"{step:,}" for step in resumes)))
    for record in _all(records, "rollback"):
        facts.append(("went back", f"from update {record['undone']:,} to {record['step']:,}, after bad gradients"))
    if smaller := _latest(records, "memory"):
        facts.append(("memory ran out", f"micro-batches have at most {smaller['max_tokens']:,} tokens a side"))
    if start:
        facts.append(("device", str(start.get("device", "")).removeprefix("device: ")))
    facts.append(("written", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())))
    return rows(facts)


def _curves(records: Sequence[Record]) -> str:
    train, validation = _all(records, "train"), _all(records, "validation")
    marks = [record["step"] for record in _all(records, "resume")]
    charts = (
        line_chart(
            "loss, nats per target token",
            [Line("training", _points(train, "loss")), Line("validation", _points(validation, "loss"), dotted=True)],
            marks=marks,
        ),
        line_chart("validation BLEU", [Line("BLEU", _points(validation, "bleu"), dotted=True)], marks=marks),
        line_chart("learning rate", [Line("rate", _points(train, "learning_rate"))], marks=marks),
        line_chart("gradient norm", [Line("norm", _points(train, "gradient_norm"))], marks=marks),
        line_chart(_SPEED, [Line("speed", _points(train, "tokens_per_second"))], marks=marks),
        line_chart("MFU, %", [Line("MFU", [(x, 100 * y) for x, y in _points(train, "mfu")])], marks=marks),
    )  # fmt: skip
    drawn = "".join(f"<figure>{chart}</figure>" for chart in charts if chart)
    note = "<p>Broken upright lines: where the run was continued.</p>" if drawn and marks else ""
    return f'<div class="charts">{drawn}</div>{note}' if drawn else "<p>Nothing is measured yet.</p>"


def _validations(records: Sequence[Record]) -> str:
    found = [
        (
            f"{record['step']:,}",
            _float(record["loss"], ".4f"),
            _float(record["perplexity"], ".4g"),
            _float(record["bleu"], ".2f"),
            "best so far" if record["best"] else "",
            logs.clock(record["seconds"]),
        )
        for record in _all(records, "validation")
    ]
    head = ("update", "loss", "perplexity", "BLEU", "", "time in updates")
    return table(head, found) if found else "<p>There was no validation yet.</p>"


def _samples(records: Sequence[Record], src_lang: str, tgt_lang: str) -> str:
    """Each sentence with what the model made of it at each validation, the newest first."""
    found: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for record in _all(records, "samples"):
        sentences = zip(record["sources"], record["references"], record["translations"], strict=True)
        for source, reference, translation in sentences:
            found.setdefault((source, reference), []).append((record["step"], translation))
    parts = []
    for (source, reference), outputs in found.items():
        lines = [
            ("source", source, src_lang),
            ("reference", reference, tgt_lang),
            *((when, text, tgt_lang) for when, text in reversed(_without_repeats(outputs))),
        ]
        body = "".join(
            f'<tr><th scope="row">{escape(name)}</th><td dir="auto" lang="{escape(lang)}">'
            f"{escape(text) or '<i>empty</i>'}</td></tr>"
            for name, text, lang in lines
        )
        parts.append(f'<table class="sample">{body}</table>')
    return "".join(parts) or "<p>No sentences were translated yet.</p>"


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


def _costs(records: Sequence[Record]) -> str:
    """Operations counted and by the paper's method, beside the paper's own."""
    train, start = _all(records, "train"), _latest(records, "start")
    if not train or not start:
        return "<p>Nothing is counted yet.</p>"
    counted = train[-1].get("flops", 0)
    by_time, device_seconds = by_the_papers_method(records)
    step, updates = train[-1]["step"], start["updates"]
    head = ("", "FLOPs", "share of the paper's base", "share of the paper's big")
    figures = [
        ("counted so far, forward and backward", counted),
        (f"counted, estimated for all {updates:,} updates", start["run_flops"]),
        ("so far by the paper's method: time x devices x sustained rate", by_time),
        ("the same for all updates at this speed", by_time * updates / step if step else 0),
        ("the paper's base model, by its method", PAPER_FLOPS["base"]),
        ("the paper's big model, by its method", PAPER_FLOPS["big"]),
    ]
    body = [(name, f"{n:.3g}", *(f"{n / paper:.2g}" for paper in PAPER_FLOPS.values())) for name, n in figures]
    facts = rows(
        [
            ("devices", start["devices"]),
            ("device hours so far", f"{device_seconds / 3600:.3g}"),
            ("large matrix products, FLOP/s of one device", f"{start['matmul_rate']:.3g}"),
            ("MFU of the whole run", f"{100 * counted / by_time:.1f} %" if by_time else "unknown"),
        ]
    )
    return (
        table(head, body) + facts + "<p>Counted operations are those of matrix products on real tokens. The sustained "
        "rate is what large matrix products reach on this device, measured when the run was started or continued; the "
        "paper takes 9.5 TFLOP/s for its P100.</p>"
    )


def by_the_papers_method(records: Sequence[Record]) -> tuple[float, float]:
    """FLOPs as time x devices x sustained rate, and device seconds, over calls with perhaps other devices.

    Args:
        records: that stand, with a "start" record for each call.
    """
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


def _chain(manifest: Mapping[str, Any], data: Mapping[str, Any] | None) -> str:
    """From the text that came in to the run, each with its hash."""
    parts = []
    if data is None:
        parts.append("<p>The data's folder is no longer there, or holds other data now; its hash is known.</p>")
    else:
        inputs = [
            (entry.get("split", ""), entry.get("side", ""), _origin(entry), entry.get("sha256", ""))
            for entry in data.get("inputs", [])
        ]
        parts.append("<h3>Text</h3>" + table(("split", "side", "from", "SHA-256"), inputs))
        splits = []
        for name, split in data.get("splits", {}).items():
            dropped = ", ".join(f"{n:,} {why.replace('_', ' ')}" for why, n in split.get("dropped", {}).items() if n)
            tokens = f"{split.get('src_tokens', 0):,}", f"{split.get('tgt_tokens', 0):,}"
            splits.append((name, f"{split.get('pairs_kept', 0):,}", *tokens, dropped))
        parts.append("<h3>Prepared data</h3>")
        parts.append(table(("split", "pairs", "source tokens", "target tokens", "dropped"), splits))
        prepared = [
            ("folder", manifest.get("data", "")),
            ("languages", f"{data.get('src_lang', '')} to {data.get('tgt_lang', '')}"),
            ("sub-words", f"{data.get('vocab', {}).get('size', 0):,}"),
            *((name.replace("_", " "), value) for name, value in data.get("settings", {}).items()),
        ]
        parts.append(rows(prepared))
    parts.append("<h3>Run</h3>")
    parts.append(
        rows(
            [
                ("run id", manifest.get("run_id", "")),
                ("aiayn", manifest.get("aiayn", "")),
                ("SHA-256 of the data's manifest.json", manifest.get("data_sha256", "")),
                ("SHA-256 of the vocabulary", manifest.get("vocab_sha256", "")),
            ]
        )
    )
    return "".join(parts)


def _origin(entry: Mapping[str, Any]) -> str:
    """What one input of prepare was: a file, a member of an archive, or made text."""
    names = [str(entry[key]) for key in ("part", "path", "url", "archive", "member", "made") if entry.get(key)]
    return ", ".join(dict.fromkeys(names))


def _configuration(recipe: Recipe) -> str:
    """Every setting; those that differ from the paper's base model are marked."""
    changed = changed_settings(Recipe(), recipe)
    body = []
    for section in ("data", "model", "training", "decoding"):
        for name, value in vars(getattr(recipe, section)).items():
            key = f"{section}.{name}"
            body.append((key, value, f"paper's base model: {changed[key][0]}" if key in changed else ""))
    return table(("setting", "value", "where it differs"), body)


def _data_manifest(manifest: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The prepared data's manifest, if it is still the one that the run was started on."""
    try:
        found, sha256 = read_manifest(Path(str(manifest.get("data", ""))))
    except AiaynError:
        return None
    return found if sha256 == manifest.get("data_sha256") else None


def _all(records: Sequence[Record], event: str) -> list[Record]:
    return [record for record in records if record["event"] == event]


def _latest(records: Sequence[Record], event: str) -> Record:
    return next((record for record in reversed(records) if record["event"] == event), {})


def _points(records: Sequence[Record], name: str) -> list[tuple[float, float]]:
    return [(record["step"], record[name]) for record in records if record.get(name) is not None]


def _validation_text(record: Record) -> str:
    text = f"loss {_float(record['loss'], '.4f')}"
    return text if record.get("bleu") is None else f"BLEU {record['bleu']:.2f}, {text}"


def _float(value: float | None, form: str) -> str:
    return "not finite" if value is None else format(value, form)
