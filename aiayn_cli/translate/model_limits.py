"""What is refused before a line is translated, since the models cannot do it."""

from collections.abc import Sequence

from aiayn_cli.checkpoint.format import Checkpoint
from aiayn_cli.errors import AiaynError
from aiayn_cli.translate.trust.suspects import OnSuspect


def check_abilities(
    checkpoints: Sequence[Checkpoint],
    *,
    attention: bool,
    alignments: bool,
    markup: bool,
    glossary: bool,
    on_suspect: OnSuspect,
    sample: bool,
    tree_rules: bool | None,
) -> None:
    """Refuse what goes only with Transformers, with models of raw text, with models that write text, or with parsers.

    Args:
        checkpoints: of the models; several are an ensemble, of which the first one's attention is drawn.
        attention, alignments, markup, glossary: whether the option of that name is given.
        on_suspect: what is done about outputs that look wrong.
        sample: whether outputs are drawn.
        tree_rules: whether outputs have to be trees; None where neither option is given.
    Raises:
        AiaynError: a model cannot do it.
    """
    first = checkpoints[0]
    for option, is_given in {"--attention": attention, "--alignments": alignments, "--markup": markup}.items():
        for checkpoint in checkpoints if option != "--attention" else [first]:
            if is_given and checkpoint.model.kind != "transformer":
                raise AiaynError(
                    f"{option} looks at the attention of a Transformer, but {checkpoint.path} is a "
                    f"{checkpoint.model.kind} model",
                    f"leave {option} away, or take a Transformer",
                )
    if markup and first.text.changes_text:
        raise AiaynError(
            f"--markup puts tags between words, but {first.path} reads and writes text in another form",
            "leave --markup away, or take a model of raw text",
        )
    of_text = {"--alignments": alignments, "--glossary": glossary, "--on-suspect copy": on_suspect == "copy"}
    for option, is_given in of_text.items():
        if is_given and first.text.trees:
            raise AiaynError(f"{option} is about words of a translation, but {first.path} writes trees", _for(option))
    if on_suspect == "retry" and sample and first.text.trees:
        raise AiaynError(
            f"--on-suspect retry searches with a larger beam where a model writes trees, as {first.path} does, "
            "and --sample has none",
            "--on-suspect keep, empty and fail go with --sample",
        )
    if tree_rules is not None and not first.text.trees:
        option = "--tree-rules" if tree_rules else "--no-tree-rules"
        raise AiaynError(f"{option} is about a parser's trees, but {first.path} writes text", _for(option))


def _for(option: str) -> str:
    if option == "--on-suspect copy":
        return "--on-suspect retry, empty and fail go with trees"
    return f"leave {option} away"
