"""prepare: text of two languages in, training-ready data out."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aiayn_cli import logs
from aiayn_cli.data.prepared import MANIFEST, PreparedData, damaged_manifest, write_manifest
from aiayn_cli.errors import DataError
from aiayn_cli.prepare.partial_folder import new_folder, remove_leftovers
from aiayn_cli.prepare.plan import PreparePlan, make_plan
from aiayn_cli.prepare.result import PrepareResult
from aiayn_cli.prepare.source_choice import Files, PairOfFiles
from aiayn_cli.prepare.sources import identity_of
from aiayn_cli.prepare.steps import prepare_folder


def run_prepare(
    *,
    corpus: str | None = None,
    like: str | None = None,
    train: Sequence[PairOfFiles] = (),
    tsv: Sequence[Path] = (),
    tsv_columns: tuple[int, int] = (1, 2),
    tmx: Sequence[Path] = (),
    valid: PairOfFiles | None = None,
    test: PairOfFiles | None = None,
    trees: Sequence[Path] = (),
    valid_trees: Path | None = None,
    test_trees: Path | None = None,
    weights: Mapping[str, int] | None = None,
    langs: str | None = None,
    out: Path | None = None,
    recipe: str | None = None,
    settings: Mapping[str, Any] | None = None,
    vocab: Path | None = None,
    workers: int | None = None,
    downloads: Path | None = None,
    from_folder: Path | None = None,
) -> PrepareResult:
    """Prepare named corpora, files, or both together.

    Args:
        corpus: a name that corpora/names.py finds, or several joined by "+"; None takes the files, or without files
            the recipe's corpus.
        like: whose way of preparing the corpus to follow; None takes ours.
        train: pairs of files, source and target side, read one after the other.
        tsv: files of tab-separated columns, for training too.
        tsv_columns: which column has the source and which the target side, from 1 on.
        tmx: translation memories, for training too.
        valid: validation files; without them, the corpus's, or else pairs of the training text are held out.
        test: test files; without them, the corpus's.
        trees: treebanks to train a parser on, instead of all of these.
        valid_trees: a treebank for validation; without it, trees are held out.
        test_trees: a treebank for testing.
        weights: by the name of a corpus, of a part of one, or of a file: how often its training pairs are taken.
        langs: languages, such as "en-de"; needed for files and OPUS.
        out: folder to make; by default prepared/ and the name of the corpus, or else the languages.
        recipe: takes its data section for what `settings` does not say.
        settings: fields of DataConfig that the user set.
        vocab: a vocabulary to use instead of a new one: a file, or a folder that holds vocab.model.
        workers: processes that encode text; None takes one for each core. The result does not depend on it.
        downloads: folder where downloaded archives are kept; None takes prepared/.downloads.
        from_folder: folder with archives that are at hand.
    Raises:
        AiaynError: what the user can fix; an existing folder is never changed.
    """
    started = time.monotonic()
    plan = make_plan(
        corpus=corpus,
        like=like,
        files=Files(train, tsv, tsv_columns, tmx, valid, test, trees, valid_trees, test_trees, weights or {}),
        langs=langs,
        out=out,
        recipe=recipe,
        settings=settings or {},
        vocab=vocab,
        workers=workers,
        downloads=downloads,
        from_folder=from_folder,
    )
    if out is None:
        logs.notice(f"writing to {plan.out} (--out chooses another folder)")
    if (plan.out / MANIFEST).exists():
        result = _check_same(plan, started)
        remove_leftovers(plan.out)
        logs.notice(f"{plan.out} holds exactly this already; nothing to do")
        return result
    plan.source.fetch()
    with new_folder(plan.out) as folder:
        manifest = prepare_folder(folder, plan)
        write_manifest(folder, manifest)
    return PrepareResult.from_manifest(plan.out, manifest, done_before=False, seconds=time.monotonic() - started)


def _check_same(plan: PreparePlan, started: float) -> PrepareResult:
    """Make sure that an existing folder is what this call would make, and report it."""
    manifest = PreparedData.load(plan.out).manifest
    new: dict[str, Any] = {
        "languages": f"{plan.src_lang}-{plan.tgt_lang}",
        "text": plan.source.identity(),
        **plan.settings(),
    }
    try:
        old: dict[str, Any] = {
            "languages": f"{manifest['src_lang']}-{manifest['tgt_lang']}",
            "text": identity_of(manifest["inputs"]),
            **manifest["settings"],
        }
        changed = [key for key in dict.fromkeys((*old, *new)) if old.get(key) != new.get(key)]
        if not changed:
            seconds = time.monotonic() - started
            return PrepareResult.from_manifest(plan.out, manifest, done_before=True, seconds=seconds)
    except (KeyError, TypeError, AttributeError) as error:
        raise damaged_manifest(plan.out, error) from error
    both = {key for key in changed if key in old and key in new and key != "text"}
    what = ", ".join(f"{key} {old[key]} and not {new[key]}" if key in both else key for key in changed)
    hint = "remove the folder, or give another --out; nothing was changed"
    raise DataError(f"{plan.out} holds data prepared otherwise ({what})", hint)
