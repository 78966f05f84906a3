import torch
from hypothesis import given
from hypothesis import strategies as st

from aiayn_cli.special_tokens import EOS_ID, PAD_ID
from aiayn_cli.translate.search.restrictions import Restrictions

VOCAB = 9


@given(data=st.data())
def test_rows_of_any_lengths_in_one_batch_are_restricted_each_by_itself(data: st.DataObject) -> None:
    """Sentences that stand at different steps, in any order, as a search may hold them."""
    n_sentences, beams = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    token = st.integers(4, 6)
    min_lengths = [data.draw(st.integers(1, 6)) for _ in range(n_sentences)]
    prefixes = [tuple(data.draw(st.lists(token, max_size=4))) for _ in range(n_sentences)]
    n = data.draw(st.integers(0, 3))
    restrictions = Restrictions(min_lengths, prefixes, n)
    sentences = data.draw(st.lists(st.integers(0, n_sentences - 1), min_size=1, max_size=5))
    lengths = [data.draw(st.integers(0, 6)) for _ in sentences]
    outputs = torch.full((len(sentences), beams, 8), PAD_ID)
    for row, length in enumerate(lengths):
        for beam in range(beams):
            outputs[row, beam, :length] = torch.tensor(data.draw(st.lists(token, min_size=length, max_size=length)))
            outputs[row, beam, length:] = 4  # left over from something else
    log_probs = torch.zeros(len(sentences), beams, VOCAB)
    restrictions.apply(log_probs, outputs, torch.tensor(lengths), sentences)
    for row, (sentence, length) in enumerate(zip(sentences, lengths, strict=True)):
        for beam in range(beams):
            output = outputs[row, beam, :length].tolist()
            assert log_probs[row, beam].eq(0).nonzero().flatten().tolist() == allowed_after(
                output, min_lengths[sentence], prefixes[sentence], n
            )


def allowed_after(output: list[int], min_length: int, prefix: tuple[int, ...], n: int) -> list[int]:
    allowed = []
    for token in range(VOCAB):
        longer = [*output, token]
        ngrams = [tuple(longer[start : start + n]) for start in range(len(longer) - n + 1)] if n else []
        is_repeat = n > 0 and len(longer) >= n and ngrams[-1] in ngrams[:-1]
        is_early_end = token == EOS_ID and len(longer) < min_length
        if len(output) < len(prefix):  # a prefix may repeat itself
            if token == prefix[len(output)]:
                allowed.append(token)
        elif token >= EOS_ID and not (is_repeat or is_early_end):
            allowed.append(token)
    return allowed


def test_an_output_ends_early_rather_than_not_at_all() -> None:
    log_probs = torch.zeros(1, 1, 5)  # one word only
    outputs = torch.tensor([[[4]]])
    Restrictions([9], no_repeat_ngram=1).apply(log_probs, outputs, torch.tensor([1]), [0])
    assert log_probs[0, 0].eq(0).nonzero().flatten().tolist() == [EOS_ID]
