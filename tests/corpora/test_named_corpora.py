"""Corpora are found by name, in either direction; what the table says of them fits together."""

import re

import pytest

from aiayn_cli.corpora.corpus import Amount, Archive, Corpus, ListedCorpus
from aiayn_cli.corpora.named_corpora import CORPORA, LIKE, find_corpus, parse_langs
from aiayn_cli.errors import DataError, UsageError
from aiayn_cli.recipe_keys import DataConfig

NAMED = [corpus for corpus in CORPORA.values() if corpus.train]
ALL = [variant for corpus in NAMED for variant in (corpus, *corpus.like.values())]


def with_instead(archive: Archive | None) -> list[Archive]:
    return [archive, *with_instead(archive.instead)] if archive else []


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("dmeo", "demo"),
        ("wmt14", "wmt14-en-de or wmt14-en-fr"),
        ("MULTI30K-DE-EN", "multi30k-de-en"),
        ("wmt14-en-de-fairsec", "wmt14-en-de-fairseq"),
    ],
)
def test_an_unknown_corpus_is_answered_with_the_nearest_name(name: str, nearest: str) -> None:
    with pytest.raises(DataError, match=f"unknown corpus '{name}'") as caught:
        find_corpus(name)
    assert caught.value.hint == f"did you mean {nearest}? (for your own files: --train SRC TGT)"


@pytest.mark.parametrize("corpus", ALL, ids=lambda corpus: corpus.name)
def test_each_corpus_has_both_sides_of_each_part(corpus: Corpus) -> None:
    assert corpus.train
    assert corpus.licence
    for _, part in corpus.parts():
        assert set(part.sides) == {corpus.src_lang, corpus.tgt_lang}
        assert len({(text.archive.file, text.member) for text in part.sides.values()}) == 2
        assert part.md5.keys() <= part.sides.keys()
    assert len({part.name for part in corpus.train}) == len(corpus.train)
    DataConfig(vocab_size=corpus.vocab_size, **corpus.settings)


def test_each_archive_has_one_name_and_secure_addresses_come_first() -> None:
    archives = {archive for corpus in ALL for first in corpus.archives() for archive in with_instead(first)}
    assert len({archive.file for archive in archives}) == len(archives)
    for archive in archives:
        assert archive.urls
        schemes = [url.partition(":")[0] for url in archive.urls]
        assert schemes[0] == "https"
        assert set(schemes) <= ({"https", "http"} if archive.sha256 or archive.md5 else {"https"})
        assert re.fullmatch(r"([0-9a-f]{64})?", archive.sha256)
        assert re.fullmatch(r"([0-9a-f]{32})?", archive.md5)
        assert re.fullmatch(r"[\w.-]+", archive.file)


def test_wmt14_is_what_the_paper_scores() -> None:
    corpus = find_corpus("wmt14-en-de")
    assert corpus.vocab_size == 37_000
    assert ListedCorpus.of(corpus).pairs == Amount(4_520_620)
    assert ListedCorpus.of(corpus).download_bytes == Amount(657_632_379 + 918_311_367 + 80_418_416 + 38_654_961)
    scored = {part.name: part.pairs for part in (*corpus.valid, *corpus.test)}
    assert scored == {"newstest2013": 3_000, "newstest2014": 3_003}
    assert find_corpus("wmt14-en-fr").vocab_size == 32_000
    assert ListedCorpus.of(find_corpus("wmt14-en-fr")).pairs == Amount(40_842_357, approximate=True)


def test_a_corpus_is_known_in_the_other_direction_too() -> None:
    corpus, other = find_corpus("wmt14-en-de"), find_corpus("wmt14-de-en")
    assert (other.name, other.src_lang, other.tgt_lang) == ("wmt14-de-en", "de", "en")
    assert other.archives() == corpus.archives()
    assert other.train == corpus.train
    assert other.reverse().name == corpus.name
    assert corpus.test[0].md5
    assert not other.test[0].md5, "which differs by direction"
    assert other.valid[0].md5 == corpus.valid[0].md5
    assert find_corpus("wmt14-de-en", like="fairseq").name == "wmt14-de-en-fairseq"
    with pytest.raises(DataError):
        find_corpus("demo-de-en")


@pytest.mark.parametrize("corpus", ALL, ids=lambda corpus: corpus.name)
def test_each_variant_is_found_by_its_own_name_too(corpus: Corpus) -> None:
    assert find_corpus(corpus.name) == corpus
    assert find_corpus(corpus.reverse().name) == corpus.reverse()


@pytest.mark.parametrize(
    ("like", "part", "vocab_size", "valid_every"),
    [
        ("paper", "news-commentary-v11", 37_000, 0),
        ("t2t", "news-commentary-v13", 33_708, 0),
        ("fairseq", "news-commentary-v12", 40_000, 100),
    ],
)
def test_others_ways_take_other_corpora(like: str, part: str, vocab_size: int, valid_every: int) -> None:
    corpus = find_corpus("wmt14-en-de", like=like)
    assert [each.name for each in corpus.train] == ["europarl-v7", "commoncrawl", part]
    assert (corpus.vocab_size, corpus.valid_every) == (vocab_size, valid_every)
    assert bool(corpus.valid) == (not valid_every)
    assert corpus.test == find_corpus("wmt14-en-de").test
    assert corpus.name == f"wmt14-en-de-{like}"


def test_a_way_that_is_not_known_for_a_corpus_is_refused_with_those_that_are() -> None:
    assert {like for corpus in CORPORA.values() for like in corpus.like} == set(LIKE)
    with pytest.raises(UsageError, match="iwslt14-de-en has no variant --like t2t") as caught:
        find_corpus("iwslt14-de-en", like="t2t")
    assert caught.value.hint == "available: fairseq"
    with pytest.raises(UsageError) as caught:
        find_corpus("multi30k-en-de", like="paper")
    assert caught.value.hint == "available: none"


@pytest.mark.parametrize("langs", ["en-de", "de-en"])
def test_any_corpus_of_opus_can_be_named(langs: str) -> None:
    corpus = find_corpus("opus:TED2020/v1", langs)
    src, tgt = langs.split("-")
    assert (corpus.src_lang, corpus.tgt_lang) == (src, tgt)
    (archive,) = corpus.archives()
    assert archive.urls == ("https://object.pouta.csc.fi/OPUS-TED2020/v1/moses/de-en.txt.zip",)
    assert archive.file == "opus-TED2020-v1-de-en.txt.zip"
    assert {text.member for text in corpus.train[0].sides.values()} == {"TED2020.de-en.en", "TED2020.de-en.de"}
    assert ListedCorpus.of(corpus).pairs == ListedCorpus.of(corpus).download_bytes == Amount(None)


@pytest.mark.parametrize(
    "name", ["opus:", "opus:TED2020", "opus:../x/v1", "opus:a/b/c", "opus:TED 2020/v1", "opus:/v1"]
)
def test_what_names_no_corpus_of_opus_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="does not name a corpus at OPUS"):
        find_corpus(name, "en-de")


def test_languages_must_fit_the_corpus() -> None:
    assert find_corpus("wmt14-en-de", "en-de").name == "wmt14-en-de"
    with pytest.raises(UsageError, match="--langs is de-en, but wmt14-en-de is en-de"):
        find_corpus("wmt14-en-de", "de-en")
    with pytest.raises(UsageError, match="opus:TED2020/v1 needs --langs"):
        find_corpus("opus:TED2020/v1")


def test_a_sum_is_as_sure_as_its_parts() -> None:
    for parts, total in (((3, 4), Amount(7)), ((3, None), Amount(None)), ((), Amount(0))):
        assert Amount.total([Amount(part) for part in parts]) == total
    assert Amount.total([Amount(3, approximate=True), Amount(4)]) == Amount(7, approximate=True)


@pytest.mark.parametrize(
    ("text", "langs"), [("en-de", ("en", "de")), ("zh_Hans-en", ("zh_Hans", "en")), ("deu-gsw", ("deu", "gsw"))]
)
def test_languages_are_source_and_target(text: str, langs: tuple[str, str]) -> None:
    assert parse_langs(text) == langs


@pytest.mark.parametrize("text", ["", "en", "en-", "-de", "en de", "en-de-fr", "../x-de", "e-d", "en/de"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="must be source-target") as caught:
        parse_langs(text)
    assert text == "" or repr(text) in caught.value.problem
    with pytest.raises(UsageError, match="source and target are the same"):
        parse_langs("de-de")
