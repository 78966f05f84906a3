"""Test sets come through our downloader, and give the lines that sacreBLEU itself makes of the same archives."""

import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from loopback import Loopback, serve
from sacrebleu.dataset import DATASETS
from sacrebleu.dataset.fake_sgml import FakeSGMLDataset, WMTAdditionDataset
from sacrebleu.dataset.iwslt_xml import IWSLTXMLDataset
from sacrebleu.dataset.plain_text import PlainTextDataset
from sacrebleu.dataset.tsv import TSVDataset
from sacrebleu.dataset.wmt_xml import WMTXMLDataset

from aiayn_cli.app import main
from aiayn_cli.corpora.download import Downloads
from aiayn_cli.corpora.http_fetch import Network
from aiayn_cli.corpora.test_sets import load_test_set
from aiayn_cli.errors import DataError, UsageError

FAST = Network(connect_seconds=5, read_seconds=5, attempts=2, pause_seconds=0)
SOURCE = ["The dog runs.", "She said: stop &amp; go.", "Two  blanks\u00a0and a hard one.", "A & B"]
REFERENCE = ["Der Hund läuft.", "Sie sagte: halt &amp; weiter.", "Zwei  Blanks\u00a0und ein hartes.", "A & B"]
SECOND = ["Ein Hund rennt.", "Stopp und weiter, sagte sie.", "", "A und B"]


def sgml(lines: list[str], kind: str, lang: str) -> bytes:
    segments = "".join(f'<seg id="{number}"> {line} </seg>\n' for number, line in enumerate(lines, start=1))
    text = f'<{kind} setid="x" srclang="any">\n<doc docid="d" genre="news" origlang="{lang}">\n<p>\n{segments}</p>\n'
    return f"{text}</doc>\n</{kind}>\n".encode()


def plain(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def xml() -> bytes:
    def side(tag: str, lines: list[str], more: str = "") -> str:
        segments = "".join(f'<seg id="{n}">{line.replace(" & ", " &amp; ")}</seg>' for n, line in enumerate(lines, 1))
        return f'<{tag} lang="xx"{more}><p>{segments}</p></{tag}>'

    references = side("ref", REFERENCE, ' translator="A"') + side("ref", SECOND, ' translator="B"')
    text = f'<doc id="d" origlang="en">{side("src", SOURCE)}{references}</doc>'
    whole = f'<dataset id="x"><collection id="c">{text}</collection></dataset>'
    return f'<?xml version="1.0" encoding="utf-8"?>\n{whole}'.encode()


def tgz(members: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return content.getvalue()


def zipped(members: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return content.getvalue()


TSV = "".join(f"{n}\t{s}\t{r}\n" for n, (s, r) in enumerate(zip(SOURCE, REFERENCE, strict=True))).encode()
TALKS = {"en-de/x.en.xml": sgml(SOURCE, "srcset", "en"), "en-de/x.de.xml": sgml(REFERENCE, "refset", "de")}
SGM = {"test/x-src.en.sgm": sgml(SOURCE, "srcset", "en"), "test/x-ref.de.sgm": sgml(REFERENCE, "refset", "de")}

# By name: the class, the downloads, the entry of en-de, and what else the class takes.
SETS: dict[str, tuple[type, dict[str, bytes], Any, dict[str, Any]]] = {
    "mine/sgml": (FakeSGMLDataset, {"test.tgz": tgz(SGM)}, list(SGM), {}),
    "mine/two": (
        FakeSGMLDataset,
        {"test.tgz": tgz({**SGM, "test/x-ref2.de.sgm": sgml(SECOND, "refset", "de")})},
        [*SGM, "test/x-ref2.de.sgm"],
        {},
    ),
    "mine/talks": (
        IWSLTXMLDataset,
        {
            "de-en.tgz": tgz({"de-en/other.xml": b""}),
            "en-de.tgz": tgz(TALKS),
        },
        list(TALKS),
        {},
    ),
    "mine/plain": (
        PlainTextDataset,
        {"all.zip": zipped({"all/x.en": plain(SOURCE)}), "x.de.gz": gzip.compress(plain(REFERENCE))},
        ["all/x.en", "mine_plain.x.de.gz"],
        {},
    ),
    "mine/tsv": (TSVDataset, {"x.tar.gz": tgz({"x/all.tsv": TSV})}, ["1:x/all.tsv", "2:x/all.tsv"], {}),
    "mine/more": (
        WMTAdditionDataset,
        {"test.tgz": tgz(SGM), "x-ar.ref": plain(SECOND)},
        ["test/x-src.en.sgm", "mine_more.x-ar.ref"],
        {},
    ),
    "mine/xml": (WMTXMLDataset, {"v1.tar.gz": tgz({"v1/x.xml": xml()})}, ["v1/x.xml"], {"refs": ["B"]}),
}  # fmt: skip


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    """A server that has every set's archives, and sacreBLEU's table with the sets."""
    with serve() as loopback:
        for name, (kind, files, entry, more) in SETS.items():
            urls = [loopback.put(f"/{name}/{file}", content) for file, content in files.items()]
            md5 = [hashlib.md5(content).hexdigest() for content in files.values()]
            dataset = kind(name, data=urls, md5=md5, description="", citation="", langpairs={"en-de": entry}, **more)
            monkeypatch.setitem(DATASETS, name, dataset)
        yield loopback


def lines_by_sacrebleu(name: str, folder: Path) -> dict[str, list[str]]:
    """Let sacreBLEU's own code unpack and read a set, from a folder where its archives are already."""
    dataset: Any = DATASETS[name]
    dataset._outdir, dataset._rawdir = str(folder), str(folder / "raw")
    (folder / "raw").mkdir(parents=True)
    for url, content in zip(dataset.data, SETS[name][1].values(), strict=True):
        (folder / "raw" / dataset._get_tarball_filename(url)).write_bytes(content)
        if url.endswith((".tgz", ".tar.gz")):
            with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                archive.extractall(folder / "raw", filter="data")
        elif url.endswith(".zip"):
            zipfile.ZipFile(io.BytesIO(content)).extractall(folder / "raw")
    dataset.maybe_download = lambda: None
    fields = dict(zip(dataset.fieldnames("en-de"), dataset.get_files("en-de"), strict=True))
    references = {path: field for field, path in fields.items() if path in dataset.get_reference_files("en-de")}
    wanted = {"src": fields["src"], **{field: path for path, field in references.items()}}
    return {
        field: [line.rstrip() for line in Path(path).read_bytes().decode().split("\n")[:-1]]
        for field, path in wanted.items()
    }


@pytest.mark.parametrize("name", SETS)
def test_source_and_references_are_what_sacrebleu_makes_of_the_archives(
    server: Loopback, tmp_path: Path, name: str
) -> None:
    found = load_test_set(name, "en-de", Downloads(tmp_path / "downloads", network=FAST))
    expected = lines_by_sacrebleu(name, tmp_path / "sacrebleu")
    assert found.source == expected.pop("src")
    assert found.references == expected
    assert len(found.source) == 4


def test_only_the_archives_of_the_languages_are_fetched_and_once(server: Loopback, tmp_path: Path) -> None:
    for _ in range(2):
        load_test_set("mine/talks", "en-de", Downloads(tmp_path, network=FAST))
    assert [path for path, _ in server.asked] == ["/mine/talks/en-de.tgz"]


def test_an_archive_that_is_another_is_refused(server: Loopback, tmp_path: Path) -> None:
    server.put("/mine/sgml/test.tgz", tgz({**SGM, "test/x-ref.de.sgm": sgml(SECOND, "refset", "de")}))
    with pytest.raises(DataError, match="MD5"):
        load_test_set("mine/sgml", "en-de", Downloads(tmp_path, network=FAST))
    assert not list(tmp_path.glob("*.tgz"))


def test_archives_from_a_folder_need_no_network(server: Loopback, tmp_path: Path) -> None:
    (tmp_path / "test.tgz").write_bytes(SETS["mine/sgml"][1]["test.tgz"])
    found = load_test_set("mine/sgml", "en-de", Downloads(tmp_path / "none", tmp_path, network=FAST))
    assert len(found.source) == 4
    assert server.asked == []


def test_what_is_not_there_is_answered_with_what_is(server: Loopback, tmp_path: Path) -> None:
    downloads = Downloads(tmp_path, network=FAST)
    with pytest.raises(DataError, match="unknown test set 'wmt14/fool'") as error:
        load_test_set("wmt14/fool", "en-de", downloads)
    assert error.value.hint == "did you mean wmt14/full?"
    for langs, problem in (
        ("de-en", "the test set mine/sgml has no pair 'de-en'"),
        (None, "needs --langs"),
    ):
        with pytest.raises(UsageError, match=problem) as usage:
            load_test_set("mine/sgml", langs, downloads)
        assert usage.value.hint == "add --langs with one of en-de"


def test_sides_of_different_lengths_are_refused(
    server: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = tgz({**SGM, "test/x-ref.de.sgm": sgml(REFERENCE[:3], "refset", "de")})
    url = server.put("/short.tgz", content)
    short = FakeSGMLDataset("short", data=[url], md5=[hashlib.md5(content).hexdigest()], langpairs={"en-de": list(SGM)})
    monkeypatch.setitem(DATASETS, "short", short)
    with pytest.raises(DataError, match="has 4 source lines, but 3 of ref"):
        load_test_set("short", "en-de", Downloads(tmp_path, network=FAST))


def test_the_paper_s_test_set_is_in_the_table() -> None:
    dataset: Any = DATASETS["wmt14/full"]
    assert dataset.data == ["https://statmt.org/wmt14/test-full.tgz"]
    assert dataset.md5 == ["a8cd784e006feb32ac6f3d9ec7eb389a"]
    assert "en-de" in dataset.langpairs


def test_echo_gives_what_to_translate_and_the_score_is_the_sacrebleu_command_s(
    server: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["score", "-t", "mine/sgml", "-l", "en-de", "--echo", "src"]) == 0
    source = ["The dog runs.", "She said: stop &amp; go.", "Two blanks and a hard one.", "A & B"]
    assert capfdbinary.readouterr().out == plain(source)
    assert main(["score", "-t", "mine/sgml", "-l", "en-de", "--echo", "ref"]) == 0
    (tmp_path / "hyp").write_bytes(capfdbinary.readouterr().out.replace(b"Hund", b"Kater"))
    assert main(["score", "-t", "mine/sgml", "-l", "en-de", "--hyp", "hyp"]) == 0
    line, signature, _ = capfdbinary.readouterr().out.decode().split("\n")

    # The sacrebleu command, with its cache filled by hand, as a set that it knows by name.
    cache = tmp_path / "cache" / "wmt14" / "full"
    cache.mkdir(parents=True)
    found = load_test_set("mine/sgml", "en-de", Downloads(tmp_path, network=FAST))
    for field, lines in {"src": found.source, **found.references}.items():
        (cache / f"wmt14_full.en-de.{field}").write_bytes(plain(lines))
    for field in ("docid", "genre", "origlang"):
        (cache / f"wmt14_full.en-de.{field}").write_bytes(plain(["x"] * 4))
    command = [sys.executable, "-m", "sacrebleu", "-t", "wmt14/full", "-l", "en-de", "-i", "hyp", "-w", "2"]
    environment = {**os.environ, "SACREBLEU": str(tmp_path / "cache")}
    done = subprocess.run(command, env=environment, capture_output=True, check=True, text=True, encoding="utf-8")
    expected = json.loads(done.stdout)
    assert line == f"BLEU = {expected['score']:.2f} {expected['verbose_score']}"
    assert signature == expected["signature"]
