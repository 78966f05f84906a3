"""report.html: whole, readable at any time, true to the records, and never a reason to stop or to reach the network."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from html_page import Page
from small_run import Train

from aiayn_cli.app import main
from aiayn_cli.checkpoint.metrics_log import read_metrics
from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.errors import AiaynError
from aiayn_cli.model.cost import TrainingCost
from aiayn_cli.train import report as module
from aiayn_cli.train.report import by_the_papers_method, report_html, write_report


@pytest.fixture(scope="module")
def whole(train_into: Train, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was done in two calls."""
    run = tmp_path_factory.mktemp("report") / "run <1>"
    for updates in (8, 12):
        train_into(run, f"max_updates={updates}")
    return run


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    """A copy of it to change."""
    return shutil.copytree(whole, tmp_path / "run", symlinks=True)


def append(run: Path, *records: dict[str, Any]) -> None:
    with (run / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def replace_in(path: Path, old: str, new: str) -> None:
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")


def page(run: Path) -> Page:
    return Page((run / "report.html").read_text(encoding="utf-8"))


def test_the_page_holds_all_it_needs_and_no_address(whole: Path) -> None:
    assert page(whole).count("script") == 1  # of the curves
    text = (whole / "report.html").read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
    assert "http:" not in text
    assert "https:" not in text


def test_it_opens_with_score_speed_time_and_state(whole: Path, small_data: PreparedData) -> None:
    found = page(whole)
    records = read_metrics(whole / "metrics.jsonl")
    best = [record for record in records if record["event"] == "validation" and record["best"]][-1]
    last = [record for record in records if record["event"] == "train"][-1]
    metric, bleu, where, signature = found.tables[0][0]
    assert (metric, bleu) == ("best validation BLEU", f"{best['bleu']:.2f}")
    assert f"on validation sentences at update {best['step']}; loss {best['loss']:.3f}" in " ".join(where.split())
    assert signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|")
    assert found.row("speed")[1] == f"{last['tokens_per_second']:,.0f}"
    assert found.row("training time")[1].startswith("0:0")
    assert found.row("updates")[1:3] == ["12 of 12", found.row("updates")[2]]
    assert found.row("updates")[2].startswith("100 %")
    assert {"run <1>", "run <1> · training report", "complete"} <= set(found.texts)


def test_it_shows_curves_and_where_the_run_was_resumed(whole: Path) -> None:
    found = page(whole)
    assert found.count("svg") == 6
    assert "resumed after update 8." in " ".join("".join(found.texts).split())


@pytest.mark.parametrize(
    ("patience", "step", "updates", "state"),
    [(0, 12, 12, "complete"), (0, 12, 20, "60 % done"), (1, 12, 20, "stopped early"), (9, 12, 20, "60 % done")],
)
def test_the_state_of_a_run_is_what_its_records_say(
    patience: int, step: int, updates: int, state: str, run: Path
) -> None:
    replace_in(run / "recipe.yaml", "patience: 0", f"patience: {patience}")
    records = [record for record in read_metrics(run / "metrics.jsonl") if record.get("step", 0) <= step]
    for record in records:
        if record["event"] == "start":
            record["updates"] = updates
        if record["event"] == "validation":
            record["best"] = record["step"] == 4
    (run / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    assert state in Page(report_html(run)).texts


def test_each_validation_and_its_translations_are_there(whole: Path, small_data: PreparedData) -> None:
    found = page(whole)
    records = read_metrics(whole / "metrics.jsonl")
    validations = [record for record in records if record["event"] == "validation"]
    assert [record["step"] for record in validations] == [4, 8, 12]
    for record in validations:
        row = found.row(str(record["step"]))
        assert row[1:4] == [f"{record['loss']:.4f}", f"{record['perplexity']:.4g}", f"{record['bleu']:.2f}"]
    samples = [record for record in records if record["event"] == "samples"]
    assert [record["step"] for record in samples] == [4, 8, 12]
    sources = small_data.read_text("valid", "src")
    for record in samples:
        assert 1 <= len(record["sources"]) == len(record["references"]) == len(record["translations"]) <= 6
        for source, reference in zip(record["sources"], record["references"], strict=True):
            assert reference == small_data.read_text("valid", "tgt")[sources.index(source)]
            assert any(["source", source] in table and ["reference", reference] in table for table in found.tables)


def test_the_chain_names_every_hash_from_text_to_run(whole: Path, small_data: PreparedData) -> None:
    text = " ".join(page(whole).texts)
    manifest = json.loads((whole / "manifest.json").read_bytes())
    for digest in (
        manifest["run_id"],
        small_data.sha256,
        small_data.vocab_sha256,
        *(entry["sha256"] for entry in small_data.manifest["inputs"]),
    ):
        assert digest in text


def test_costs_are_counted_and_by_the_papers_method(whole: Path, small_data: PreparedData) -> None:
    found = page(whole)
    train = [record for record in read_metrics(whole / "metrics.jsonl") if record["event"] == "train"]
    assert found.row("counted so far, forward and backward")[1] == f"{train[-1]['flops']:.3g}"
    assert found.row("the paper's base model, by its method")[1] == "3.3e+18"
    recipe = module.load_recipe(str(whole / "recipe.yaml"))
    cost = TrainingCost(recipe.model, small_data.vocab_size)
    estimate = cost.run_flops(small_data.train.length_chunks(), recipe.training.batch_tokens, 12)
    assert found.row("counted, estimated for all 12 updates")[1] == f"{estimate:.3g}"
    assert train[-1]["flops"] == pytest.approx(estimate, rel=0.1)  # less than an epoch: not all updates cost the same


def test_time_is_multiplied_by_the_devices_and_rate_of_each_call() -> None:
    records: list[dict[str, Any]] = [
        {"event": "start", "devices": 2, "matmul_rate": 10.0},
        {"event": "train", "seconds": 5.0},
        {"event": "train", "seconds": 7.0},
        {"event": "resume", "step": 3},
        {"event": "start", "devices": 4, "matmul_rate": 100.0},
        {"event": "train", "seconds": 8.0},
    ]
    assert by_the_papers_method(records) == (2 * 7 * 10.0 + 4 * 1 * 100.0, 2 * 7 + 4 * 1)


def test_settings_that_differ_from_the_papers_are_marked(whole: Path) -> None:
    found = page(whole)
    assert found.row("model.d_model") == ["model.d_model", "16", "512"]
    assert found.row("training.label_smoothing") == ["training.label_smoothing", "0.1"]


def test_settings_of_the_data_are_those_it_was_prepared_with(whole: Path, small_data: PreparedData) -> None:
    found = page(whole)
    assert found.row("data.corpus")[1] == "text files of your own"  # the recipe says something else
    assert found.row("data.vocab_size")[1] == str(small_data.vocab_size)
    assert found.row("data.dedupe")[1] in ("yes", "no")
    assert not {"True", "False"} & set(found.texts)
    for entry in small_data.manifest["inputs"]:
        language = {"src": small_data.src_lang, "tgt": small_data.tgt_lang}[entry["side"]]
        table = next(table for table in found.tables if any(row[0] == "vocabulary" for row in table))
        [cells] = [row for row in table if row[0] == f"{entry['split']}, {language}"]
        assert cells[1] == f"{entry['path']}{entry['sha256']}"


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda content: content[:-20], "1 line skipped, cut short or damaged"),
        (lambda content: b"[]\n" + content + b'{"event": "train"}\n', "2 lines skipped, cut short or damaged"),
        (None, "is missing, so there are no measurements to show"),
        (lambda content: content, ""),
    ],
)
def test_what_a_damaged_log_lacks_is_said(
    damage: Callable[[bytes], bytes] | None, said: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = run / "metrics.jsonl"
    content = log.read_bytes()
    log.unlink()
    if damage is not None:
        log.write_bytes(damage(content))
    assert main(["train", "--report", str(run)]) == 0
    err = capsys.readouterr().err
    assert said in err
    assert ("warning" in err) == bool(said)
    assert said in " ".join(page(run).texts)


def test_a_damaged_manifest_is_named_and_a_run_named_twice_is_refused(
    whole: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "link").symlink_to(whole)
    assert main(["train", "--report", str(whole), "--report", str(tmp_path / "link")]) == 2
    assert "--report names the run" in capsys.readouterr().err
    (run / "manifest.json").write_text("{")
    assert main(["train", "--report", str(run)]) == 1
    assert "manifest.json cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize("lines", [0, 1, 2, 7, 20])
def test_it_can_be_made_at_any_moment_of_a_run(lines: int, whole: Path, run: Path) -> None:
    records = (whole / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (run / "metrics.jsonl").write_bytes(b"".join(records[:lines]) + b'{"event": "tra')
    write_report(run)
    assert "Nothing has been counted yet." in page(run).texts or lines > 1
    (run / "metrics.jsonl").unlink()
    Page(report_html(run))


def test_what_a_crash_undid_is_not_shown(run: Path) -> None:
    append(run, {"event": "resume", "step": 4})
    found = Page(report_html(run))
    assert found.row("updates")[1].startswith("4 of ")
    assert found.row("4")
    assert not any(row[0] in ("8", "12") for table in found.tables for row in table)


@pytest.mark.parametrize(
    "text", ["<script>alert(1)</script>", "a & b < c", '"quoted"', "עברית abc", "</td></table>", ""]
)
def test_text_stays_text_whatever_is_in_it(text: str, run: Path) -> None:
    record = {"event": "samples", "step": 12, "sources": ["s " + text], "references": ["r"], "translations": [text]}
    append(run, record)
    found = Page(report_html(run))
    table = next(table for table in found.tables if ["source", "s " + text] in table)
    assert table[2] == ["update 12", text or "empty"]
    assert found.count("script") == 1


def test_what_went_wrong_is_said(run: Path) -> None:
    memory, rollback = {"event": "memory", "max_tokens": 1500}, {"event": "rollback", "step": 8, "undone": 11}
    append(run, {**memory, "step": 12}, rollback)
    assert "Went back from update 11 to 8, after bad gradients." in Page(report_html(run)).texts
    append(run, {**memory, "step": 9})
    assert "Memory ran out: micro-batches have at most 1,500 tokens a side." in Page(report_html(run)).texts


def test_outputs_that_stay_the_same_are_said_once(run: Path) -> None:
    for step, output in ((1000, "a"), (2000, "a"), (3000, "b"), (4000, "a")):
        same = {"event": "samples", "sources": ["s"], "references": ["r"]}
        append(run, {**same, "step": step, "translations": [output]})
    tables = Page(report_html(run)).tables
    (number,) = [number for number, table in enumerate(tables) if ["source", "s"] in table]
    assert tables[number][2:] == [["update 4,000", "a"]]
    assert tables[number + 1] == [["update 3,000", "b"], ["updates 1,000 to 2,000", "a"]]  # folded


def test_without_its_data_the_page_says_so(run: Path, tmp_path: Path) -> None:
    manifest = json.loads((run / "manifest.json").read_bytes())
    (run / "manifest.json").write_text(json.dumps({**manifest, "data": str(tmp_path / "gone")}))
    found = Page(report_html(run))
    assert any("no longer exists" in text for text in found.texts)
    assert manifest["data_sha256"] in " ".join(found.texts)


@pytest.mark.parametrize(
    ("corpus", "licence"),
    [
        ("multi30k-en-de", "research use; its repository has no licence"),
        ("opus:TED2020/v1", "see opus.nlpl.eu"),
        (None, "not known here: that of the text files"),
        ("renamed-since", "not known here: that of the text files"),
    ],
)
def test_the_corpus_is_named_with_its_licence(corpus: str | None, licence: str, run: Path, tmp_path: Path) -> None:
    prepared = tmp_path / "prepared"
    manifest = json.loads((run / "manifest.json").read_bytes())
    content = json.loads((Path(manifest["data"]) / "manifest.json").read_bytes())
    prepared.mkdir()
    (prepared / "manifest.json").write_text(json.dumps({**content, "corpus": corpus}), encoding="utf-8")
    sha256 = hashlib.sha256((prepared / "manifest.json").read_bytes()).hexdigest()
    (run / "manifest.json").write_text(json.dumps({**manifest, "data": str(prepared), "data_sha256": sha256}))
    found = Page(report_html(run))
    assert found.row("corpus")[1] == (corpus or "text files of your own")
    assert found.row("licence")[1] == licence


def test_several_runs_stand_side_by_side(
    whole: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replace_in(run / "recipe.yaml", "dropout: 0.2", "dropout: 0.3")
    target = tmp_path / "both.html"
    assert main(["train", "--report", str(whole), "--report", str(run), "--out", str(target)]) == 0
    assert target.name in capsys.readouterr().out
    found = Page(target.read_text(encoding="utf-8"))
    best = [record for record in read_metrics(whole / "metrics.jsonl") if record.get("best")][-1]
    assert found.row("best validation BLEU")[1:] == 2 * [f"{best['bleu']:.2f}"]
    assert [cell.strip() for cell in found.tables[0][0]] == ["", str(whole), str(run)]
    assert found.tables[1][1:] == [["model.dropout", "0.2", "0.3"]]
    assert found.count("svg") == 7
    assert sum(text.strip().startswith("update") for table in found.tables[2:] for text, *_ in table[2:]) >= 2


def test_the_report_of_a_run_can_be_renewed(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (whole / "report.html").unlink()
    assert main(["train", "--report", str(whole)]) == 0
    assert capsys.readouterr().out.split() == ["report:", *str(whole / "report.html").split()]
    assert (whole / "report.html").is_file()
    assert main(["train", "--report", str(whole / "checkpoints")]) == 1
    assert "is not the folder of a run" in capsys.readouterr().err


def test_a_page_half_written_never_replaces_a_whole_one(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (run / "report.html").read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*/report.html'"):
        write_report(run)
    assert (run / "report.html").read_bytes() == before
    assert not list(run.glob(".unfinished-*"))


def test_tensorboard_is_written_where_it_was_asked_for_and_refused_before_a_run_begins(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train("max_updates=4", tensorboard=True)
    assert [path.name.split(".")[0] for path in (tmp_path / "run" / "tensorboard").iterdir()] == ["events"]

    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(AiaynError, match="--tensorboard needs") as error:
        train("max_updates=4", name="other", tensorboard=True)
    assert "pip install '.[tensorboard]' in a checkout" in error.value.hint
    assert not (tmp_path / "other").exists()
