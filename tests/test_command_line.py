"""Wrong values and options are answered with what is needed."""

import pytest

from aiayn_cli.app import main


@pytest.mark.parametrize(
    ("line", "problem", "hint"),
    [
        ("train --gpus many", "--gpus is many, but must be a whole number", "see `aiayn train --help`"),
        ("train --gpus 0", "--gpus is 0, but must be at least 1", "see `aiayn train --help`"),
        ("train --hours 1e9", "--hours is 1e9, but must be at most 100000", "see `aiayn train --help`"),
        ("train --hours x", "--hours is x, but must be a number", "see `aiayn train --help`"),
        ("train --precision bf61", "--precision is bf61, but must be one of auto, bf16, fp32", "did you mean bf16?"),
        ("prepare --tsv-columns 1 x", "--tsv-columns is x, but must be a whole number", None),
        ("prepare --valid v.en --langs en-de", "--valid needs 2 values, but has only v.en", "write --valid SRC TGT"),
        ("prepare --test=v.en", "--test needs 2 values, but has only v.en", "write --test SRC TGT"),
        ("prepare --train --langs en-de", "--train needs a value, but has none", "write --train SRC TGT"),
        ("prepare demo --out --quiet", "--out needs a value, but has none", "write --out PATH"),
        ("translate --compile", "no such option: --compile", None),
        ("train --max-updates 100", "no such option: --max-updates", "write --set training.max_updates=100"),
        ("train --batch-tokens=9", "no such option: --batch-tokens", "write --set training.batch_tokens=9"),
        ("train --d-model --quiet", "no such option: --d-model", "write --set model.d_model=VALUE"),
        ("train --no-attention-bias", "no such option: --no-attention-bias", "write --set model.attention_bias=false"),
        ("train --lr 3", "no such option: --lr", "write --set training.learning_rate_scale=2 to double the rate"),
        ("prepare --corpus demo", "no such option: --corpus", "write the name alone: aiayn prepare demo"),
    ],
)
def test_a_wrong_value_or_option_is_answered_with_what_it_must_be(
    line: str, problem: str, hint: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    error, advice, end = capsys.readouterr().err.split("\n")
    assert error == f"error: {problem}"
    assert advice == f"hint: {hint}" if hint else advice.startswith("hint: ")
    assert end == ""
