"""Forced decoding that is exact to the last bit: a pair's scores are a function of the pair alone.

Whatever else is scored with it, in whatever order and by however many threads or processes, the numbers are the same:
the sides of a pair are padded to lengths that depend on it alone, each of its sums is done by itself, by one thread.
A search cannot promise that at this price. It shares out each step among the sentences that are still searched, and its
own log p differs in about the fifth digit from one batch to another.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain

import torch
from torch import Tensor

from aiayn_cli.model.cpu.int8 import Int8Linear
from aiayn_cli.model.cpu.products_apart import ProductsApart
from aiayn_cli.model.transformer import Transformer
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.special_tokens import BOS_ID, EOS_ID, PAD_ID
from aiayn_cli.translate.forced import (
    MOST_LOGITS,
    Forced,
    Pair,
    check_shows_attention,
    mean_cross_attention,
    of_mean_probability,
    padded,
)
from aiayn_cli.translate.search.workers import AnyStop, Stop, Stopped, run_together

_WIDTHS = 8  # sides are padded to a multiple of it, so that few shapes of products occur
_PAIRS_TOGETHER = 16  # in one pass; more are not faster

_Group = tuple[tuple[int, int], list[int]]  # padded lengths of source and target, and numbers of pairs


def can_force_apart(models: Sequence[TranslationModel], device: torch.device) -> bool:
    """Whether the models are in float32 on a CPU: what other types round off is more than what is exact here."""
    return device.type == "cpu" and all(
        all(weight.dtype is torch.float32 for weight in model.parameters())
        and not any(isinstance(module, Int8Linear) for module in model.modules())
        for model in models
    )


def force_apart(
    models: Sequence[TranslationModel],
    pairs: Sequence[Pair],
    *,
    batch_tokens: int,
    threads: int = 1,
    with_attention: bool = False,
    any_of: Sequence[int] = (),
    stop: Stop | None = None,
) -> list[Forced]:
    """Score pairs, in order; arguments and result are those of force_decode(), and besides:

    Args:
        models: can_force_apart().
        threads: how many score pairs side by side.
        any_of: tokens; log p that any of them comes next is given too.
        stop: set where nobody wants the scores any more; None = they always are.
    Raises:
        Stopped: nobody wants the scores any more.
    """
    if with_attention:
        check_shows_attention(models)
        threads = 1  # it is recorded by hooks in the models, which all threads share
    groups = list(_groups(models, pairs, batch_tokens))
    if not groups:
        return []
    shares = [groups[worker::threads] for worker in range(min(threads, len(groups)))]
    stops = () if stop is None else (stop,)
    score = partial(_score, models, pairs, with_attention, list(any_of), stops)
    # One thread for each product: a library adds up in another order where it shares one out.
    results = run_together([partial(score, share) for share in shares], 1)
    found = dict(chain.from_iterable(results))
    return [found[number] for number in range(len(pairs))]


def _groups(models: Sequence[TranslationModel], pairs: Sequence[Pair], batch_tokens: int) -> Iterator[_Group]:
    """Put pairs together whose sides are padded to the same lengths, the longest first."""
    limit = min(model.max_positions for model in models)
    of_shape: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for number, (src, tgt) in enumerate(pairs):
        src_len, tgt_len = (min(-(-(len(side) + 1) // _WIDTHS) * _WIDTHS, limit) for side in (src, tgt))
        of_shape[src_len, tgt_len].append(number)
    # What else is a model, or cuts sequences into blocks, need not keep to what ProductsApart expects.
    can_be_together = all(isinstance(model, Transformer) and not model.attention_window for model in models)
    for shape, numbers in sorted(of_shape.items(), reverse=True):
        size = max(min(_PAIRS_TOGETHER, batch_tokens // max(shape)), 1) if can_be_together else 1
        for start in range(0, len(numbers), size):
            yield shape, numbers[start : start + size]


def _score(
    models: Sequence[TranslationModel],
    pairs: Sequence[Pair],
    with_attention: bool,
    any_of: list[int],
    stops: tuple[Stop, ...],
    groups: Sequence[_Group],
    own_stop: Stop,
) -> list[tuple[int, Forced]]:
    """Score groups of pairs in one thread: the number of each pair and what was found."""
    torch.set_num_threads(1)  # in this very thread, which may not know yet
    stop = AnyStop(own_stop, *stops)
    scored = []
    with torch.inference_mode():
        for (src_len, tgt_len), numbers in groups:
            if stop.is_set():
                raise Stopped
            src = padded([[*pairs[number][0], EOS_ID] for number in numbers], src_len)
            tgt_in = padded([[BOS_ID, *pairs[number][1]] for number in numbers], tgt_len)
            with ProductsApart(len(numbers)):
                src_mask = src != PAD_ID
                memories = [model.encode(src, src_mask) for model in models]
                hidden = [model.decode(tgt_in, x, src_mask) for model, x in zip(models, memories, strict=True)]
                maps = mean_cross_attention(models, tgt_in, memories, src_mask) if with_attention else None
            for row, number in enumerate(numbers):
                src_ids, tgt_ids = pairs[number]
                tokens, any_token = _log_probs(models, [x[row] for x in hidden], [*tgt_ids, EOS_ID], any_of)
                attention = None if maps is None else maps[row, : len(tgt_ids) + 1, : len(src_ids) + 1].numpy()
                scored.append((number, Forced(tuple(tokens), attention, tuple(any_token))))
    return scored


def _log_probs(
    models: Sequence[TranslationModel], hidden: Sequence[Tensor], tokens: Sequence[int], any_of: list[int]
) -> tuple[list[float], list[float]]:
    """Log p of each token, and that any of some others stands in its place; hidden: [models][tgt_len, d_model]."""
    size = max(MOST_LOGITS // models[0].output.num_embeddings, 1)
    found: list[float] = []
    found_any: list[float] = []
    for start in range(0, len(tokens), size):
        wanted = torch.tensor(tokens[start : start + size]).unsqueeze(1)
        of_each = [
            # With the rows of the padding, so that the shape is the padded one, and in memory of its own: products also
            # depend on how that is aligned.
            model.project(x[start : start + size].clone()).log_softmax(dim=-1)[: len(wanted)]
            for model, x in zip(models, hidden, strict=True)
        ]
        log_probs = of_mean_probability(of_each)
        found += log_probs.gather(1, wanted).squeeze(1).tolist()
        if any_of:
            found_any += log_probs[:, any_of].logsumexp(dim=1).tolist()
    return found, found_any
