import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiayn_cli.errors import AiaynError
from aiayn_cli.evaluation.bleu import TOKENIZERS, BleuScore, bleu, tokenizer_of

REFERENCE = [
    "Der Hund läuft über die Straße.",
    'Sie sagte: "Um 3.15 Uhr kommt der Zug (endlich)!"',
    "Es kostet 1,234.50 € – viel zu viel?",
    "",
    "Zwei Männer spielen Fußball im Park.",
]


def noisy(lines: list[str], seed: int) -> list[str]:
    source = random.Random(seed)
    return [" ".join(word for word in line.split(" ") if source.random() < 0.8) for line in lines]


def sacrebleu_command(folder: Path, hypotheses: list[str], references: list[list[str]], *options: str) -> BleuScore:
    """What the sacrebleu command itself says."""
    names = []
    for number, lines in enumerate([hypotheses, *references]):
        (folder / str(number)).write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="")
        names.append(str(folder / str(number)))
    command = [sys.executable, "-m", "sacrebleu", *names[1:], "-i", names[0], "-w", "6", *options]
    done = subprocess.run(command, capture_output=True, check=True, text=True, encoding="utf-8")
    found = json.loads(done.stdout)
    precisions, _, rest = found["verbose_score"].partition(" ")
    numbers = [float(word) for word in rest.strip("()").split() if word[0].isdigit()]
    return BleuScore(
        score=found["score"],
        signature=found["signature"],
        precisions=tuple(map(float, precisions.split("/"))),
        brevity_penalty=numbers[0],
        hyp_length=int(numbers[2]),
        ref_length=int(numbers[3]),
    )


@pytest.mark.parametrize(
    ("tokenize", "n_references"), [(None, 1), ("13a", 3), ("intl", 2), ("char", 1), ("zh", 1), ("none", 2)]
)
def test_score_and_signature_are_those_of_the_sacrebleu_command(
    tmp_path: Path, tokenize: str | None, n_references: int
) -> None:
    references = [[line.replace("\t", " ") for line in noisy(REFERENCE * 9, seed)] for seed in range(n_references)]
    hypotheses = noisy(REFERENCE * 9, seed=42)
    expected = sacrebleu_command(tmp_path, hypotheses, references, *(["-tok", tokenize] if tokenize else []))
    found = bleu(hypotheses, references, tokenize)
    assert found.signature == expected.signature
    assert found.score == pytest.approx(expected.score, abs=1e-6)
    assert (found.hyp_length, found.ref_length) == (expected.hyp_length, expected.ref_length)
    assert found.precisions == pytest.approx(expected.precisions, abs=0.05)
    assert found.brevity_penalty == pytest.approx(expected.brevity_penalty, abs=5e-4)
    assert 0 < found.score < 100


def test_the_printed_line_is_sacrebleus_own(tmp_path: Path) -> None:
    hypotheses = noisy(REFERENCE, seed=7)
    for number, lines in enumerate((hypotheses, REFERENCE)):
        (tmp_path / str(number)).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "sacrebleu",
        str(tmp_path / "1"),
        "-i",
        str(tmp_path / "0"),
        "-f",
        "text",
        "-w",
        "2",
    ]
    done = subprocess.run(command, capture_output=True, check=True, text=True, encoding="utf-8")
    line, signature = str(bleu(hypotheses, [REFERENCE])).split("\n")
    assert done.stdout.strip() == line.replace("BLEU", f"BLEU|{signature}", 1)


@given(noise=st.lists(st.sampled_from(["\t", "\r", " ", "\u2028", "\x0b", "\x85"]), min_size=1, max_size=4))
@settings(max_examples=30)
def test_tabs_carriage_returns_and_other_white_space_inside_a_line_change_nothing(noise: list[str]) -> None:
    hypotheses = noisy(REFERENCE, seed=5)
    stirred = [line.replace(" ", "".join(noise)) for line in hypotheses]
    assert bleu(stirred, [REFERENCE]) == bleu(hypotheses, [REFERENCE])


def test_a_perfect_translation_scores_100_and_case_counts() -> None:
    assert bleu(REFERENCE, [REFERENCE]).score == pytest.approx(100)
    assert bleu([line.lower() for line in REFERENCE], [REFERENCE]).score < 90


def test_a_further_reference_can_only_raise_the_precisions() -> None:
    hypotheses, other = noisy(REFERENCE, seed=3), noisy(REFERENCE, seed=4)
    one, two = bleu(hypotheses, [other]), bleu(hypotheses, [other, REFERENCE])
    assert all(more > less for more, less in zip(two.precisions, one.precisions, strict=True))
    assert "nrefs:2" in two.signature


@pytest.mark.parametrize(
    ("language", "tokenizer"),
    [
        ("de", "13a"), ("", "13a"), (None, "13a"), ("zh", "zh"), ("zh-TW", "zh"), ("zh_Hans", "zh"), ("ZH", "zh"),
        ("ja", "ja-mecab"), ("jpn", "ja-mecab"), ("ko", "ko-mecab"), ("kok", "13a"), ("zha", "13a"),
    ],
)  # fmt: skip
def test_the_tokeniser_follows_the_target_language(language: str | None, tokenizer: str) -> None:
    assert tokenizer_of(language) == tokenizer


def test_chinese_is_not_scored_with_13a() -> None:
    reference, hypothesis = ["我喜欢喝绿茶和咖啡。"], ["我喜欢喝红茶和咖啡。"]
    assert "tok:zh" in bleu(hypothesis, [reference], tgt_lang="zh").signature
    assert bleu(hypothesis, [reference], tgt_lang="zh").score > 40 > bleu(hypothesis, [reference]).score
    assert "tok:13a" in bleu(hypothesis, [reference], tokenize="13a", tgt_lang="zh").signature


@pytest.mark.parametrize(("tokenizer", "language"), [("ja-mecab", "ja"), ("ko-mecab", "ko")])
def test_a_tokeniser_that_is_not_installed_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tokenizer: str, language: str
) -> None:
    for module in ("MeCab", "mecab_ko", f"sacrebleu.tokenizers.tokenizer_{language}_mecab"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(AiaynError) as caught:
        bleu(["x"], [["x"]], tgt_lang=language)
    assert tokenizer in caught.value.problem
    assert f'pip install "sacrebleu[{language}]"' in caught.value.hint


def test_an_unknown_tokeniser_is_answered_with_the_nearest() -> None:
    with pytest.raises(AiaynError, match="unknown BLEU tokeniser '13b'") as caught:
        bleu(["x"], [["x"]], tokenize="13b")
    assert "did you mean 13a?" in caught.value.hint
    assert all(name in caught.value.hint for name in TOKENIZERS)


def test_what_cannot_be_scored_is_refused_with_its_counts() -> None:
    with pytest.raises(AiaynError, match="hypotheses have 2 lines, but reference 2 has 3"):
        bleu(["a", "b"], [["a", "b"], ["a", "b", "c"]])
    with pytest.raises(AiaynError, match="no line to score"):
        bleu([], [[]])
    with pytest.raises(AiaynError, match="no reference"):
        bleu(["a"], [])
