"""Members of archives are read as streams, wherever they lie inside; what is no file, or damaged, is refused."""

import bz2
import gzip
import lzma
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from archives import TAR_MODES, pack

from aiayn_cli.corpora.archive_members import open_member
from aiayn_cli.errors import DataError

FILES = {
    "training/a.de-en.de": b"eins\nzwei\n" * 5_000,
    "training/a.de-en.en": b"one\ntwo\n" * 7_000,
    "training/a.fr-en.fr": bytes(range(256)) * 300,
}


def make_archive(folder: Path, suffix: str, files: Mapping[str, bytes]) -> Path:
    path = folder / f"archive{suffix}"
    path.write_bytes(pack(path.name, {"training/": b"", **files}))
    return path


SUFFIXES = [".zip", *TAR_MODES]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_each_member_of_each_kind_of_archive_is_read_whole(tmp_path: Path, suffix: str) -> None:
    archive = make_archive(tmp_path, suffix, FILES)
    for name, content in FILES.items():
        with open_member(archive, name) as stream:
            assert stream.read() == content


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_two_members_are_read_side_by_side(tmp_path: Path, suffix: str) -> None:
    archive = make_archive(tmp_path, suffix, FILES)
    with open_member(archive, "training/a.de-en.en") as en, open_member(archive, "training/a.de-en.de") as de:
        for _ in range(5_000):
            assert (en.readline(), de.readline()) in ((b"one\n", b"eins\n"), (b"two\n", b"zwei\n"))


@pytest.mark.parametrize(
    ("suffix", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)]
)
def test_a_member_that_is_compressed_once_more_is_opened_too(
    tmp_path: Path, suffix: str, compress: Callable[[bytes], bytes]
) -> None:
    archive = make_archive(
        tmp_path, ".tar", {f"giga.en{suffix}": compress(b"one\n" * 999), f"giga.fr{suffix}": compress(b"")}
    )
    with open_member(archive, f"giga.en{suffix}") as stream:
        assert stream.read() == b"one\n" * 999


@pytest.mark.parametrize("suffix", [".zip", ".tgz", ".tar"])
@pytest.mark.parametrize("asked", ["a.de-en.de", "./training/a.de-en.de", "other/folder/a.de-en.de"])
def test_a_member_in_another_folder_is_found_by_its_name(tmp_path: Path, suffix: str, asked: str) -> None:
    archive = make_archive(tmp_path, suffix, FILES)
    with open_member(archive, asked) as stream:
        assert stream.read() == FILES["training/a.de-en.de"]


@pytest.mark.parametrize("suffix", [".zip", ".tgz", ".tar"])
def test_the_path_asked_for_goes_before_the_same_name_elsewhere(tmp_path: Path, suffix: str) -> None:
    archive = make_archive(tmp_path, suffix, {"old/a.en": b"old", "new/a.en": b"new", "a.en": b"top"})
    for name, content in (("new/a.en", b"new"), ("a.en", b"top")):
        with open_member(archive, name) as stream:
            assert stream.read() == content
    with pytest.raises(DataError, match=r"has 3 files named other/a\.en: old/a\.en, new/a\.en, a\.en"):
        open_member(archive, "other/a.en")


@pytest.mark.parametrize("suffix", [".zip", ".tgz", ".tar"])
def test_a_member_that_is_missing_is_named(tmp_path: Path, suffix: str) -> None:
    archive = make_archive(tmp_path, suffix, FILES)
    with pytest.raises(DataError, match=r"archive\S+ has no training/b\.en among its 3 files"):
        open_member(archive, "training/b.en")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, "zip"])
def test_a_link_is_refused(tmp_path: Path, kind: bytes | str) -> None:
    path = tmp_path / f"archive.{'zip' if kind == 'zip' else 'tgz'}"
    if kind == "zip":
        entry = zipfile.ZipInfo("a.en")
        entry.external_attr = 0o120777 << 16
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(entry, "/etc/passwd")
    else:
        with tarfile.open(path, "w:gz") as tar:
            info = tarfile.TarInfo("a.en")
            info.type, info.linkname = kind, "/etc/passwd"
            tar.addfile(info)
    with pytest.raises(DataError, match=r"a\.en is a link, not a file"):
        open_member(path, "a.en")


@pytest.mark.parametrize("suffix", [".zip", ".tgz"])
def test_nothing_is_written_anywhere_whatever_the_members_are_called(tmp_path: Path, suffix: str) -> None:
    folder = tmp_path / "in" / "side"
    folder.mkdir(parents=True)
    archive = make_archive(folder, suffix, {"../../outside.en": b"out", "/absolute.en": b"abs"})
    for name, content in (("../../outside.en", b"out"), ("absolute.en", b"abs")):
        with open_member(archive, name) as stream:
            assert stream.read() == content
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [archive]


@pytest.mark.parametrize("suffix", [".tgz", ".tar", ".tar.xz"])
def test_a_tar_that_is_cut_short_is_never_taken_for_whole(tmp_path: Path, suffix: str) -> None:
    archive = make_archive(tmp_path, suffix, {"a.en": bytes(i * i % 251 for i in range(200_000))})
    archive.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    with pytest.raises((OSError, EOFError)), open_member(archive, "a.en") as stream:
        stream.read()


def test_a_byte_of_a_zip_that_flipped_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "archive.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("a.en", b"one\n" * 1_000)
    content = bytearray(path.read_bytes())
    content[2_000] ^= 1
    path.write_bytes(content)
    with pytest.raises(OSError, match="CRC"), open_member(path, "a.en") as stream:
        stream.read()


@pytest.mark.parametrize("suffix", [".zip", ".tgz", ".tar"])
def test_what_is_no_archive_is_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"archive{suffix}"
    for content in (b"", b"<html>404</html>" * 99):
        path.write_bytes(content)
        with pytest.raises(DataError) as caught:
            open_member(path, "a.en")
        assert str(path) in caught.value.problem
