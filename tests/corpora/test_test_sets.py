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
from pathlib import Path
from typing import Any

import pytest
from archives import pack, sgml
from commands import Aiayn
from loopback import Loopback
from sacrebleu.dataset import DATASETS
from sacrebleu.dataset.fake_sgml import FakeSGMLDataset, WMTAdditionDataset
from sacrebleu.dataset.iwslt_xml import IWSLTXMLDataset
from sacrebleu.dataset.plain_text import PlainTextDataset
from sacrebleu.dataset.tsv import TSVDataset
from sacrebleu.dataset.wmt_xml import WMTXMLDataset

from aiayn_cli.corpora.download import Downloads
from aiayn_cli.corpora.http_fetch import Network
from aiayn_cli.corpora.test_sets import load_test_set
from aiayn_cli.errors import DataError, UsageError

FAST = Network(connect_seconds=5, read_seconds=5, attempts=2, pause_seconds=0)
SOURCE = ["The dog runs.", "She said: stop &amp; go.", "Two  blanks\u00a0and a hard one.", "A & B"]
REFERENCE = ["Der Hund läuft.", "Sie sagte: halt &amp; weiter.", "Zwei  Blanks\u00a0und ein hartes.", "A & B"]
SECOND = ["Ein Hund rennt.", "Stopp und weiter, sagte sie.", "", "A und B"]


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


TSV = "".join(f"{n}\t{s}\t{r}\n" for n, (s, r) in enumerate(zip(SOURCE, REFERENCE, strict=True))).encode()
TALKS = {"en-de/x.en.xml": sgml(SOURCE, "srcset"), "en-de/x.de.xml": sgml(REFERENCE, "refset")}
SGM = {"test/x-src.en.sgm": sgml(SOURCE, "srcset"), "test/x-ref.de.sgm": sgml(REFERENCE, "refset")}

# By name: the class, the downloads, the entry of en-de, and what else the class takes.
SETS: dict[str, tuple[type, dict[str, bytes], Any, dict[str, Any]]] = {
    "mine/sgml": (FakeSGMLDataset, {"test.tgz": pack(".tgz", SGM)}, list(SGM), {}),
    "mine/two": (FakeSGMLDataset, {"test.tgz": pack(".tgz", {**SGM, "test/x-ref2.de.sgm": sgml(SECOND, "refset")})},
                 [*SGM, "test/x-ref2.de.sgm"], {}),
    "mine/talks": (IWSLTXMLDataset,
                   {"de-en.tgz": pack(".tgz", {"de-en/other.xml": b""}), "en-de.tgz": pack(".tgz", TALKS)},
                   list(TALKS), {}),
    "mine/plain": (PlainTextDataset,
                   {"all.zip": pack(".zip", {"all/x.en": plain(SOURCE)}), "x.de.gz": gzip.compress(plain(REFERENCE))},
                   ["all/x.en", "mine_plain.x.de.gz"], {}),
    "mine/tsv": (TSVDataset, {"x.tar.gz": pack(".tgz", {"x/all.tsv": TSV})}, ["1:x/all.tsv", "2:x/all.tsv"], {}),
    "mine/more": (WMTAdditionDataset, {"test.tgz": pack(".tgz", SGM), "x-ar.ref": plain(SECOND)},
                  ["test/x-src.en.sgm", "mine_more.x-ar.ref"], {}),
    "mine/xml": (WMTXMLDataset, {"v1.tar.gz": pack(".tgz", {"v1/x.xml": xml()})}, ["v1/x.xml"], {"refs": ["B"]}),
}  # fmt: skip


@pytest.fixture
def server(server: Loopback, monkeypatch: pytest.MonkeyPatch) -> Loopback:
    """A server that has every set's archives, and sacreBLEU's table with the sets."""
    for name, (kind, files, entry, more) in SETS.items():
        urls = [server.put(f"/{name}/{file}", content) for file, content in files.items()]
        md5 = [hashlib.md5(content).hexdigest() for content in files.values()]
        dataset = kind(name, data=urls, md5=md5, description="", citation="", langpairs={"en-de": entry}, **more)
        monkeypatch.setitem(DATASETS, name, dataset)
    return server


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


def test_only_the_archives_of_the_languages_are_fetched_once_and_none_that_is_at_hand(
    server: Loopback, tmp_path: Path
) -> None:
    for _ in range(2):
        load_test_set("mine/talks", "en-de", Downloads(tmp_path, network=FAST))
    assert [path for path, _ in server.asked] == ["/mine/talks/en-de.tgz"]
    (tmp_path / "test.tgz").write_bytes(SETS["mine/sgml"][1]["test.tgz"])
    found = load_test_set("mine/sgml", "en-de", Downloads(tmp_path / "none", tmp_path, network=FAST))
    assert (len(found.source), len(server.asked)) == (4, 1)


def test_an_archive_that_is_another_is_refused(server: Loopback, tmp_path: Path) -> None:
    server.put("/mine/sgml/test.tgz", pack(".tgz", {**SGM, "test/x-ref.de.sgm": sgml(SECOND, "refset")}))
    with pytest.raises(DataError, match="MD5"):
        load_test_set("mine/sgml", "en-de", Downloads(tmp_path, network=FAST))
    assert not list(tmp_path.glob("*.tgz"))


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
    content = pack(".tgz", {**SGM, "test/x-ref.de.sgm": sgml(REFERENCE[:3], "refset")})
    url = server.put("/short.tgz", content)
    short = FakeSGMLDataset("short", data=[url], md5=[hashlib.md5(content).hexdigest()], langpairs={"en-de": list(SGM)})
    monkeypatch.setitem(DATASETS, "short", short)
    with pytest.raises(DataError, match="has 4 source lines, but 3 of ref"):
        load_test_set("short", "en-de", Downloads(tmp_path, network=FAST))


def test_echo_gives_what_to_translate_and_the_score_is_the_sacrebleu_command_s(
    server: Loopback, tmp_path: Path, aiayn: Aiayn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["score", "-t", "mine/sgml", "-l", "en-de"]
    source = ["The dog runs.", "She said: stop &amp; go.", "Two blanks and a hard one.", "A & B"]
    assert aiayn(*command, "--echo", "src")[:2] == (0, plain(source).decode())
    (tmp_path / "hyp").write_text(aiayn(*command, "--echo", "ref").out.replace("Hund", "Kater"), encoding="utf-8")
    line, signature = aiayn(*command, "--hyp", "hyp").lines

    # The sacrebleu command, with its cache filled by hand, as a set that it knows by name.
    cache = tmp_path / "cache" / "wmt14" / "full"
    cache.mkdir(parents=True)
    found = load_test_set("mine/sgml", "en-de", Downloads(tmp_path, network=FAST))
    for field, lines in {"src": found.source, **found.references}.items():
        (cache / f"wmt14_full.en-de.{field}").write_bytes(plain(lines))
    for field in ("docid", "genre", "origlang"):
        (cache / f"wmt14_full.en-de.{field}").write_bytes(plain(["x"] * 4))
    theirs = [sys.executable, "-m", "sacrebleu", "-t", "wmt14/full", "-l", "en-de", "-i", "hyp", "-w", "2"]
    environment = {**os.environ, "SACREBLEU": str(tmp_path / "cache")}
    done = subprocess.run(theirs, env=environment, capture_output=True, check=True, text=True, encoding="utf-8")
    expected = json.loads(done.stdout)
    assert line == f"BLEU = {expected['score']:.2f} {expected['verbose_score']}"
    assert signature == expected["signature"]
