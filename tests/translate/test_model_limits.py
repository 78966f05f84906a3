"""What a model cannot do is refused before anything is translated."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from translation_models import translate_options

from aiayn_cli.checkpoint.checkpoint import Checkpoint
from aiayn_cli.errors import AiaynError
from aiayn_cli.recipe_keys import DecodingConfig, ModelConfig, TextConfig
from aiayn_cli.translate.load_models import refuse_unsupported
from aiayn_cli.translate.options import Sampling

TRANSFORMER = Checkpoint(
    path=Path("runs/a"), step=1, model=ModelConfig(), decoding=DecodingConfig(), vocab_size=9, vocab_sha256="",
    data_sha256="", src_lang="en", tgt_lang="de", run_id="r",
)  # fmt: skip
RECURRENT = replace(TRANSFORMER, path=Path("runs/b"), model=ModelConfig(kind="recurrent"))
PARSER = replace(TRANSFORMER, path=Path("runs/p"), text=TextConfig(trees=True))
MOSES = replace(TRANSFORMER, path=Path("runs/m"), text=TextConfig(moses_tokenise=True))
NOTHING: dict[str, Any] = {"on_suspect": "retry"}
PAGE, TERMS = Path("page.html"), Path("terms.tsv")
EVERYTHING: dict[str, Any] = {
    "attention": PAGE, "alignments": True, "markup": True, "glossary": TERMS, "on_suspect": "copy",
}  # fmt: skip


def refuse(models: list[Checkpoint], **options: Any) -> None:
    refuse_unsupported(models, translate_options(**options))


def test_a_transformer_of_raw_text_can_do_all_and_every_model_can_do_nothing_special() -> None:
    refuse([TRANSFORMER, TRANSFORMER], **EVERYTHING)
    refuse([TRANSFORMER, RECURRENT], **{**NOTHING, "attention": PAGE})  # the first one's is drawn
    for each in (RECURRENT, PARSER, MOSES):
        refuse([each], **NOTHING)
    for given in (True, False):
        refuse([PARSER], **{**NOTHING, "tree_rules": given})
    refuse([PARSER], **{**NOTHING, "attention": PAGE})
    refuse([PARSER], **{**NOTHING, "sampling": Sampling(), "on_suspect": "fail"})


@pytest.mark.parametrize(
    ("models", "option", "problem"),
    [
        ([RECURRENT], {"attention": PAGE}, "--attention needs a Transformer, but runs/b is a recurrent model"),
        (
            [TRANSFORMER, RECURRENT],
            {"alignments": True},
            "--alignments needs a Transformer, but runs/b",
        ),
        ([RECURRENT], {"markup": True}, "--markup needs a Transformer"),
        ([MOSES], {"markup": True}, "--markup needs a model of plain text, but runs/m"),
        ([PARSER], {"markup": True}, "--markup needs a model of plain text, but runs/p"),
        ([PARSER], {"alignments": True}, "--alignments is for translations, but runs/p writes trees"),
        ([PARSER], {"glossary": TERMS}, "--glossary is for translations"),
        ([PARSER], {"on_suspect": "copy"}, "--on-suspect copy is for translations"),
        (
            [PARSER],
            {"sampling": Sampling()},
            "--on-suspect retry needs a larger beam, as runs/p writes trees",
        ),
        ([TRANSFORMER], {"tree_rules": False}, "--no-tree-rules is for parsers, but runs/a translates"),
        ([MOSES], {"tree_rules": True}, "--tree-rules is for parsers, but runs/m translates"),
    ],
)
def test_what_a_model_cannot_do_is_named_with_the_model(
    models: list[Checkpoint], option: dict[str, Any], problem: str
) -> None:
    with pytest.raises(AiaynError, match=problem) as caught:
        refuse(models, **{**NOTHING, **option})
    assert caught.value.hint
