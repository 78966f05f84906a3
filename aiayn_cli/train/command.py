"""The command `aiayn train`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar

from typer import Option

from aiayn_cli import logs
from aiayn_cli.command_line import AsJson, HelpCommand, Quiet, Verbose, loading, print_result, start_logs
from aiayn_cli.data.recipe_choice import AUTO
from aiayn_cli.errors import UsageError
from aiayn_cli.recipe_keys import Compile, DecodingConfig, ModelConfig, Precision, TrainingConfig


class TrainCommand(HelpCommand):
    groups: ClassVar = {
        "What to train": "--recipe --data --out --set --seed",
        "Stop and resume": "--resume --max-restarts --verify-resume",
        "Before a long run": "--dry-run --hours",
        "Performance": "--device --gpus --precision --compile",
        "Watching": "--report --tensorboard",
    }
    examples = """
        aiayn train
        aiayn train --recipe base --dry-run
        aiayn train --recipe big --gpus 8 --set training.max_updates=100000
    """
    sections: ClassVar = {"training": TrainingConfig, "model": ModelConfig, "decoding": DecodingConfig}
    positional: ClassVar = "did you mean --recipe VALUE? (--data names prepared data)"
    instead: ClassVar = {
        **dict.fromkeys(("--lr", "--learning-rate"), "write --set training.learning_rate_scale=2 to double the rate"),
        **dict.fromkeys(("--batch-size", "--batch"), "write --set training.batch_tokens=N, in tokens"),
        **dict.fromkeys(("--epochs", "--max-epoch", "--steps", "--max-steps"), "write --set training.max_updates=N"),
        "--warmup": "write --set training.warmup_steps=VALUE",
    }


def train(
    recipe: Annotated[
        str,
        Option(
            help="auto (fits data and device), mini, multi30k, small, medium, base, big, ... or a file.",
            metavar="NAME|FILE",
        ),
    ] = AUTO,
    data: Annotated[
        Path | None, Option(help="Prepared data. Default: that of the recipe's corpus, else the only one.")
    ] = None,
    out: Annotated[
        Path | None, Option(help="Folder of the run. Default: runs/RECIPE, or runs/DATA with --recipe auto.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        Option("--set", help="Change a setting, such as training.max_updates=1000; repeatable.", metavar="KEY=VALUE"),
    ] = None,
    resume: Annotated[
        bool, Option("--resume/--fresh", help="Resume an existing run exactly, or set it aside and start anew.")
    ] = True,
    seed: Annotated[int | None, Option(help="Seed of initial weights, data order and dropout.", min=0)] = None,
    precision: Annotated[
        Precision | None, Option(help="Number format. Default: auto, which is bf16 where it is fast.")
    ] = None,
    compile_layers: Annotated[
        Compile | None, Option("--compile", help="Use torch.compile: auto = on a GPU, graphs = with CUDA graphs.")
    ] = None,
    device: Annotated[str, Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    dry_run: Annotated[
        bool, Option("--dry-run", help="Measure memory, disk and speed with a few updates, then stop.")
    ] = False,
    hours: Annotated[
        float | None, Option(help="Fit a new run's schedule to this time, measuring included.", min=0.001, max=100_000)
    ] = None,
    verify_resume: Annotated[
        bool, Option("--verify-resume", help="Verify with two short runs that a killed run resumes exactly.")
    ] = False,
    gpus: Annotated[
        int | None, Option(help="GPUs of this machine to use; with --device cpu, processes.", min=1)
    ] = None,
    max_restarts: Annotated[
        int, Option(help="With --gpus: restarts from the last checkpoint when a process fails.", min=0)
    ] = 0,
    tensorboard: Annotated[bool, Option("--tensorboard", help="Also write RUN/tensorboard for TensorBoard.")] = False,
    report: Annotated[
        list[Path] | None,
        Option(metavar="RUN", help="Only write a run's report, or a page that compares several runs."),
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Train a model on prepared data. The same command resumes a run that stopped."""
    start_logs(quiet, verbose)
    if report:
        with loading():
            from aiayn_cli.train.report import run_report

        print_result({"report": run_report(report, out)}, as_json)
        return
    with loading():  # here, because it imports torch
        from aiayn_cli.train.options import TrainOptions, settle
        from aiayn_cli.train.session import TrainResult, run_train

    if hours is not None and (dry_run or verify_resume):
        given = "--dry-run" if dry_run else "--verify-resume"
        raise UsageError(f"--hours is for training, but {given} does not train", "remove one of them")
    if dry_run and verify_resume:
        raise UsageError("--dry-run and --verify-resume contradict each other", "remove one of them")
    named = {"seed": seed, "precision": precision, "compile": compile_layers}
    overrides = [*(settings or ()), *(f"training.{key}={value}" for key, value in named.items() if value is not None)]
    options = TrainOptions(
        recipe=recipe, overrides=overrides, data=data, out=out, resume=resume,
        device=device, tensorboard=tensorboard, dry_run=dry_run, hours=hours,
    )  # fmt: skip
    options = settle(options)
    same: dict[str, object] = {"--recipe": options.recipe, "--data": options.data, "--device": device}
    same |= {"--set": overrides, "--dry-run": dry_run, "--tensorboard": tensorboard, "--verbose": verbose}
    result: object
    if verify_resume:  # its runs are new ones in the folder of the run, --fresh or not
        with loading():
            from aiayn_cli.train.preflight import run_verify_resume

        result = run_verify_resume(_as_arguments({**same, "--gpus": gpus}), options.run)
    elif gpus is not None:
        with loading():
            from aiayn_cli.train.launch import launch

        options.load()  # what would fail in every process fails once, here
        same |= {"--hours": hours, "--out": options.out, "--fresh": not resume, "--quiet": quiet, "--json": as_json}
        launch(["train", *_as_arguments(same)], gpus, max_restarts, device)
        return
    else:
        result = run_train(options)
    if logs.is_first():
        print_result(result, as_json)
        if isinstance(result, TrainResult):  # also of --dry-run, if the run is finished
            logs.notice(f"report: {options.run / 'report.html'}")
            logs.next_step("aiayn average", options.run)
        else:
            again = _as_arguments({"--recipe": recipe, "--data": data, "--out": out, "--set": settings})
            logs.next_step("aiayn train", *map(Path, again))


def _as_arguments(options: Mapping[str, object]) -> list[str]:
    """The command line with these options: True is a flag, a list repeats its option, None and False are left out."""
    words = []
    for name, value in options.items():
        if value is True:
            words.append(name)
        elif value is not None and value is not False:
            words += [word for each in (value if isinstance(value, list) else [value]) for word in (name, str(each))]
    return words
