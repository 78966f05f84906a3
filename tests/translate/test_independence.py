"""In fp32 a translation does not depend on what it is batched with, and its score is that of forced decoding."""

import json
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from known_words import random_lines
from translation_models import make_checkpoint, translate_options, translations

from aiayn_cli.checkpoint.checkpoint import load_checkpoint
from aiayn_cli.recipe_keys import ModelConfig
from aiayn_cli.special_tokens import BOS_ID, EOS_ID
from aiayn_cli.text.lines import is_blank
from aiayn_cli.translate.load_models import load_network
from aiayn_cli.translate.options import Sampling
from aiayn_cli.translate.search import sentence_search
from aiayn_cli.translate.session import run_translate

pytestmark = pytest.mark.processor  # `make test-avx2` runs these as on a processor with AVX2 alone

# Wide enough that a search of other batches adds up in another order.
SHAPE = ModelConfig(n_encoder_layers=1, n_decoder_layers=1, d_model=256, d_ff=512, n_heads=4)
LONG = "Der hund sieht die maus. " * 18  # more than one pass
SHORT = 16
LINES = [*random_lines(SHORT, longest=3), LONG, "", "maus <b>hund</b> 7"]
SIZES = (1, 7 * 20, SHORT * 20)  # batch tokens: of one sentence, of about seven, of all the short ones
TOLERANCE = 1e-4

Records = dict[int, list[dict[str, Any]]]  # the outputs for each line, by its id


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("wide") / "wide", seed=2, shape=SHAPE)


@pytest.fixture
def translated(wide: Path, tmp_path: Path) -> Callable[..., Records]:
    """What is written for lines, in the given order."""

    def run(order: Sequence[int] = range(len(LINES)), **options: Any) -> Records:
        records = [
            json.dumps({"id": number, "text": LINES[number], "prefix": "und" * (number % 5 == 3)}) for number in order
        ]
        (tmp_path / "in").write_text("".join(f"{record}\n" for record in records))
        settings = {
            "precision": "fp32", "device": "cpu", "format": "jsonl", "n_best": 2, "scores": True, **options
        }  # fmt: skip
        models = settings.pop("models", [wide])
        run_translate(translate_options(models, source=str(tmp_path / "in"), path=tmp_path / "out", **settings))
        return by_id((tmp_path / "out").read_text(encoding="utf-8"))

    return run


def by_id(written: str) -> Records:
    found: Records = {}
    for record in map(json.loads, written.split("\n")[:-1]):
        found.setdefault(record["id"], []).append(record)
    return found


def assert_same(found: Records, expected: Records) -> None:
    assert found.keys() == expected.keys()
    for number, records in found.items():
        for ours, theirs in zip(records, expected[number], strict=True):
            assert ours["text"] == theirs["text"]
            assert ours.get("alignment") == theirs.get("alignment")
            for key in ("score", "log_prob"):
                expected_sum = theirs[key] and pytest.approx(theirs[key], abs=TOLERANCE, rel=1e-6)  # over many passes
                assert ours[key] == expected_sum  # None where no model wrote the text
            assert [piece for piece, _ in ours["tokens"]] == [piece for piece, _ in theirs["tokens"]]
            log_probs = [[log_prob or 0.0 for _, log_prob in each["tokens"]] for each in (ours, theirs)]
            assert log_probs[0] == pytest.approx(log_probs[1], abs=TOLERANCE)


@pytest.mark.parametrize(
    "options",
    [
        {"ensemble": True, "alignments": True},
        {"sampling": Sampling(temperature=0.5), "n_best": 3},
        {"no_repeat_ngram": 2, "min_length": 4, "alpha": 1.1, "markup": True},
        {"glossary": True, "beam_size": 4},
    ],
    ids=lambda options: next(iter(options)),
)
def test_translations_do_not_depend_on_batch_size_order_or_neighbours(
    wide: Path, tmp_path: Path, translated: Callable[..., Records], options: dict[str, Any]
) -> None:
    numbers = range(len(LINES))
    if "sampling" not in options:
        numbers = [*range(SHORT), *range(SHORT + 1, len(LINES))]  # the long line takes as long as all others
    if options.pop("glossary", False):
        numbers = numbers[8:]
        (tmp_path / "terms.tsv").write_text("hund\tkatze\nmaus\tfrau\n")
        options["glossary"] = tmp_path / "terms.tsv"
    if options.pop("ensemble", False):
        options["models"] = [wide, make_checkpoint(tmp_path / "other", seed=3, shape=SHAPE)]
    expected = translated(numbers, **options, batch_tokens=SIZES[0])
    assert len(expected) == len(numbers)
    order = random.Random(1).sample(numbers, len(numbers))
    assert_same(translated(numbers, **options, batch_tokens=SIZES[2]), expected)
    assert_same(translated(order, **options, batch_tokens=SIZES[1]), expected)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes search on Linux alone")
def test_translations_do_not_depend_on_threads_and_processes(
    translated: Callable[..., Records], monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = range(10)
    expected = translated(numbers)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    torch.set_num_threads(2)
    assert_same(translated(numbers), expected)  # in threads: too few lines for processes
    monkeypatch.setattr(sentence_search, "_FEWEST_IN_A_PROCESS", 8)
    assert_same(translated(numbers), expected)


def test_the_scores_of_a_search_are_those_of_forced_decoding(wide: Path, tmp_path: Path) -> None:
    paths = [wide, make_checkpoint(tmp_path / "other", seed=3, shape=SHAPE)]
    networks = [load_network(load_checkpoint(path)) for path in paths]

    def forced(src: Sequence[int], tgt: Sequence[int]) -> float:
        with torch.inference_mode():
            probs = [
                network(torch.tensor([[*src, EOS_ID]]), None, torch.tensor([[BOS_ID, *tgt]]))[0].softmax(-1)
                for network in networks
            ]
        mean = torch.stack(probs).mean(0)
        return float(mean.gather(1, torch.tensor([[*tgt, EOS_ID]]).T).log().sum())

    for outputs in translations(paths, LINES[:9], n_best=3):
        for output in outputs:
            [part] = output.parts
            assert output.log_prob == pytest.approx(forced(part.src, part.tgt), abs=TOLERANCE)
            n = len(part.tgt) + 1
            assert output.score == pytest.approx(output.log_prob / ((5 + n) / 6) ** 0.7)


def test_what_is_shown_fits_together(translated: Callable[..., Records]) -> None:
    """log_prob is the sum of the tokens', the score what alpha makes of it, and outputs stand in their order."""
    for both in translated(range(9, len(LINES)), alpha=0.8).values():
        if both[0]["log_prob"] is None:  # no model wrote a blank line
            assert [record["tokens"] for record in both] == [[], []]
            continue
        for record in both:
            assert record["log_prob"] == pytest.approx(sum(p for _, p in record["tokens"]), abs=1e-3)
            n = sum(piece != "</s>" for piece, _ in record["tokens"]) + 1
            if not is_blank(record["text"]):
                assert record["score"] == pytest.approx(record["log_prob"] / ((5 + n) / 6) ** 0.8, abs=1e-4)
        if sum(piece == "</s>" for piece, _ in both[0]["tokens"]) < 2:  # parts of a long line are ranked one by one
            assert both[0]["score"] >= both[1]["score"]
