"""The command `aiayn train`."""

from pathlib import Path
from typing import Annotated

import typer

from aiayn_cli import logs
from aiayn_cli.commands.options import JsonOption, QuietOption, VerboseOption, print_result, start_logs
from aiayn_cli.config import Compile, Precision


def train(
    recipe: Annotated[
        str, typer.Option(help="Recipe: base, big, small, tiny, or another name or file.", metavar="NAME|FILE")
    ] = "base",
    data: Annotated[
        Path | None, typer.Option(help="Folder of prepared data; default: prepared/CORPUS of the recipe.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run; default: runs/RECIPE.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Change a setting, such as training.max_updates=1000; repeatable.", metavar="KEY=VALUE"
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume/--fresh", help="Go on with an existing run exactly, or set it aside and start anew."),
    ] = True,
    seed: Annotated[int | None, typer.Option(help="Seed of weights, order and dropout.", min=0)] = None,
    precision: Annotated[
        Precision | None, typer.Option(help="Type of the computation; default: auto, bf16 where it is fast.")
    ] = None,
    compile_layers: Annotated[
        Compile | None, typer.Option("--compile", help="Compile the layers with torch.compile; auto = on a GPU.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    gpus: Annotated[
        int | None, typer.Option(help="GPUs of this machine to train on; with --device cpu, processes.", min=1)
    ] = None,
    max_restarts: Annotated[
        int,
        typer.Option(help="With --gpus: times that all start again from the last checkpoint when one fails.", min=0),
    ] = 0,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write what TensorBoard draws, into RUN/tensorboard.")
    ] = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train a model on prepared data; run again, it goes on where it stopped."""
    from aiayn_cli.stages.train import run_train  # here, because it imports torch

    start_logs(quiet, verbose)
    named = {"seed": seed, "precision": precision, "compile": compile_layers}
    overrides = [*(settings or ()), *(f"training.{key}={value}" for key, value in named.items() if value is not None)]
    if gpus is not None:
        options = {"--recipe": recipe, "--data": data, "--out": out, "--device": device}
        flags = {
            "--fresh": not resume,
            "--tensorboard": tensorboard,
            "--quiet": quiet,
            "--verbose": verbose,
            "--json": as_json,
        }
        arguments = [
            "train",
            *(text for name, value in options.items() if value is not None for text in (name, str(value))),
            *(name for name, wanted in flags.items() if wanted),
            *(text for override in overrides for text in ("--set", override)),
        ]
        _launch(arguments, recipe, overrides, data, device, gpus, max_restarts)
        return
    result = run_train(
        recipe, overrides, data=data, out=out, resume=resume, device_name=device, tensorboard=tensorboard
    )
    if logs.is_first():
        print_result(result, as_json)


def _launch(
    arguments: list[str],
    recipe: str,
    overrides: list[str],
    data: Path | None,
    device: str,
    gpus: int,
    max_restarts: int,
) -> None:
    from aiayn_cli.stages.launch import run_launch  # here, because it imports torch

    run_launch(arguments, recipe, overrides, data=data, device_name=device, processes=gpus, max_restarts=max_restarts)
