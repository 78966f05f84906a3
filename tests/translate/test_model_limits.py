"""What a model cannot do is refused before anything is translated."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aiayn_cli.checkpoint.format import Checkpoint
from aiayn_cli.config import DecodingConfig, ModelConfig, TextConfig
from aiayn_cli.errors import AiaynError
from aiayn_cli.translate.model_limits import check_abilities

TRANSFORMER = Checkpoint(
    path=Path("runs/a"), step=1, model=ModelConfig(), decoding=DecodingConfig(), vocab_size=9, vocab_sha256="",
    data_sha256="", src_lang="en", tgt_lang="de", run_id="r",
)  # fmt: skip
RECURRENT = replace(TRANSFORMER, path=Path("runs/b"), model=ModelConfig(kind="recurrent"))
PARSER = replace(TRANSFORMER, path=Path("runs/p"), text=TextConfig(trees=True))
MOSES = replace(TRANSFORMER, path=Path("runs/m"), text=TextConfig(moses_tokenise=True))
NOTHING: dict[str, Any] = {
    "attention": False, "alignments": False, "markup": False, "glossary": False, "on_suspect": "retry",
    "sample": False,
    "tree_rules": None,
}  # fmt: skip
EVERYTHING: dict[str, Any] = {
    "attention": True, "alignments": True, "markup": True, "glossary": True, "on_suspect": "copy",
    "sample": True, "tree_rules": None,
}  # fmt: skip


def test_a_transformer_of_raw_text_can_do_all_and_every_model_can_do_nothing_special() -> None:
    check_abilities([TRANSFORMER, TRANSFORMER], **EVERYTHING)
    check_abilities([TRANSFORMER, RECURRENT], **{**NOTHING, "attention": True})  # the first one's is drawn
    for each in (RECURRENT, PARSER, MOSES):
        check_abilities([each], **NOTHING)
    for given in (True, False):
        check_abilities([PARSER], **{**NOTHING, "tree_rules": given})
    check_abilities([PARSER], **{**NOTHING, "attention": True})
    check_abilities([PARSER], **{**NOTHING, "sample": True, "on_suspect": "fail"})


@pytest.mark.parametrize(
    ("models", "option", "problem"),
    [
        ([RECURRENT], {"attention": True}, "--attention looks at .* runs/b is a recurrent model"),
        ([TRANSFORMER, RECURRENT], {"alignments": True}, "--alignments looks at .* runs/b is a recurrent model"),
        ([RECURRENT], {"markup": True}, "--markup looks at"),
        ([MOSES], {"markup": True}, "--markup puts tags between words, but runs/m"),
        ([PARSER], {"markup": True}, "--markup puts tags between words, but runs/p"),
        ([PARSER], {"alignments": True}, "--alignments is about words of a translation, but runs/p writes trees"),
        ([PARSER], {"glossary": True}, "--glossary is about words"),
        ([PARSER], {"on_suspect": "copy"}, "--on-suspect copy is about words"),
        ([PARSER], {"sample": True}, "--on-suspect retry searches with a larger beam .* runs/p does, and --sample has"),
        ([TRANSFORMER], {"tree_rules": False}, "--no-tree-rules is about a parser's trees, but runs/a writes text"),
        ([MOSES], {"tree_rules": True}, "--tree-rules is about a parser's trees, but runs/m writes text"),
    ],
)
def test_what_a_model_cannot_do_is_named_with_the_model(
    models: list[Checkpoint], option: dict[str, Any], problem: str
) -> None:
    with pytest.raises(AiaynError, match=problem) as caught:
        check_abilities(models, **{**NOTHING, **option})
    assert caught.value.hint
