"""The paper's Table 3: what varies the Transformer, row by row.

    python tests/benchmarks/table3.py               the rows with their parameters, beside the printed ones
    python tests/benchmarks/table3.py multi30k      train each row at the size of a smaller recipe, and print the table
    python tests/benchmarks/table3.py multi30k --updates 1000       the same in a shorter time (train/options.py)

Each recipe in recipes/table3 says how a row differs from base. At another size its ratio to base is kept: where the
paper halves d_model, half of the smaller recipe's d_model is taken. As in the paper, each row is scored on the
validation text, with the last checkpoint alone and the recipe's beam.

A row that is done is kept in OUT/ROW/result.json, and a run that was stopped goes on where it was: the same command
again does what is left. What is done is printed at the end, even after Ctrl-C or where a row failed.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from aiayn_cli import logs
from aiayn_cli.checkpoint.metrics_log import read_metrics
from aiayn_cli.checkpoint.run_checkpoints import list_checkpoints
from aiayn_cli.data.prepared import PreparedData, find_prepared
from aiayn_cli.errors import AiaynError, Terminated, UsageError
from aiayn_cli.files import write_whole
from aiayn_cli.model.build import build_empty
from aiayn_cli.model.translation_model import count_parameters
from aiayn_cli.recipe import load_recipe, run_name
from aiayn_cli.recipe_keys import ModelConfig, Recipe
from aiayn_cli.score.session import ScoreOptions, run_score
from aiayn_cli.train.options import TrainOptions, short_schedule
from aiayn_cli.train.resume import changed_settings
from aiayn_cli.train.session import run_train
from aiayn_cli.translate.options import EngineOptions, OutputOptions, TextOptions, TranslateOptions
from aiayn_cli.translate.session import run_translate

# Recipe of each row: perplexity, BLEU, millions of parameters as printed (newstest2013, en-de).
PAPER: dict[str, tuple[float, float, int | None]] = {
    "base": (4.92, 25.8, 65),
    "a-heads-1": (5.29, 24.9, None),
    "a-heads-4": (5.00, 25.5, None),
    "a-heads-16": (4.91, 25.8, None),
    "a-heads-32": (5.01, 25.4, None),
    "b-keys-16": (5.16, 25.1, 58),
    "b-keys-32": (5.01, 25.4, 60),
    "c-layers-2": (6.11, 23.7, 36),
    "c-layers-4": (5.19, 25.3, 50),
    "c-layers-8": (4.88, 25.5, 80),
    "c-width-256": (5.75, 24.5, 28),
    "c-width-1024": (4.66, 26.0, 168),
    "c-ff-1024": (5.12, 25.4, 53),
    "c-ff-4096": (4.75, 26.2, 90),
    "d-dropout-0": (5.77, 24.6, None),
    "d-dropout-20": (4.95, 25.5, None),
    "d-smoothing-0": (4.67, 25.3, None),
    "d-smoothing-20": (5.47, 25.7, None),
    "e-learned-positions": (4.92, 25.7, None),
    "big": (4.33, 26.4, 213),
}
COLUMNS: list[tuple[str, Callable[[Recipe], Any]]] = [
    ("N", lambda recipe: recipe.model.n_encoder_layers),
    ("d_model", lambda recipe: recipe.model.d_model),
    ("d_ff", lambda recipe: recipe.model.d_ff),
    ("h", lambda recipe: recipe.model.n_heads),
    ("d_k", lambda recipe: recipe.model.d_k),
    ("d_v", lambda recipe: recipe.model.d_v),
    ("P_drop", lambda recipe: recipe.model.dropout),
    ("e_ls", lambda recipe: recipe.training.label_smoothing),
    ("steps", lambda recipe: recipe.training.max_updates),
]
ROWS_OF_THE_CODE, TARGET_SPACE_ROWS = 40_960, 32  # of the authors' first code; see recipes/README.md


@dataclass(frozen=True)
class RowResult:
    """What a row gave: perplexity and BLEU of the validation text."""

    settings: list[str]  # overrides of the smaller recipe
    data: str  # hash of the prepared data
    perplexity: float  # for each sub-word
    bleu: float
    parameters: int
    seconds: float  # of training


def row_recipe(row: str) -> Recipe:
    """The recipe of a row at the paper's size."""
    return load_recipe("base" if row == "base" else f"table3/{row}")


def at_size_of(small: Recipe, row: Recipe) -> list[str]:
    """The overrides that make of a smaller recipe what the row is of base; ratios to base are kept."""
    base = load_recipe("base")
    values: dict[str, str | float] = {}
    names = [f"model.{field.name}" for field in fields(ModelConfig)]
    for name in (*names, "training.label_smoothing", "training.max_updates"):
        section, key = name.split(".")
        of_base, of_row, of_small = (getattr(getattr(recipe, section), key) for recipe in (base, row, small))
        if of_row == of_base:
            continue
        if isinstance(of_row, str):
            values[name] = of_row
        else:
            value = of_small * of_row / of_base
            values[name] = max(round(value), 1) if isinstance(of_small, int) else round(value, 6)
    heads = values.get("model.n_heads")
    if heads and row.model.n_heads * row.model.d_k == base.model.n_heads * base.model.d_k:
        # Rows A: other numbers of heads, of the same width together, even where an eighth of the heads is below one.
        values |= {
            f"model.{name}": small.model.n_heads * getattr(small.model, name) // int(heads) for name in ("d_k", "d_v")
        }
    return [f"{name}={value}" for name, value in values.items()]


def run_row(row: str, scale: str, overrides: Sequence[str], prepared: PreparedData, out: Path) -> RowResult:
    """Train and score a row, or take what an earlier call found out.

    Raises:
        UsageError: it was begun with other settings or data.
        AiaynError: it cannot be trained.
    """
    small = load_recipe(scale, overrides)
    settings = [*overrides, *at_size_of(small, row_recipe(row))]
    updates = load_recipe(scale, settings).training.max_updates
    path = out / row / "result.json"
    if path.exists():
        done = RowResult(**json.loads(path.read_text(encoding="utf-8")))
        if done.settings != settings:
            raise UsageError(f"{path} is of {done.settings}, not of {settings}", "give another --out, or remove it")
        if done.data != prepared.sha256:
            raise UsageError(f"{path} is of other data than {prepared.folder}", "give another --out, or remove it")
        return done
    training = {
        "save_every_steps": max(updates // 4, 1), "validate_every_saves": 1, "keep_checkpoints": 1, "average_last": 1,
        "best_metric": "loss", "validation_bleu_pairs": 0, "patience": 0,
    }  # fmt: skip
    logs.notice(f"row {row}: {' '.join(settings) or 'as it is'}")
    all_settings = [*settings, *(f"training.{name}={value}" for name, value in training.items())]
    refuse_another_run(out / row, load_recipe(scale, all_settings))
    trained = run_train(TrainOptions(recipe=scale, overrides=all_settings, data=prepared.folder, out=out / row))
    hypotheses = out / row / "valid.hyp"
    langs = f"{prepared.src_lang}-{prepared.tgt_lang}"
    run_translate(
        TranslateOptions(
            engine=EngineOptions(models=(list_checkpoints(out / row)[-1],)),
            text=TextOptions(source=str(prepared.folder / f"valid.{prepared.src_lang}")),
            output=OutputOptions(path=hypotheses),
        )
    )
    references = [prepared.folder / f"valid.{prepared.tgt_lang}"]
    bleu = run_score(ScoreOptions(references=references, hypotheses=[str(hypotheses)], langs=langs))
    last = [each for each in read_metrics(out / row / "metrics.jsonl") if each["event"] == "validation"][-1]
    score, cost = bleu.systems[0].scores[0].score, (trained.parameters, trained.train_seconds)
    result = RowResult(settings, prepared.sha256, last["perplexity"], score, *cost)
    write_whole(path, json.dumps(asdict(result), indent=2) + "\n")
    return result


def refuse_another_run(run: Path, recipe: Recipe) -> None:
    """Refuse to go on with a run that was begun otherwise: `train` would apply some changes, and the row be of neither.

    Raises:
        UsageError: there is such a run.
    """
    if (run / "recipe.yaml").is_file():
        for key, (before, after) in changed_settings(load_recipe(str(run / "recipe.yaml")), recipe).items():
            if not key.startswith("data."):
                raise UsageError(
                    f"{run} was begun with {key} {before}, not {after}", "give another --out, or remove it"
                )


def print_sizes() -> None:
    """Print each row's parameters at the paper's size."""
    print(f"{'':<20} {'printed':>8} {'first code':>10} {'37,000 rows':>11}   parameters in millions")
    for row, (_, _, printed) in PAPER.items():
        model = row_recipe(row).model
        settings = asdict(model) | {"attention_bias": True}
        ours = count_parameters(build_empty(model, 37_000)) / 1e6
        code = count_parameters(build_empty(ModelConfig(**settings), ROWS_OF_THE_CODE))
        code_and_space = (code + TARGET_SPACE_ROWS * model.d_model) / 1e6
        print(f"{row:<20} {printed or '':>8} {code_and_space:>10.2f} {ours:>11.2f}")


def print_table(scale: str, overrides: Sequence[str], results: dict[str, RowResult]) -> None:
    """Print the rows that are done as the paper does: blank is as in base."""
    head = "".join(f"{name:>8}" for name, _ in COLUMNS)
    print(
        f"{'':<20}{head}{'PPL':>9}{'BLEU':>7}{'params':>9}{'minutes':>9}   | paper:{'PPL':>6}{'BLEU':>6}{'params':>8}"
    )
    base = load_recipe(scale, overrides)
    for row, result in results.items():
        recipe = load_recipe(scale, result.settings)
        values = (get(recipe) if row == "base" or get(recipe) != get(base) else "" for _, get in COLUMNS)
        ppl, bleu, params = PAPER[row]
        ours = (
            f"{result.perplexity:>9.2f}{result.bleu:>7.2f}{result.parameters / 1e6:>8.2f}M{result.seconds / 60:>9.1f}"
        )
        print(
            f"{row:<20}{''.join(f'{value:>8}' for value in values)}{ours}   |       {ppl:>6}{bleu:>6}{params or '':>8}"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the rows, or train them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scale", nargs="?", help="recipe whose size is taken; none: nothing is trained")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="setting of all rows; repeatable"
    )
    parser.add_argument(
        "--updates", type=int, metavar="N", help="of each row (big: three times as many, as it has more)"
    )
    parser.add_argument("--rows", nargs="+", choices=list(PAPER), default=list(PAPER), metavar="ROW")
    parser.add_argument("--data", type=Path, help="prepared data (default: the recipe's corpus)")
    parser.add_argument("--out", type=Path, help="where runs and results are kept (default: runs/table3-SCALE)")
    options = parser.parse_args(arguments)
    if options.scale is None:
        print_sizes()
        return 0
    logs.setup()
    results: dict[str, RowResult] = {}
    code = 0
    try:
        recipe = load_recipe(options.scale, options.set)
        if recipe.data.trees:
            raise AiaynError(f"{options.scale} is about trees, and Table 3 about translation", "name another recipe")
        overrides = [*(short_schedule(recipe, options.updates) if options.updates is not None else []), *options.set]
        small = load_recipe(options.scale, overrides)
        for row in options.rows:  # before anything is trained
            load_recipe(options.scale, [*overrides, *at_size_of(small, row_recipe(row))])
        prepared = PreparedData.load(options.data or find_prepared(recipe.data.corpus))
        out = options.out or Path("runs") / f"table3-{run_name(options.scale)}"
        started = time.monotonic()
        for number, row in enumerate(options.rows, start=1):
            try:
                results[row] = run_row(row, options.scale, overrides, prepared, out)
            except (Terminated, UsageError):
                raise
            except AiaynError as error:  # the other rows may do better
                logs.warning(f"row {row} failed")
                code = say(error)
            logs.notice(f"{number} of {len(options.rows)} rows after {logs.clock(time.monotonic() - started)}")
    except AiaynError as error:
        code = say(error)
    except KeyboardInterrupt:
        logs.notice("interrupted: the same command goes on from here")
        code = 130
    if results:
        print_table(options.scale, overrides, results)
    return code


def say(error: AiaynError) -> int:
    """Print an error; give its exit code."""
    print(f"error: {error.problem}\nhint: {error.hint}", file=sys.stderr)
    return error.exit_code


if __name__ == "__main__":
    raise SystemExit(main())
