import os
import sys
from pathlib import Path

import pytest
from commands import feed_stdin

from aiayn_cli.app import main
from aiayn_cli.errors import AiaynError
from aiayn_cli.files import open_unfinished, read_place, unfinished_path, write_output
from aiayn_cli.translate.output_files import open_writer

FULL = Path("/dev/full")  # Linux's disk that is always full
needs_full = pytest.mark.skipif(not FULL.is_char_device(), reason="there is no /dev/full")


def test_devices_and_named_pipes_are_written_to_and_nothing_takes_their_place(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null"), Path("/dev/stdout"), Path("/proc/self/fd/1")):
        assert unfinished_path(path) == path
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_output(tmp_path / "pipe", "\u00e4", "")
    assert os.read(reader, 9) == "\u00e4".encode()
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()


def test_a_link_stays_one_and_the_file_that_it_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("old")
    (tmp_path / "link").symlink_to("folder/file")
    write_output(tmp_path / "link", "new", "")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder" / "file").read_text() == "new"
    with open_writer(tmp_path / "link") as write:
        write(["newer"])
        assert (tmp_path / "link").read_text() == "new"
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "link").read_text() == "newer\n"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder", "link"]


def test_two_at_once_never_write_one_file(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with open_writer(out) as write:
        write(["first"])
        with pytest.raises(AiaynError, match=r"cannot write .*out: another process is writing .*out\.unfinished"):
            open_unfinished(out)
        with open_writer(tmp_path / "other") as write_other:
            write_other(["other"])
        write(["second"])
    assert out.read_text() == "first\nsecond\n"
    with open_writer(out) as write:
        write(["third"])
    assert out.read_text() == "third\n"


def test_what_an_interrupted_run_left_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "out.unfinished").write_text("a longer text than the new one\n")
    with open_writer(tmp_path / "out") as write:
        write(["new"])
    assert (tmp_path / "out").read_text() == "new\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_file_that_is_finished_before_it_is_locked_is_not_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, unfinished = tmp_path / "out", tmp_path / "out.unfinished"
    unfinished.write_text("whole\n")

    def finish_first(file: int, operation: int) -> None:
        monkeypatch.undo()
        unfinished.replace(out)

    monkeypatch.setattr("fcntl.flock", finish_first)
    with open_unfinished(out) as file:
        file.write(b"new\n")
    assert out.read_text() == "whole\n"
    assert unfinished.read_text() == "new\n"


@needs_full
def test_a_disk_that_is_full_is_named_by_the_file_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(output: Path | None) -> None:
        with open_writer(output) as write:
            write(["x"])

    with pytest.raises(AiaynError, match="cannot write /dev/full: No space left on device"):
        fill(FULL)
    with pytest.raises(AiaynError, match="cannot write /dev/full: No space left on device"):
        write_output(FULL, "x", "")
    assert FULL.is_char_device()
    with monkeypatch.context() as patch, FULL.open("w") as stdout:
        patch.setattr("sys.stdout", stdout)
        with pytest.raises(AiaynError, match="cannot write stdout: No space left on device"):
            fill(None)
        patch.undo()
        with pytest.raises(OSError, match="No space left"):
            stdout.close()


def test_what_is_read_cannot_be_written(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in").write_text("hund\n")
    Path("link").symlink_to("in")
    for option in ("-o", "--report", "--attention"):
        feed_stdin(monkeypatch, b"hund\n")
        assert main(["translate", "-m", str(model), "-i", "in", option, "link"]) == 2
        assert "link is an input and cannot also be an output" in capsys.readouterr().err
    assert Path("in").read_text() == "hund\n"
    assert read_place(Path("new"), ["in", "-", None]) is None
    assert read_place(Path("/dev/null"), ["/dev/null"]) is None


def test_what_is_read_is_no_place_for_an_output_that_is_not_whole_yet(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    left = Path("out.unfinished")  # of a run that was interrupted
    left.write_text("hund\n")
    with left.open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        for arguments in (
            ["-i", str(left), "-o", "out"],
            ["-o", "out"],
            ["-i", "new", "--prefix", str(left), "--report", "out"],
            ["-i", "new", "--score-against", str(left), "-o", "out"],
        ):
            assert main(["translate", "-m", str(model), *arguments]) == 2
            err = capsys.readouterr().err
            assert (
                "out.unfinished is an input and cannot also be an output (out is written there until it is complete)"
                in err
            )
    for first, second in (("out", str(left)), (str(left), "out")):
        assert main(["translate", "-m", str(model), "-i", "new", "-o", first, "--report", second]) == 2
        assert f"{second} and {first} would be written to the same file" in capsys.readouterr().err
    assert main(["score", str(left), "--hyp", str(left), "--html", "out"]) == 2
    assert "--html out: its temporary file " in capsys.readouterr().err
    assert left.read_text() == "hund\n"


@pytest.mark.parametrize("option", ["-o", "--report", "--attention"])
def test_what_cannot_be_written_is_refused_before_a_model_is_loaded(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("file").touch()
    Path("taken.unfinished").mkdir()
    Path("dangling").symlink_to("nowhere/out")
    Path("circle").symlink_to("circle")
    monkeypatch.setattr(os, "access", lambda path, _: Path(path).name != "closed")  # root may write everywhere
    Path("closed").mkdir()
    for name, why in {
        ".": "it is a folder",
        "folder": "it is a folder",
        "folder/..": "it is a folder",
        "nowhere/out": "there is no folder nowhere",
        "nowhere/..": "there is no folder nowhere",
        "dangling": f"there is no folder {tmp_path / 'nowhere'}",
        "file/out": "file is not a folder",
        "taken": "the temporary name",
        "closed/out": "no permission",
        "n" * 250: "File name too long",
        "circle": "",
    }.items():
        if name == "circle" and sys.version_info >= (3, 13):  # takes it for a file that is not there yet
            continue
        feed_stdin(monkeypatch, b"hund\n")
        assert main(["translate", "-m", "no model", option, name]) == 1
        assert f"error: cannot write {name}: " in (err := capsys.readouterr().err)
        assert why in err
