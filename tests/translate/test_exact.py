"""In fp32 all that is written is the same to the byte, scores included, however the lines are put together."""

import json
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from known_words import random_lines
from translation_models import make_checkpoint

from aiayn_cli.checkpoint.format import load_checkpoint
from aiayn_cli.config import ModelConfig
from aiayn_cli.text.lines import is_blank
from aiayn_cli.translate.forced_apart import force_apart
from aiayn_cli.translate.models import load_network
from aiayn_cli.translate.run import run_score_against, run_translate
from aiayn_cli.translate.search import sentence_search
from aiayn_cli.translate.search.workers import Stopped

# Wide enough that a search of other batches gives other scores in the fifth digit; see also test_products_apart.py.
SHAPE = ModelConfig(n_encoder_layers=1, n_decoder_layers=1, d_model=256, d_ff=512, n_heads=4)
LONG = "Der hund sieht die maus. " * 18  # more than one pass
SHORT = 24
LINES = [*random_lines(SHORT, longest=3), LONG, "", "maus <b>hund</b> 7"]
SIZES = (1, 7 * 20, SHORT * 20)  # batch tokens: of one sentence, of about seven, of all the short ones

Written = tuple[dict[str, str], dict[str, str]]  # records and report of each line, by its id


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("wide") / "wide", seed=2, shape=SHAPE)


@pytest.fixture
def translated(wide: Path, tmp_path: Path) -> Callable[..., Written]:
    """What is written for lines, in the given order."""

    def run(order: Sequence[int] = range(len(LINES)), **options: Any) -> Written:
        records = [
            json.dumps({"id": number, "text": LINES[number], "prefix": "und" * (number % 5 == 3)}) for number in order
        ]
        (tmp_path / "in").write_text("".join(f"{record}\n" for record in records))
        settings = {
            "precision": "fp32", "device": "cpu", "line_format": "jsonl", "n_best": 2, "with_scores": True, **options
        }  # fmt: skip
        models = settings.pop("models", [wide])
        run_translate(
            models, source=str(tmp_path / "in"), output=tmp_path / "out", report=tmp_path / "report", **settings
        )
        return _by_id(tmp_path / "out"), _by_id(tmp_path / "report")

    return run


def _by_id(path: Path) -> dict[str, str]:
    """The lines of a file of JSON, put together by their ids, without the number of the line."""
    found: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
        record = json.loads(line)
        record.pop("line", None)
        found[record["id"]] = found.get(record["id"], "") + json.dumps(record)
    return found


@pytest.mark.parametrize(
    "options",
    [
        {"ensemble": True, "with_alignments": True},
        {"sample": True, "temperature": 0.5, "n_best": 3},
        {"no_repeat_ngram": 2, "min_length": 4, "alpha": 1.1, "markup": True},
        {"glossary": True, "beam_size": 4},
    ],
    ids=lambda options: next(iter(options)),
)
def test_scores_do_not_depend_on_batch_size_order_or_neighbours(
    wide: Path, tmp_path: Path, translated: Callable[..., Written], options: dict[str, Any]
) -> None:
    numbers = range(len(LINES))
    if options.pop("glossary", False):
        numbers = [*range(14, SHORT), *range(SHORT + 1, len(LINES))]  # fewer: such a search takes its time
        (tmp_path / "terms.tsv").write_text("hund\tkatze\nmaus\tfrau\n")
        options["glossary"] = tmp_path / "terms.tsv"
    if options.pop("ensemble", False):
        options["models"] = [wide, make_checkpoint(tmp_path / "other", seed=3, shape=SHAPE)]
    expected = translated(numbers, **options, batch_tokens=SIZES[0])
    assert len(expected[0]) == len(expected[1]) == len(numbers)
    order = random.Random(1).sample(numbers, len(numbers))
    assert translated(numbers, **options, batch_tokens=SIZES[2]) == expected
    assert translated(order, **options, batch_tokens=SIZES[1]) == expected
    few = translated(order[:3], **options)
    assert few == tuple({number: found[number] for number in order[:3]} for found in expected)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes search on Linux alone")
def test_scores_do_not_depend_on_threads_copies_and_processes(
    wide: Path, tmp_path: Path, translated: Callable[..., Written], monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = [*range(SHORT), *range(SHORT + 1, len(LINES))]  # without the long line: each start takes time enough
    expected = translated(numbers)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    torch.set_num_threads(2)
    assert translated(numbers) == expected  # in threads: too few lines for copies
    monkeypatch.setattr(sentence_search, "_FEWEST_IN_A_PROCESS", 8)
    assert translated(numbers) == expected
    assert translated(numbers, gpus=2) == expected
    command = [
        sys.executable, "-m", "aiayn_cli", "translate", "-m", wide, "--precision", "fp32", "--device", "cpu",
        "--scores", "--format", "jsonl", "--nbest", "2", "-i", tmp_path / "in",
    ]  # fmt: skip
    done = subprocess.run(command, check=True, capture_output=True)  # two threads, as all its life
    (tmp_path / "out").write_bytes(done.stdout)
    assert _by_id(tmp_path / "out") == expected[0]


def test_given_translations_have_the_same_scores_in_any_company(wide: Path, tmp_path: Path) -> None:
    pairs = list(zip(LINES[:SHORT], LINES[SHORT - 1 :: -1], strict=True))

    def scores(order: Sequence[int], batch_tokens: int) -> dict[int, str]:
        for name, side in (("in", 0), ("targets", 1)):
            (tmp_path / name).write_text("".join(pairs[number][side] + "\n" for number in order))
        run_score_against(
            tmp_path / "targets", [wide], source=str(tmp_path / "in"), output=tmp_path / "out", device="cpu",
            precision="fp32", batch_tokens=batch_tokens, line_format="jsonl", input_format="text",
        )  # fmt: skip
        records = map(json.loads, (tmp_path / "out").read_text(encoding="utf-8").split("\n")[:-1])
        return {number: json.dumps({**record, "line": 0}) for number, record in zip(order, records, strict=True)}

    expected = scores(range(SHORT), SIZES[0])
    assert len(set(expected.values())) > SHORT // 2
    for batch_tokens in SIZES[1:]:
        assert scores(random.Random(batch_tokens).sample(range(SHORT), SHORT), batch_tokens) == expected


def test_what_is_shown_fits_together(wide: Path, translated: Callable[..., Written]) -> None:
    """log_prob is the sum of the tokens', the score what alpha makes of it, and outputs stand in their order."""
    for found in translated(alpha=0.8)[0].values():
        both = [json.loads(part) for part in found.replace("}{", "}\n{").split("\n")]
        for record in both:
            assert record["log_prob"] == pytest.approx(sum(p for _, p in record["tokens"]), abs=1e-3)
            n = sum(piece != "</s>" for piece, _ in record["tokens"]) + 1
            if not is_blank(record["text"]):
                assert record["score"] == pytest.approx(record["log_prob"] / ((5 + n) / 6) ** 0.8, abs=1e-4)
        if sum(piece == "</s>" for piece, _ in both[0]["tokens"]) < 2:  # parts of a long line are ranked one by one
            assert both[0]["score"] >= both[1]["score"]


def test_nothing_is_scored_again_where_nobody_sees_it(
    wide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    original = sentence_search.force_apart

    def force_apart(*arguments: Any, **more: Any) -> Any:
        asked.append(len(arguments[1]))
        return original(*arguments, **more)

    monkeypatch.setattr(sentence_search, "force_apart", force_apart)
    (tmp_path / "in").write_text("hund\nmaus\n")
    plain = {"source": str(tmp_path / "in"), "output": tmp_path / "out", "precision": "fp32", "device": "cpu"}
    run_translate([wide], **plain)
    run_translate([wide], **plain, sample=True, n_best=2)
    run_translate([wide], **plain, with_alignments=True, attention=tmp_path / "page")
    assert asked == []
    seen: list[dict[str, Any]] = [
        {"with_scores": True}, {"n_best": 2}, {"report": tmp_path / "report"},
        {"line_format": "jsonl", "input_format": "text"}, {"keep_translations": True},
    ]  # fmt: skip
    for options in seen:
        run_translate([wide], **plain, **options)
    assert asked == [2, 4, 2, 2, 2]
    run_translate([wide], **{**plain, "precision": "bf16"}, with_scores=True)
    run_translate([wide], **plain, with_scores=True, int8=True)
    assert len(asked) == 5


def test_scoring_again_stops_where_nobody_wants_the_scores(wide: Path) -> None:
    class AfterOneLook:
        looks = 0

        def is_set(self) -> bool:
            self.looks += 1
            return self.looks > 1

    stop = AfterOneLook()
    checkpoint = load_checkpoint(wide)
    pairs = [([number], [number] * 8 * number) for number in range(5, 9)]  # four shapes, one after the other
    with pytest.raises(Stopped):
        force_apart([load_network(checkpoint)], pairs, batch_tokens=4096, stop=stop)
    assert stop.looks == 2
