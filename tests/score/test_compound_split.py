import math
from collections import Counter

import pytest
from sacrebleu_command import TEXT, noisy

from aiayn_cli.errors import AiaynError
from aiayn_cli.score.metrics import bleu, compound_split_bleu, split_tokens


def multi_bleu(hypotheses: list[str], references: list[list[str]]) -> tuple[float, int, int]:
    """What multi-bleu.perl does: BLEU, and both lengths."""
    correct, total, hyp_length, ref_length = [0] * 4, [0] * 4, 0, 0
    for number, hypothesis in enumerate(hypotheses):
        words = hypothesis.split()
        refs = [reference[number].split() for reference in references]
        hyp_length += len(words)
        ref_length += min((abs(len(ref) - len(words)), len(ref)) for ref in refs)[1]
        for n in range(4):

            def ngrams(tokens: list[str], n: int = n) -> Counter[tuple[str, ...]]:
                return Counter(tuple(tokens[i : i + n + 1]) for i in range(len(tokens) - n))

            known: Counter[tuple[str, ...]] = Counter()
            for ref in refs:
                known |= ngrams(ref)
            found = ngrams(words)
            correct[n] += sum((found & known).values())
            total[n] += sum(found.values())
    if not all(correct):
        return 0.0, hyp_length, ref_length
    penalty = min(0.0, 1 - ref_length / hyp_length)
    mean = sum(math.log(c / t) for c, t in zip(correct, total, strict=True)) / 4
    return 100 * math.exp(penalty + mean), hyp_length, ref_length


@pytest.mark.parametrize("n_references", [1, 2])
def test_it_is_multi_bleu_on_split_moses_tokens(n_references: int) -> None:
    hypotheses, references = noisy(TEXT * 5, seed=1), [noisy(TEXT * 5, seed) for seed in range(2, 2 + n_references)]
    found = compound_split_bleu(hypotheses, references, "de")
    split = [split_tokens(lines, "de") for lines in (hypotheses, *references)]
    expected = multi_bleu(split[0], split[1:])
    assert (found.score, found.hyp_length, found.ref_length) == (pytest.approx(expected[0]), *expected[1:])
    assert f"hyp_len={expected[1]}, ref_len={expected[2]})" in found.detail


def test_hyphens_between_letters_are_set_apart_as_in_the_authors_script() -> None:
    lines = ["Die E-Mail-Adresse, bitte.", "a-b-c", "- nicht -", "3-4 Ost-West"]
    assert split_tokens(lines, "de") == [
        "Die E ##AT##-##AT## Mail ##AT##-##AT## Adresse , bitte .",
        "a ##AT##-##AT## b-c",  # matches do not overlap
        "- nicht -",
        "3 ##AT##-##AT## 4 Ost ##AT##-##AT## West",
    ]


def test_split_compounds_give_credit_for_their_parts() -> None:
    reference = ["Der Ost-West-Konflikt prägte die Nachkriegs-Zeit in Mittel-Europa sehr."]
    hypothesis = ["Der Ost-West-Streit prägte die Nachkriegs-Phase in Mittel-Europa sehr."]
    assert compound_split_bleu(hypothesis, [reference], "de").score > bleu(hypothesis, [reference]).score + 5


def test_it_is_never_mistaken_for_a_sacrebleu_figure() -> None:
    text = str(compound_split_bleu(TEXT, [TEXT], "de"))
    assert text.startswith("compound-split tokenised BLEU = 100.00")
    assert "not sacreBLEU" in text
    assert "nrefs" not in text
    assert "sacremoses" in text


def test_no_match_of_one_length_gives_0_as_multi_bleu_does() -> None:
    assert compound_split_bleu(["eins zwei drei"], [["eins zwei drei"]], "de").score == 0


def test_the_language_must_be_known() -> None:
    with pytest.raises(AiaynError, match="needs the target language") as error:
        compound_split_bleu(["a"], [["a"]], "")
    assert "--langs" in error.value.hint
