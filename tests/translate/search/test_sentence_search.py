import copy
import itertools
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from known_words import WORDS, random_lines
from translation_models import ModelMaker, TranslatorMaker

from aiayn_cli.device import Device
from aiayn_cli.errors import CheckpointError
from aiayn_cli.special_tokens import BOS_ID, EOS_ID, PAD_ID
from aiayn_cli.text.codec import Codec
from aiayn_cli.translate.options import Sampling, SearchOptions
from aiayn_cli.translate.search.beam import Hypothesis
from aiayn_cli.translate.search.scorer import ModelScorer, Stop, Stopped
from aiayn_cli.translate.search.sentence_search import SearchSetup, bands, run_in_threads


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes search on Linux alone")
def test_many_lines_in_processes_give_what_they_give_in_one_thread(
    make_translator: TranslatorMaker, cpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiayn_cli.translate.search.sentence_search._FEWEST_IN_A_PROCESS", 8)
    lines = random_lines(18)
    one = make_translator(batch_tokens=90)
    two = make_translator(device=replace(cpu, threads=2), batch_tokens=90, setup=SearchSetup(in_processes=True))
    pools = []
    for beam, options in ((3, SearchOptions()), (2, SearchOptions(min_length=3)), (1, SearchOptions(max_length=5))):
        # The same processes search in all these ways.
        how = {"decoding": replace(one.decoding, beam_size=beam), "options": options}
        assert two.variant(**how).translate(lines) == one.variant(**how).translate(lines)
        forks = two._search._forks
        assert forks is not None
        assert forks.pool is not None
        pools.append(forks.pool)
    assert pools[0] is pools[1] is pools[2]
    processes = [each.process for each in pools[0]._processes]
    assert len(processes) == 2
    processes[0].kill()
    assert two.translate(lines) == one.translate(lines), "a search here takes over"
    assert two.translate(lines) == one.translate(lines), "others are forked"
    assert forks.pool not in (None, pools[0])
    processes += [each.process for each in forks.pool._processes]
    del two, forks, pools
    assert not any(process.is_alive() for process in processes)
    assert one._search._forks is None


@given(data=st.data())
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_lines_in_any_order_and_company_give_what_each_gives_alone(
    make_model: ModelMaker, make_translator: TranslatorMaker, data: st.DataObject
) -> None:
    model = make_model(data.draw(st.integers(1, 3)))
    line = st.lists(st.sampled_from([*WORDS, "x", "läuft.", ""]), max_size=5).map(" ".join)
    lines = data.draw(st.lists(line, min_size=1, max_size=9))
    size, batch_tokens = data.draw(st.sampled_from([1, 7, 64])), data.draw(st.sampled_from([1, 60, 100_000]))
    beam_size, alpha = data.draw(st.integers(1, 5)), data.draw(st.sampled_from([0.0, 0.6, 1.5]))
    alone = make_translator(model, beam_size=beam_size, alpha=alpha, batch_tokens=1)
    together = make_translator(model, beam_size=beam_size, alpha=alpha, batch_tokens=batch_tokens)
    found = [text for start in range(0, len(lines), size) for text in together.translate(lines[start : start + size])]
    assert found == [alone.translate([line])[0] for line in lines]


@pytest.mark.parametrize(("options", "hypotheses"), [({}, 3), ({"sampling": Sampling()}, 50)])
def test_a_step_holds_no_more_hypotheses_than_the_memory_is_meant_for(
    make_translator: TranslatorMaker, vocab: Codec, options: dict[str, Sampling], hypotheses: int
) -> None:
    n_best = hypotheses if options else 1
    translator = make_translator(batch_tokens=10**9, options=SearchOptions(n_best=n_best, **options))
    sizes: list[int] = []

    def search(sources: Sequence[Any], at_once: int, stop: object) -> list[list[Hypothesis]]:
        sizes.append(at_once)
        return [[Hypothesis((), -1.0, -1.0)] for _ in sources]

    translator._search._search_band = search  # type: ignore[method-assign]
    translator.translate_n_best(["hund"] * 20_000)
    assert 0 < max(sizes) * hypotheses * vocab.size <= 1 << 22


@given(lengths=st.lists(st.integers(1, 60), max_size=60), batch_tokens=st.integers(1, 300), at_most=st.integers(1, 30))
def test_batches_hold_each_sentence_once_within_both_limits_and_go_by_size(
    lengths: list[int], batch_tokens: int, at_most: int
) -> None:
    found = bands(lengths, batch_tokens, at_most)
    order = [number for _, numbers in found for number in numbers]
    assert sorted(order) == list(range(len(lengths)))
    assert [lengths[number] for number in order] == sorted(lengths, reverse=True)
    assert [size for size, _ in found] == sorted({size for size, _ in found})
    for size, numbers in found:
        assert size <= at_most
        assert size == 1 or size * (lengths[numbers[0]] + 1) <= batch_tokens


def test_a_model_in_training_is_left_as_it_was(
    make_model: ModelMaker, make_translator: TranslatorMaker, cpu: Device
) -> None:
    model = make_model(dropout=0.5).train()
    before = copy.deepcopy(model.state_dict())
    bf16 = replace(cpu, dtype=torch.bfloat16)
    first, again = (make_translator(model, device=bf16).translate(random_lines(3)) for _ in range(2))
    assert first == again, "dropout was on"
    assert model.training
    assert all(weight.requires_grad and weight.dtype == torch.float32 for weight in model.parameters())
    torch.testing.assert_close(model.state_dict(), before)
    model(torch.tensor([[5, EOS_ID]]), None, torch.tensor([[BOS_ID] * 600])).sum().backward()  # longer than any so far


def test_a_diverged_model_is_named_as_such(make_model: ModelMaker, make_translator: TranslatorMaker) -> None:
    model = make_model()
    with torch.no_grad():
        model.output.weight[0, 0] = torch.nan
    with pytest.raises(CheckpointError, match="the model's probabilities are NaN"):
        make_translator(model).translate(["der hund"])


def test_options_hold_for_every_output(make_model: ModelMaker, make_translator: TranslatorMaker) -> None:
    model, lines = make_model(), random_lines(20)
    with torch.no_grad():  # EOS a little likelier, so that outputs of all lengths come
        model.decoder_layers[-1].feed_forward_residual.norm.bias += 1.0
        model.output.weight -= model.output.weight.mean(1, keepdim=True)
        model.output.weight[EOS_ID] += 0.33
    free = [each.parts[0].tgt for [each] in make_translator(model, max_extra=30).translate_n_best(lines)]
    assert min(map(len, free)) < 9
    assert max(map(len, free)) > 12
    assert any(len(set(itertools.pairwise(tokens))) < len(tokens) - 1 for tokens in free)
    options = SearchOptions(min_length=9, max_length=12, no_repeat_ngram=2)
    for [each] in make_translator(model, max_extra=30, options=options).translate_n_best(lines):
        tokens = each.parts[0].tgt
        assert 9 <= len(tokens) <= 12
        assert each.parts[0].is_cut == (len(tokens) == 12)
        assert len(set(itertools.pairwise(tokens))) == len(tokens) - 1


def test_an_enormous_longest_output_neither_fills_memory_nor_runs_on(
    make_model: ModelMaker, make_translator: TranslatorMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiayn_cli.translate.search.sentence_search.LONGEST_PASS", 200)  # of 1,000
    model = make_model(d_model=8, n_heads=1, d_k=4, d_v=4, d_ff=8)
    with torch.no_grad():
        model.output.weight[EOS_ID] = 0
        model.decoder_layers[-1].feed_forward_residual.norm.bias += 3.0  # something else is always likelier than EOS
        model.output.weight[9] = 5.0
    translator = make_translator(model, beam_size=1, max_extra=1_000_000_000)
    [[found]] = translator.translate_n_best(["hund"])
    assert len(found.parts[0].tgt) == 199
    assert found.parts[0].is_cut


def test_threads_give_results_in_the_order_of_the_tasks_and_share_out_torchs_threads() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        barrier = threading.Barrier(2, timeout=20)

        def task(number: int) -> tuple[int, int]:
            barrier.wait()  # both run at once
            return number, torch.get_num_threads()

        found = run_in_threads([lambda stop: task(0), lambda stop: task(1)], 1)
        assert found == [(0, 1), (1, 1)]
        assert torch.get_num_threads() == 2
        assert run_in_threads([lambda stop: torch.get_num_threads()], 8) == [2]
    finally:
        torch.set_num_threads(before)


def test_a_failure_ends_the_other_tasks_and_is_raised() -> None:
    ended = []

    def wait(stop: Stop) -> None:
        while not stop():
            time.sleep(0.001)
        ended.append(True)
        raise Stopped

    def fail(stop: Stop) -> None:
        raise ZeroDivisionError

    for tasks in ([wait, fail], [fail, wait]):
        with pytest.raises(ZeroDivisionError):
            run_in_threads(tasks, 1)
    assert ended == [True, True]


def test_log_probs_of_a_bf16_model_are_float32(make_model: ModelMaker) -> None:
    src = torch.tensor([[9, 23, EOS_ID], [31, EOS_ID, PAD_ID]])
    log_probs = ModelScorer([make_model().bfloat16()], src, src != PAD_ID).step(torch.full((2,), BOS_ID))
    assert log_probs.dtype == torch.float32
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(2))
