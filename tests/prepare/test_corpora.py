"""prepare goes from a corpus's name to training-ready data: archives laid out like the real ones, from a web server
on this machine, with addresses, sizes, hashes and counts of the table replaced by theirs.
"""

import gzip
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from archives import pack, sgml
from commands import Aiayn
from loopback import Loopback
from made_pairs import Pair, decoded, lines, make_pairs, src, tgt, write_pairs

from aiayn_cli.corpora.corpus import Archive, Corpus, Part, TextFile
from aiayn_cli.corpora.named_corpora import CORPORA, find_corpus
from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.errors import DataError, UsageError
from aiayn_cli.prepare.pipeline import PrepareResult, run_prepare
from aiayn_cli.prepare.plan import PrepareOptions

SMALL: dict[str, Any] = {"vocab_size": 90, "max_ratio": 9.0, "case_copies": 0.0}
SMALL_LINE = "--vocab-size 90 --max-ratio 9 --set data.case_copies=0 --workers 1"

pytestmark = pytest.mark.usefixtures("here")


def prepare(corpus: str | None = None, **options: Any) -> PrepareResult:
    return run_prepare(PrepareOptions(**{"corpus": corpus, "settings": SMALL, "workers": 1, **options}))


def with_archives(corpus: Corpus, change: Callable[[Archive], Archive]) -> Corpus:
    """Replace the archives of a corpus, and forget what the table says of the text in them."""

    def changed(part: Part) -> Part:
        sides = {lang: TextFile(change(text.archive), text.member) for lang, text in part.sides.items()}
        return replace(part, sides=sides, pairs=None, md5={})

    like = {name: with_archives(variant, change) for name, variant in corpus.like.items()}
    splits = {split: tuple(map(changed, getattr(corpus, split))) for split in ("train", "valid", "test")}
    return replace(corpus, like=like, **splits)


PutOn = Callable[[str, Mapping[str, bytes | dict[str, bytes]]], Corpus]


@pytest.fixture
def put_on(server: Loopback, monkeypatch: pytest.MonkeyPatch) -> PutOn:
    """Let a corpus of the table come from the server on this machine: each archive, or its members."""

    def put(name: str, archives: Mapping[str, bytes | dict[str, bytes]]) -> Corpus:
        bodies = {file: pack(file, each) if isinstance(each, dict) else each for file, each in archives.items()}

        def here_instead(archive: Archive) -> Archive:
            if archive.file not in bodies:
                return replace(archive, urls=(f"{server.url}/not-here/{archive.file}",), instead=None)
            body = bodies[archive.file]
            url = server.put(f"/{archive.file}", body)
            known = {"bytes": len(body), "sha256": hashlib.sha256(body).hexdigest(), "md5": "", "approximate": False}
            return replace(archive, urls=(f"{server.url}/gone/{archive.file}", url), instead=None, **known)

        corpus = with_archives(CORPORA[name], here_instead)
        monkeypatch.setitem(CORPORA, name, corpus)
        return corpus

    return put


EUROPARL, CRAWL, NEWS = make_pairs(120, 1), make_pairs(90, 2), make_pairs(60, 3)
VALID, TEST = make_pairs(21, 4), make_pairs(33, 5)
ODD_NEWS = [(f"{s[:4]}\r{s[4:]}", f"{t[:4]}\u2028{t[4:]}") for s, t in NEWS]  # ends of lines inside lines


def files(name: str, pairs: Sequence[Pair], src_lang: str = "en", tgt_lang: str = "de") -> dict[str, bytes]:
    return {f"{name}.{src_lang}": lines(src(pairs)), f"{name}.{tgt_lang}": lines(tgt(pairs))}


WMT14_MEMBERS = {  # en-de as statmt.org packs it, with other languages beside it
    "wmt13-training-parallel-europarl-v7.tgz": {
        **files("training/europarl-v7.cs-en", [("unwanted", "unwanted")], "en", "cs"),
        **files("training/europarl-v7.de-en", [("", "nothing"), *EUROPARL, ("nothing", "")]),
    },
    "wmt13-training-parallel-commoncrawl.tgz": {
        "commoncrawl.cs-en.en": b"unwanted\n",
        "commoncrawl.de-en.annotation": b"unwanted\n",
        **files("commoncrawl.de-en", CRAWL),
    },
    "wmt14-training-parallel-nc-v9.tgz": {
        **files("training/news-commentary-v9.de-en", ODD_NEWS),
        "training/news-commentary-v9.fr-en.en": b"unwanted\n",
    },
    "wmt19-dev.tgz": {
        **files("dev/newstest2013", VALID),
        "dev/newstest2014-deen-ref.de.sgm": sgml(tgt(TEST), "refset"),
        "dev/newstest2014-deen-ref.en.sgm": sgml([f"{s} ref" for s in src(TEST)], "refset"),
        "dev/newstest2014-deen-src.de.sgm": sgml([f"{t} src" for t in tgt(TEST)], "srcset"),
        "dev/newstest2014-deen-src.en.sgm": sgml(src(TEST), "srcset"),
    },
}
WMT14 = {file: pack(file, members) for file, members in WMT14_MEMBERS.items()}


def test_wmt14_from_its_name_to_training_ready_data(server: Loopback, put_on: PutOn, aiayn: Aiayn) -> None:
    put_on("wmt14-en-de", WMT14)
    line = f"prepare wmt14-en-de {SMALL_LINE}".split()
    code, out, err = aiayn(*line)
    assert code == 0
    assert out.startswith("prepared/wmt14-en-de (en-de), ")
    assert "downloading 4 files, 0.0 MB, to prepared/.downloads\n" in err
    assert "/gone/wmt19-dev.tgz: status 404 Not Found\n" in err

    data = PreparedData.load(Path("prepared/wmt14-en-de"))
    assert sorted(path.name for path in data.folder.iterdir()) == sorted(
        [
            "manifest.json", "vocab.model", "valid.en", "valid.de", "test.en", "test.de",
            *(f"{split}-00000.{side}{what}.npy" for split in ("train", "valid", "test")
              for side in ("src", "tgt") for what in ("", ".offsets")),
        ]
    )  # fmt: skip
    news = [(f"{s[:4]} {s[4:]}", f"{t[:4]} {t[4:]}") for s, t in NEWS]
    assert decoded(data, "train") == [(" ".join(s.split()), " ".join(t.split())) for s, t in (*EUROPARL, *CRAWL, *news)]
    assert (decoded(data, "valid"), decoded(data, "test")) == (VALID, TEST)
    assert Path("prepared/wmt14-en-de/test.de").read_bytes() == lines(tgt(TEST))
    assert Path("prepared/wmt14-en-de/test.en").read_bytes() == lines(src(TEST))

    manifest = data.manifest
    assert manifest["corpus"] == "wmt14-en-de"
    train = manifest["splits"]["train"]
    assert (train["pairs_read"], train["dropped"]["blank"], train["mapped_characters"]) == (272, 2, 120)
    first = manifest["inputs"][0]
    assert (first["split"], first["side"], first["part"]) == ("train", "src", "europarl-v7")
    assert first["member"] == "training/europarl-v7.de-en.en"
    downloads = {path.name: path for path in Path("prepared/.downloads").iterdir()}
    assert downloads.keys() == WMT14.keys()
    assert first["sha256"] == hashlib.sha256(WMT14["wmt13-training-parallel-europarl-v7.tgz"]).hexdigest()
    assert [entry["part"] for entry in manifest["inputs"]][::2] == [
        "europarl-v7", "commoncrawl", "news-commentary-v9", "newstest2013", "newstest2014",
    ]  # fmt: skip

    server.asked.clear()
    for path in downloads.values():
        path.unlink()
    code, _, err = aiayn(*line)
    assert (code, server.asked) == (0, [])  # finished data asks for no download
    assert "is up to date: nothing to do" in err


def test_the_other_direction_scores_against_its_own_references_and_archives_at_hand_need_no_network(
    server: Loopback, put_on: PutOn
) -> None:
    put_on("wmt14-en-de", WMT14)
    Path("hand").mkdir()
    for file, body in WMT14.items():
        Path("hand", file).write_bytes(body)
    result = prepare("wmt14-de-en", from_folder=Path("hand"))
    assert server.asked == []
    assert not Path("prepared/.downloads").exists()
    data = PreparedData.load(result.out)
    assert (str(result.out), result.langs) == ("prepared/wmt14-de-en", "de-en")
    assert decoded(data, "train")[:120] == [(t, s) for s, t in EUROPARL]
    assert data.read_text("test", "src") == [f"{t} src" for t in tgt(TEST)]
    assert data.read_text("test", "tgt") == [f"{s} ref" for s in src(TEST)]


def test_each_hundredth_pair_is_for_validation_as_fairseq_has_it(put_on: PutOn) -> None:
    v12 = files("training/news-commentary-v12.de-en", NEWS)
    put_on("wmt14-en-de", {**WMT14, "wmt17-training-parallel-nc-v12.tgz": v12})
    result = prepare("wmt14-en-de", like="fairseq")
    data = PreparedData.load(result.out)
    assert str(result.out) == "prepared/wmt14-en-de-fairseq"
    all_pairs = [("", "nothing"), *EUROPARL, ("nothing", ""), *CRAWL, *NEWS]
    assert decoded(data, "valid") == [all_pairs[99], all_pairs[199]]
    assert decoded(data, "train") == [pair for i, pair in enumerate(all_pairs, start=1) if i % 100 and all(pair)]
    assert (result.pairs_read, result.valid_pairs) == (270, 2)
    settings = data.manifest["settings"]
    assert (settings["dedupe"], settings["vocab_size"], settings["max_length"]) == (False, 90, 250)
    with pytest.raises(DataError, match="was prepared differently"):
        prepare("wmt14-en-de", out=result.out)


TALKS = [("<url>u</url>", "<url>u</url>"), ("<talkid>7</talkid>", "<talkid>7</talkid>")]


def test_iwslt14_skips_lines_about_talks_and_joins_its_tests(put_on: PutOn) -> None:
    talks = make_pairs(70, 6)
    titled = [*TALKS, ("<title>ein Titel t</title>", "<title>a title t</title>"), *talks]
    names = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
    sets = {name: make_pairs(n, 10 + n) for n, name in enumerate(names, start=3)}
    members = files("de-en/train.tags.de-en", titled, "de", "en")
    for name, pairs in sets.items():
        members[f"de-en/IWSLT14.{name}.de-en.de.xml"] = sgml(src(pairs), "srcset")
        members[f"de-en/IWSLT14.{name}.de-en.en.xml"] = sgml(tgt(pairs), "refset")
    put_on("iwslt14-de-en", {"iwslt14-de-en.tgz": members})
    result = prepare("iwslt14-de-en")
    data = PreparedData.load(result.out)
    text = [("ein Titel t", "a title t"), *talks]
    assert decoded(data, "valid") == text[22::23]
    assert decoded(data, "train") == [pair for i, pair in enumerate(text, start=1) if i % 23]
    assert decoded(data, "test") == [pair for pairs in sets.values() for pair in pairs]
    assert data.manifest["splits"]["train"]["entries_skipped"] == 2
    assert result.pairs_read == 68


def made_members(corpus: Corpus, text: dict[tuple[str, str], list[Pair]]) -> dict[str, dict[str, bytes]]:
    """Write members for all parts of a corpus, by archive; the pairs of each part go to `text`."""
    archives: dict[str, dict[str, bytes]] = {}
    for split, part in corpus.parts():
        pairs = text[split, part.name] = make_pairs(12 + 40 * (split == "train"), 100 + len(text))
        for lang, side, role in ((corpus.src_lang, src, "src"), (corpus.tgt_lang, tgt, "ref")):
            content = sgml(side(pairs), f"{role}set") if part.format == "segments" else lines(side(pairs))
            file, member = part.sides[lang].archive.file, part.sides[lang].member.format(role=role)
            archives.setdefault(file, {})[member] = gzip.compress(content) if member.endswith(".gz") else content
    return archives


NAMES = [
    (name, like) for name, corpus in CORPORA.items() if corpus.train for like in (None, *corpus.like)
]  # fmt: skip


@pytest.mark.parametrize(("name", "like"), NAMES)
def test_each_named_corpus_gives_the_pairs_of_its_parts(put_on: PutOn, name: str, like: str | None) -> None:
    text: dict[tuple[str, str], list[Pair]] = {}
    corpus = find_corpus(name, like=like)
    put_on(name, made_members(corpus, text))
    data = PreparedData.load(prepare(name, like=like).out)
    expected = {
        split: [pair for (of, _), pairs in text.items() if of == split for pair in pairs]
        for split in ("train", "valid", "test")
    }
    if corpus.valid_every:
        nth = corpus.valid_every
        expected["valid"] = expected["train"][nth - 1 :: nth]
        expected["train"] = [pair for i, pair in enumerate(expected["train"], start=1) if i % nth]
    if expected["valid"]:
        assert decoded(data, "train") == expected["train"]
        assert decoded(data, "valid") == expected["valid"]
    else:
        assert sorted(decoded(data, "train") + decoded(data, "valid")) == sorted(expected["train"])
    if expected["test"]:
        assert decoded(data, "test") == expected["test"]
    else:
        assert data.test is None


def test_a_corpus_of_opus_is_downloaded_by_its_name_alone(
    server: Loopback, aiayn: Aiayn, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = make_pairs(50, 8)
    body = pack(".zip", {"README": b"", "LICENSE": b"", **files("Books.de-en", pairs)})
    server.put("http://object.pouta.csc.fi/OPUS-Books/v1/moses/de-en.txt.zip", body)
    monkeypatch.setattr("aiayn_cli.corpora.archive_urls._OPUS", "http://object.pouta.csc.fi")
    monkeypatch.setenv("http_proxy", server.url)
    line = f"prepare opus:Books/v1 --langs en-de {SMALL_LINE}".split()
    code, _, err = aiayn(*line)
    assert code == 0
    sha256 = hashlib.sha256(body).hexdigest()
    assert "output: prepared/opus-Books-v1-en-de (" in err
    assert f"unverified, transferred without TLS (no hash is published); SHA-256 {sha256}\n" in err
    data = PreparedData.load(Path("prepared/opus-Books-v1-en-de"))
    assert sorted(decoded(data, "train") + decoded(data, "valid")) == sorted(pairs)
    assert data.manifest["inputs"][0]["read"]["sha256"] == sha256
    Path("prepared/.downloads/opus-Books-v1-de-en.txt.zip").unlink()
    assert aiayn(*line).code == 0
    assert len(server.asked) == 1
    Path("mine.yaml").write_text("data:\n  corpus: opus:Books/v1\n  vocab_size: 90\n")
    assert aiayn(*f"prepare --recipe mine.yaml --langs de-en {SMALL_LINE}".split()).code == 0
    assert PreparedData.load(Path("prepared/opus-Books-v1-de-en")).tgt_lang == "en"


def test_the_same_members_in_another_container_are_the_same_data(
    server: Loopback, put_on: PutOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = put_on("wmt14-en-de", WMT14)
    members = files("dev/newstest2013", VALID)
    for role, kind in (("src", "srcset"), ("ref", "refset")):
        members[f"dev/newstest2014-deen-{role}.en.sgm"] = sgml(src(TEST), kind)
        members[f"dev/newstest2014-deen-{role}.de.sgm"] = sgml(tgt(TEST), kind)
    body = pack(".zip", members)
    stand_in = Archive("wmt19-dev.zip", (server.put("/wmt19-dev.zip", body),), sha256=hashlib.sha256(body).hexdigest())

    def gone(archive: Archive) -> Archive:
        if archive.file != "wmt19-dev.tgz":
            return archive
        return replace(archive, urls=archive.urls[:1], instead=stand_in)

    monkeypatch.setitem(CORPORA, "wmt14-en-de", with_archives(corpus, gone))
    prepare("wmt14-en-de")
    data = PreparedData.load(Path("prepared/wmt14-en-de"))
    assert decoded(data, "test") == TEST
    entry = data.manifest["inputs"][-1]
    assert entry["read"] == {"file": "wmt19-dev.zip", "bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}
    assert entry["sha256"] == corpus.test[0].sides["de"].archive.sha256
    assert prepare("wmt14-en-de").done_before


@pytest.mark.parametrize("exact", [True, False])
def test_text_that_is_not_what_is_known_of_it_is_remarked_on(
    put_on: PutOn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], exact: bool
) -> None:
    text: dict[tuple[str, str], list[Pair]] = {}
    corpus = put_on("multi30k-en-de", made_members(CORPORA["multi30k-en-de"], text))
    train, valid, test = corpus.train[0], corpus.valid[0], corpus.test[0]
    good_md5 = hashlib.md5(lines(f"{s}" for s in src(text["valid", "val"]))).hexdigest()
    known = replace(
        corpus,
        train=(replace(train, pairs=53 if exact else 60, approximate=not exact),),
        valid=(replace(valid, pairs=12, md5={"en": good_md5}),),
        test=(replace(test, pairs=12, md5={"de": good_md5}),),
    )
    monkeypatch.setitem(CORPORA, "multi30k-en-de", known)
    prepare("multi30k-en-de")
    warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    assert warnings == [
        "warning: test_2016_flickr differs from the text that published scores refer to",
        f"warning: train has 52 pairs, but {'53' if exact else 'about 60'} were expected",
    ]


def test_bad_bytes_in_a_corpus_drop_their_pair_unless_told_otherwise(put_on: PutOn) -> None:
    text: dict[tuple[str, str], list[Pair]] = {}
    members = made_members(CORPORA["multi30k-en-de"], text)
    train = members["multi30k-train.de.gz"]
    train[""] = train[""].replace(b" t7x", b" t7\xff", 1)
    put_on("multi30k-en-de", members)
    result = prepare("multi30k-en-de")
    pairs = text["train", "train"]
    assert decoded(PreparedData.load(result.out), "train") == pairs[:7] + pairs[8:]
    assert result.dropped["bad_bytes"] == 1
    with pytest.raises(DataError, match=r"multi30k-train\.de\.gz:8: byte \d+ of the line \(0xFF\) is not UTF-8"):
        prepare("multi30k-en-de", settings={**SMALL, "on_bad_bytes": "stop"}, out=Path("other"))


# ---- corpora and files together


def tmx(pairs: Sequence[Pair]) -> str:
    units = "".join(
        f'<tu><tuv xml:lang="de"><seg>{t}</seg></tuv><tuv xml:lang="en"><seg>{s}</seg></tuv></tu>' for s, t in pairs
    )
    return f"<tmx><body>{units}<tu/></body></tmx>"


def test_corpora_and_files_of_all_kinds_are_read_one_after_the_other(put_on: PutOn, aiayn: Aiayn) -> None:
    text: dict[tuple[str, str], list[Pair]] = {}
    for name in ("multi30k-en-de", "tatoeba-en-de"):
        put_on(name, made_members(CORPORA[name], text))
    plain, table, memory, test = (make_pairs(n, n) for n in (31, 32, 33, 34))
    write_pairs(Path(), "plain", plain)
    write_pairs(Path(), "t", test)
    Path("table.tsv").write_text("".join(f"{i}\t{t}\t{s}\n" for i, (s, t) in enumerate(table)))
    Path("memory.tmx").write_text(tmx(memory))
    line = (
        "prepare multi30k-en-de+tatoeba-en-de --train plain.en plain.de --tsv table.tsv --tsv-columns 3 2 "
        f"--tmx memory.tmx --test t.en t.de --out out {SMALL_LINE}"
    )
    assert aiayn(*line.split()).code == 0
    data = PreparedData.load(Path("out"))
    corpora = [*text["train", "train"], *text["train", "Tatoeba-v2023-04-12"]]
    assert decoded(data, "train") == [*corpora, *plain, *table, *memory]
    assert decoded(data, "valid") == text["valid", "val"]
    assert decoded(data, "test") == test
    assert data.manifest["corpus"] == "multi30k-en-de+tatoeba-en-de"
    assert data.manifest["splits"]["train"]["entries_skipped"] == 1


def test_tsv_and_tmx_alone_need_their_languages() -> None:
    pairs, more = make_pairs(40, 1), make_pairs(30, 2)
    Path("a.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in pairs))
    Path("b.tmx").write_text(tmx(more))
    both = {"tsv": [Path("a.tsv")], "tmx": [Path("b.tmx")], "langs": "en-de"}
    data = PreparedData.load(prepare(**both).out)
    assert sorted(decoded(data, "train") + decoded(data, "valid")) == sorted([*pairs, *more])
    with pytest.raises(UsageError, match="--tmx needs --langs"):
        prepare(tmx=[Path("b.tmx")])
    with pytest.raises(DataError, match="prepared differently: different training text"):
        prepare(**both, tsv_columns=(2, 1))


def test_a_weight_takes_pairs_several_times() -> None:
    first, second, third = make_pairs(40, 1), make_pairs(30, 2), make_pairs(20, 3)
    files = [
        write_pairs(Path(), "a", [*first, ("", "blank")]),
        write_pairs(Path(), "b", [*second, first[3], ("x " * 99, "y " * 99)]),
    ]
    Path("c.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in third))
    options: dict[str, Any] = {
        "train": files, "tsv": [Path("c.tsv")], "valid": write_pairs(Path(), "v", VALID), "langs": "en-de",
        "out": Path("out"), "settings": {**SMALL, "max_length": 60},
    }  # fmt: skip
    result = prepare(**options, weights={"b.en": 3, "c.tsv": 2})
    data = PreparedData.load(Path("out"))
    assert decoded(data, "train") == [*first, *second * 3, *third * 2]
    assert (result.pairs_read, result.copies, result.pairs_kept) == (93, 80, 170)
    assert sum(result.dropped.values()) == 3
    assert "\n  copies by --weight " in str(result)
    assert prepare(**options, weights={"b.en": 3, "c.tsv": 2}).done_before
    with pytest.raises(DataError, match="was prepared differently"):
        prepare(**options, weights={"b.en": 2, "c.tsv": 2})


def test_a_weight_is_given_to_a_corpus_or_to_a_part_of_one(put_on: PutOn, aiayn: Aiayn) -> None:
    put_on("wmt14-en-de", WMT14)
    line = f"prepare wmt14-en-de {SMALL_LINE} --out".split()
    for out, weight, copies in (("part", "commoncrawl=2", 90), ("whole", "wmt14-en-de=2", 270)):
        assert aiayn(*line, out, "--weight", weight).code == 0
        assert PreparedData.load(Path(out)).manifest["splits"]["train"]["copies"] == copies
