"""The command line as a whole: messages, exit codes, help, versions, completion, and how a result is printed."""

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

import aiayn_cli.__main__
import aiayn_cli.app
from aiayn_cli import __version__, logs
from aiayn_cli.app import main
from aiayn_cli.command_line import AsJson, Quiet, Verbose, print_result, start_logs
from aiayn_cli.errors import AiaynError, CheckpointError, ConfigError, DataError, Terminated, UsageError, did_you_mean

AIAYN = [sys.executable, "-m", "aiayn_cli"]


@pytest.fixture
def command() -> Iterator[Callable[..., None]]:
    """Add a command `probe` that raises or prints what the test wants; taken away afterwards."""
    registered = aiayn_cli.app.app.registered_commands
    before = list(registered)

    def add(effect: BaseException | Callable[[], None]) -> None:
        def probe(beam: Annotated[int, typer.Option(help="Hypotheses.")] = 4) -> None:
            if isinstance(effect, BaseException):
                raise effect
            effect()

        aiayn_cli.app.app.command()(probe)

    yield add
    registered[:] = before


@pytest.mark.parametrize(
    ("effect", "code", "message"),
    [
        *((kind("a.en:3: bad byte", "mend it"), code, "error: a.en:3: bad byte\nhint: mend it\n")
          for kind, code in {AiaynError: 1, DataError: 1, CheckpointError: 1, UsageError: 2, Terminated: 143}.items()),
        (ConfigError("d_ff is 0", "use 1", key="model.d_ff"), 1, "error: d_ff is 0\nhint: use 1\n"),
        (AiaynError("no checkpoint in runs/x"), 1, "error: no checkpoint in runs/x\n"),
        (KeyboardInterrupt(), 130, "stopped by Ctrl-C\n"),
        (KeyboardInterrupt("stopped by Ctrl-C at update 3"), 130, "stopped by Ctrl-C at update 3\n"),
        (lambda: signal.raise_signal(signal.SIGINT), 130, "stopped by Ctrl-C\n"),
        (lambda: signal.raise_signal(signal.SIGTERM), 143, "error: stopped by SIGTERM\n"),
        (BrokenPipeError(32, "Broken pipe"), 141, ""),  # the reader went away
    ],
)  # fmt: skip
def test_what_ends_a_command_becomes_a_message_and_an_exit_code(
    command: Any, capsys: pytest.CaptureFixture[str], effect: Any, code: int, message: str
) -> None:
    command(effect)
    assert main(["probe"]) == code
    assert capsys.readouterr() == ("", message)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (PermissionError(errno.EACCES, "Permission denied", "runs/x"), "runs/x: Permission denied"),
        (OSError(errno.EROFS, "Read-only file system", "runs"), "runs: Read-only file system"),
        (OSError(errno.ENAMETOOLONG, "File name too long", "x"), "x: File name too long"),
    ],
)
def test_what_the_machine_refuses_is_an_error_with_a_place_and_a_hint(
    command: Any, capsys: pytest.CaptureFixture[str], error: OSError, problem: str
) -> None:
    command(error)
    assert main(["probe"]) == 1
    first, second, end = capsys.readouterr().err.split("\n")
    assert first == f"error: {problem}"
    assert second.startswith("hint: ")
    assert end == ""


def test_our_own_bugs_keep_their_traceback(command: Any) -> None:
    command(FileNotFoundError(errno.ENOENT, "ours"))
    with pytest.raises(FileNotFoundError, match="ours"):
        main(["probe"])


def test_a_file_that_ends_early_is_no_ctrl_d(command: Any) -> None:
    command(EOFError("Compressed file ended"))
    with pytest.raises(EOFError, match="Compressed file ended"):
        main(["probe"])


@pytest.mark.parametrize(
    ("handler", "code"), [(signal.default_int_handler, 130), (signal.SIG_IGN, 0)]
)  # as under nohup
def test_an_interrupt_outside_of_every_command_ends_in_one_line_where_it_is_not_ignored(
    handler: Any, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(aiayn_cli.app, "main", lambda: signal.raise_signal(signal.SIGINT) or 0)
    before = signal.signal(signal.SIGINT, handler)
    try:
        assert aiayn_cli.__main__.main() == code
        assert capsys.readouterr().err == ("stopped by Ctrl-C\n" if code else "")
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("words", [["--help"], ["--version"]])
def test_a_reader_that_goes_away_at_once_gets_no_message(words: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([*AIAYN, *words], stdout=write, stderr=subprocess.PIPE, check=False, timeout=60)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize(
    ("words", "problem", "hint"),
    [
        (["prob"], "no such command 'prob'. Did you mean 'probe'?", "see `aiayn --help`"),
        (["xyz"], "no such command 'xyz'", "see `aiayn --help`"),
        (["--versoin"], "no such option: --versoin", "did you mean --version?"),
        (["probe", "--baem", "3"], "no such option: --baem", "did you mean --beam?"),
        (["probe", "--xyz", "3"], "no such option: --xyz", "see `aiayn probe --help`"),
        (["probe", "extra"], "unexpected argument: extra", "see `aiayn probe --help`"),
        (["--version=3"], "option '--version' does not take a value", "see `aiayn --help`"),
    ],
)
def test_wrong_usage_exits_2_with_a_problem_and_a_hint(
    command: Any, capsys: pytest.CaptureFixture[str], words: list[str], problem: str, hint: str
) -> None:
    command(lambda: None)
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    first, second, end = err.split("\n")
    assert first.lower().startswith(f"error: {problem}".lower())
    assert "--baem" not in words or "--beam" in err  # the nearest one
    assert (second, end) == (f"hint: {hint}", "")


def test_aiayn_alone_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    alone = capsys.readouterr()
    assert main(["--help"]) == 0
    assert capsys.readouterr() == alone
    assert alone.out.startswith("Usage: aiayn [OPTIONS] COMMAND [ARGS]...\n")
    assert alone.err == ""
    assert "..." not in alone.out.partition("Commands:")[2], "a command's short help is cut off on 80 columns"


def test_version_names_what_matters_for_a_result() -> None:
    done = subprocess.run([*AIAYN, "--version"], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split("\n") == [
        f"aiayn {__version__} (Python {sys.version.split()[0]})",
        f"torch {version('torch')}",
        f"sentencepiece {version('sentencepiece')}",
        f"sacrebleu {version('sacrebleu')}",
        "",
    ]


def test_a_closed_stream_is_no_bug_of_ours(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("eins\n")

    def score(streams: str) -> subprocess.CompletedProcess[bytes]:
        words = ["sh", "-c", f'exec "$@" {streams}', "sh", *AIAYN, "score", str(tmp_path / "a")]
        return subprocess.run(words, capture_output=True, check=False, timeout=60)

    closed = score("--hyp - >&- <" + str(tmp_path / "a"))
    assert closed.returncode == 1
    assert closed.stderr.startswith(b"error: stdout is closed")
    assert closed.stderr.count(b"\n") == 2
    empty = score("<&-")
    assert empty.returncode == 1
    assert empty.stderr.startswith(b"error: stdin is empty")
    silent = score("2>&- <" + str(tmp_path / "a"))
    assert (silent.returncode, silent.stderr) == (0, b"")


def test_text_is_utf_8_whatever_the_locale() -> None:
    program = (
        "import sys; from aiayn_cli import app, logs\n"
        "@app.app.command()\n"
        "def probe(): print('größer → \\udcff'); logs.notice('größer → \\udcff')\n"
        "sys.exit(app.main(['probe']))"
    )
    env = {**os.environ, "PYTHONIOENCODING": "latin-1", "LC_ALL": "C"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, env=env, check=True, timeout=60)
    assert done.stdout == "größer → ".encode() + b"\xff\n"  # a file name that is no UTF-8 keeps its bytes
    assert done.stderr == "größer → \\udcff\n".encode()


def test_every_command_and_option_says_what_it_does() -> None:
    group: Any = typer.main.get_command(aiayn_cli.app.app)
    assert list(group.commands) == ["prepare", "train", "average", "translate", "export", "score"]
    for name, sub in group.commands.items():
        assert sub.help, f"{name} has no help"
        for parameter in sub.params:
            assert parameter.help, f"{name}: {parameter.name} has no help"
            assert parameter.help.endswith("."), f"{name}: the help of {parameter.name} is no sentence"
        assert {"--quiet", "--verbose", "--json"} <= {option for parameter in sub.params for option in parameter.opts}


def test_completion_installs_itself_and_completes(tmp_path: Path) -> None:
    env = {**os.environ, "HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    subprocess.run([*AIAYN, "--install-completion", "bash"], env=env, capture_output=True, check=True, timeout=60)
    assert "aiayn" in (tmp_path / ".bashrc").read_text()
    asked = {**env, "_AIAYN_COMPLETE": "complete_bash", "COMP_WORDS": "aiayn tra", "COMP_CWORD": "1"}
    done = subprocess.run(AIAYN, env=asked, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["train", "translate"]


# ---- shared by the commands


@pytest.mark.parametrize(
    ("flags", "level"), [([], 0), (["--quiet"], -1), (["-q"], -1), (["--verbose"], 1), (["-v"], 1)]
)
def test_quiet_and_verbose_decide_how_much_is_said(
    monkeypatch: pytest.MonkeyPatch, command: Any, flags: list[str], level: int
) -> None:
    chosen = []
    monkeypatch.setattr(logs, "setup", lambda verbosity: chosen.append(verbosity))

    def speak(quiet: Quiet = False, verbose: Verbose = False, as_json: AsJson = False) -> None:
        start_logs(quiet, verbose)

    command(lambda: None)
    aiayn_cli.app.app.command()(speak)
    assert main(["speak", *flags]) == 0
    assert chosen == [level]


def test_quiet_and_verbose_together_are_wrong_usage() -> None:
    with pytest.raises(UsageError, match="contradict"):
        start_logs(quiet=True, verbose=True)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("bsae", "did you mean base?"),
        ("BASE", "did you mean base?"),
        ("xyzzy", "available: base, big"),
    ],
)
def test_an_unknown_name_gets_the_nearest_known_one(name: str, hint: str) -> None:
    assert did_you_mean(name, ["base", "big"]) == hint
    assert did_you_mean(name, []) == ""


# ---- how a result is printed: as text for people, as one JSON object for programs


@dataclass(frozen=True)
class Split:
    pairs: int
    dropped: dict[str, int]


@dataclass(frozen=True)
class Result:
    folder: Path
    train: Split
    best_bleu: float
    lost: float
    names: tuple[str, ...]
    resumed: bool
    note: str | None = None


@dataclass(frozen=True)
class Score:
    score: float

    def __str__(self) -> str:
        return f"BLEU = {self.score:.1f}"


RESULT = Result(
    Path("prepared/größe"), Split(29_000, {"too_long": 3, "empty": 0}), 39.123, float("nan"), ("a", "b"), True
)


def test_a_result_as_json_is_one_object_with_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(RESULT, as_json=True)
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert "größe" in out
    assert json.loads(out) == {
        "folder": "prepared/größe",
        "train": {"pairs": 29_000, "dropped": {"too_long": 3, "empty": 0}},
        "best_bleu": 39.123,
        "lost": None,  # JSON has no NaN
        "names": ["a", "b"],
        "resumed": True,
        "note": None,
    }


def test_a_mapping_as_text_has_a_line_for_each_name(capsys: pytest.CaptureFixture[str]) -> None:
    print_result({"report": Path("runs/größe.html")}, as_json=False)
    assert capsys.readouterr().out == "report: runs/größe.html\n"


def test_a_result_that_prints_itself_does(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(Score(37.25), as_json=False)
    print_result(Score(37.25), as_json=True)
    assert capsys.readouterr().out == 'BLEU = 37.2\n{"score": 37.25}\n'


def test_a_result_of_another_kind_is_our_bug() -> None:
    with pytest.raises(TypeError, match="set"):
        print_result({"names": {1, 2}}, as_json=True)
