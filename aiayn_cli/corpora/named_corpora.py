"""The named corpora, and how they are found. Counts are from public scripts or our own; some are approximate.

`like` follows other toolkits in their corpora, sub-words, validation and test pairs, and limits. It does not follow
their tokenisation: text stays raw, since SentencePiece does not need it tokenised.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from aiayn_cli.corpora import archive_urls as archives
from aiayn_cli.corpora.corpus import Archive, Corpus, Part, TextFile
from aiayn_cli.errors import DataError, UsageError, did_you_mean

# Our rules that other toolkits lack, turned off for their variants; drop_overlap stays on.
_UNCLEANED = {
    "dedupe": False,
    "max_words": 0,
    "drop_identical": False,
    "drop_no_letters": False,
    "drop_wrong_script": False,
    "case_copies": 0.0,
}
_WMT = "research use; see statmt.org"
_TED = "TED talks, non-commercial (CC BY-NC-ND, not confirmed)"


def _with_likes(corpus: Corpus, likes: dict[str, dict[str, Any]]) -> Corpus:
    """Add variants: for each value of --like, the fields in which the corpus differs."""
    variants = {}
    for like, fields in likes.items():
        settings = {**_UNCLEANED, **fields.get("settings", {})}
        variants[like] = replace(corpus, **{**fields, "name": f"{corpus.name}-{like}", "settings": settings})
    return replace(corpus, like=variants)


def _sides(archive: Archive, path: str, *langs: str) -> dict[str, TextFile]:
    """A member for each language, whose code replaces {} in the path."""
    return {code: TextFile(archive, path.format(code)) for code in langs}


def _wmt_part(name: str, archive: Archive, path: str, lang: str, pairs: int | None, approximate: bool = False) -> Part:
    return Part(name, _sides(archive, path, "en", lang), pairs=pairs, approximate=approximate)


def _news_commentary(version: int, lang: str, pairs: int | None = None, approximate: bool = False) -> Part:
    folder = "training" if version in (9, 12) else f"training-parallel-nc-v{version}"
    name = f"news-commentary-v{version}"
    archive = archives.NEWS_COMMENTARY[version]
    return _wmt_part(name, archive, f"{folder}/{name}.{lang}-en.{{}}", lang, pairs, approximate)


def _newstest2013(lang: str, md5: str) -> Part:
    sides = _sides(archives.WMT19_DEV, "dev/newstest2013.{}", "en", lang)
    return Part("newstest2013", sides, pairs=3_000, md5={"en": "23be23d7b9bd5ad1f2ebd076484332c9", lang: md5})


def _newstest2014(lang: str, md5: dict[str, str]) -> Part:
    sides = _sides(archives.WMT19_DEV, f"dev/newstest2014-{lang}en-{{{{role}}}}.{{}}.sgm", "en", lang)
    return Part("newstest2014", sides, "segments", pairs=3_003, md5=md5)


_DE_TRAIN = (
    _wmt_part("europarl-v7", archives.EUROPARL_V7, "training/europarl-v7.de-en.{}", "de", 1_920_209),
    _wmt_part("commoncrawl", archives.COMMON_CRAWL, "commoncrawl.de-en.{}", "de", 2_399_123),
)
_WMT14_EN_DE = Corpus(
    "wmt14-en-de",
    "en",
    "de",
    37_000,  # paper, Section 5.1
    "Europarl v7, Common Crawl, News Commentary v9; newstest2013, newstest2014 (the paper's 3,003 lines)",
    _WMT,
    train=(*_DE_TRAIN, _news_commentary(9, "de", 201_288)),
    valid=(_newstest2013("de", "872891e01855b43f2a87155e0c1d2076"),),
    test=(_newstest2014("de", {"en": "dabf51a9c02b2235632f3cee75c72d49", "de": "f6c3818b477e4a25cad68b61cc883c17"}),),
)
_WMT14_EN_DE_LIKES: dict[str, dict[str, Any]] = {
    # The study that the paper cites for byte-pair encoding has the training text of WMT16.
    "paper": {
        "description": "with News Commentary v11, which the paper's own program read",
        "train": (*_DE_TRAIN, _news_commentary(11, "de")),
    },
    "t2t": {
        "vocab_size": 33_708,  # entries of its sub-word vocabulary "32k"
        "description": "with News Commentary v13, as later versions of Tensor2Tensor",
        "train": (*_DE_TRAIN, _news_commentary(13, "de")),
    },
    "fairseq": {
        "vocab_size": 40_000,  # merges
        "description": "with News Commentary v12; every 100th training pair is for validation",
        "train": (*_DE_TRAIN, _news_commentary(12, "de", 270_769, approximate=True)),
        "valid": (),
        "valid_every": 100,
        "settings": {"max_length": 250, "max_ratio": 1.5},
    },
}

_WMT14_EN_FR = Corpus(
    "wmt14-en-fr",
    "en",
    "fr",
    32_000,  # paper, Section 5.1
    "Europarl v7, Common Crawl, UN, News Commentary v9, 10^9; newstest2013, newstest2014",
    _WMT,
    train=(
        _wmt_part("europarl-v7", archives.EUROPARL_V7, "training/europarl-v7.fr-en.{}", "fr", 2_007_723),
        _wmt_part("commoncrawl", archives.COMMON_CRAWL, "commoncrawl.fr-en.{}", "fr", 3_244_152, approximate=True),
        _wmt_part("un", archives.UN, "un/undoc.2000.fr-en.{}", "fr", 12_886_831, approximate=True),
        _news_commentary(9, "fr", 183_251, approximate=True),
        _wmt_part("giga", archives.GIGA_FREN, "giga-fren.release2.fixed.{}.gz", "fr", 22_520_400, approximate=True),
    ),
    valid=(_newstest2013("fr", "77db6a3d2259d00b4d5f45009a3ed375"),),
    test=(_newstest2014("fr", {"en": "4cc6542f5c0d54eac01c662854af6eb9", "fr": "47ce6cd70093425f4bf5f2738c69f35b"}),),
)
_WMT14_EN_FR_LIKES: dict[str, dict[str, Any]] = {
    "paper": {"description": "the same text, uncleaned"},
    "t2t": {"vocab_size": 32_768, "description": "the same text, uncleaned, and 2^15 sub-words"},
    "fairseq": {
        "vocab_size": 40_000,  # merges
        "description": "every 1,333rd training pair is for validation",
        "valid": (),
        "valid_every": 1_333,
        "settings": {"max_length": 250, "max_ratio": 1.5},
    },
}


def _ted_part(name: str, archive: Archive, langs: str, pairs: int | None = None) -> Part:
    return Part(name, _sides(archive, f"{langs}/{name}.{langs}.{{}}.xml", *langs.split("-")), "segments", pairs=pairs)


def _iwslt14() -> Corpus:
    archive = archives.IWSLT14_DE_EN
    sides = _sides(archive, "de-en/train.tags.de-en.{}", "de", "en")
    tests = ("IWSLT14.TED.dev2010", "IWSLT14.TEDX.dev2012", *(f"IWSLT14.TED.tst{year}" for year in (2010, 2011, 2012)))
    corpus = Corpus(
        "iwslt14-de-en",
        "de",
        "en",
        10_000,  # merges of fairseq's script, whose split this is too
        "TED talks; every 23rd training pair is for validation, dev2010 to tst2012 (6,750 pairs) for the test",
        _TED,
        # fairseq's script keeps 160,239 for training and 7,283 for validation, after its own cleaning.
        train=(Part("ted", sides, "talks", pairs=167_522, approximate=True, titles=True),),
        test=tuple(_ted_part(name, archive, "de-en") for name in tests),
        valid_every=23,
    )
    description = "with the script's length limits; but the text keeps its case and is not tokenised"
    limits = {"max_length": 175, "max_ratio": 1.5}
    return _with_likes(corpus, {"fairseq": {"description": description, "settings": limits}})


def _iwslt17(lang: str, archive: Archive, pairs: int, valid_pairs: int) -> Corpus:
    langs = f"{lang}-en"
    sides = _sides(archive, f"{langs}/train.tags.{langs}.{{}}", lang, "en")
    # Others look for tags on one side only; lines with a tag on either side are dropped here.
    train = (Part("ted", sides, "talks", pairs=pairs, approximate=True),)
    valid = (_ted_part("IWSLT17.TED.dev2010", archive, langs, valid_pairs),)
    test = tuple(_ted_part(f"IWSLT17.TED.tst{year}", archive, langs) for year in range(2010, 2016))
    description = "TED talks; dev2010 for validation, tst2010 to tst2015 for the test"
    return Corpus(f"iwslt17-{langs}", lang, "en", 16_000, description, _TED, train, valid, test)


def _multi30k(lang: str) -> Corpus:
    train, valid, test = (
        (Part(split, {code: TextFile(archives.MULTI30K[split, code]) for code in ("en", lang)}, pairs=pairs),)
        for split, pairs in (("train", 29_000), ("val", 1_014), ("test_2016_flickr", 1_000))
    )
    description = "captions of pictures; val for validation, test_2016_flickr for the test"
    licence = "research use; its repository has no licence"
    return Corpus(f"multi30k-en-{lang}", "en", lang, 8_000, description, licence, train, valid, test)


def _opus(name: str, corpus: str, version: str, src_lang: str, tgt_lang: str) -> Corpus:
    """Describe a corpus at OPUS, spelt as there: training pairs only, of unknown size."""
    first, second = sorted((src_lang, tgt_lang))
    archive = archives.opus_archive(corpus, version, (first, second))
    sides = _sides(archive, f"{corpus}.{first}-{second}.{{}}", src_lang, tgt_lang)
    train = (Part(f"{corpus}-{version}", sides),)
    return Corpus(name, src_lang, tgt_lang, 16_000, f"{corpus} {version} from OPUS", "see opus.nlpl.eu", train)


def _tatoeba(lang: str) -> Corpus:
    corpus = _opus(f"tatoeba-en-{lang}", "Tatoeba", "v2023-04-12", "en", lang)
    description = "short general sentences, version 2023-04-12; validation pairs are held out"
    return replace(corpus, vocab_size=8_000, description=description, licence="CC BY 2.0, tatoeba.org")


_DEMO_TEXT = "24,000 sentences from a small English-German grammar; built in, no network needed"
CORPORA = {
    corpus.name: corpus
    for corpus in (
        Corpus("demo", "en", "de", 2_800, _DEMO_TEXT, "Apache 2.0, like aiayn", settings={"case_copies": 0.0}),
        _with_likes(_WMT14_EN_DE, _WMT14_EN_DE_LIKES),
        _with_likes(_WMT14_EN_FR, _WMT14_EN_FR_LIKES),
        _iwslt14(),
        _iwslt17("de", archives.IWSLT17_DE_EN, 206_112, 888),
        _iwslt17("fr", archives.IWSLT17_FR_EN, 232_825, 890),
        *map(_multi30k, ("de", "fr", "cs")),
        *map(_tatoeba, ("de", "fr")),
    )
}

LIKE = ("paper", "t2t", "fairseq")  # values of --like; not every corpus has each
OPUS = "opus:"

_LANG = r"([A-Za-z]{2,8}(?:_[A-Za-z0-9]+)*)"
_OPUS_NAME = re.compile(r"opus:([A-Za-z0-9][A-Za-z0-9_.-]*)/([A-Za-z0-9][A-Za-z0-9_.-]*)")


def find_corpus(name: str, langs: str | None = None, like: str | None = None) -> Corpus:
    """Find a corpus by its name, perhaps with its languages exchanged, or by "opus:CORPUS/VERSION".

    `langs`, such as "en-de", is required for OPUS; `like` is one of LIKE, or None for our own preparation. Raises
    DataError for an unknown name, UsageError if the languages or `like` do not fit the corpus.
    """
    if name.startswith(OPUS):
        match = _OPUS_NAME.fullmatch(name)
        if not match:
            raise UsageError(f"{name!r} does not name a corpus at OPUS", "write it like opus:TED2020/v1 --langs en-de")
        if langs is None:
            raise UsageError(f"{name} needs --langs", "name the languages: --langs en-de")
        corpus = _opus(name, match[1], match[2], *parse_langs(langs))
    else:
        corpus = _find_named(name)
        if langs is not None and parse_langs(langs) != (corpus.src_lang, corpus.tgt_lang):
            problem = f"--langs is {langs}, but {name} is {corpus.src_lang}-{corpus.tgt_lang}"
            raise UsageError(problem, "remove --langs")
    if like is not None and like not in corpus.like:
        known = ", ".join(corpus.like) or "none"
        raise UsageError(f"{name} has no variant --like {like}", f"available: {known}")
    return corpus.like[like] if like else corpus


def _find_named(name: str) -> Corpus:
    directions = [*CORPORA.values(), *(corpus.reverse() for corpus in CORPORA.values() if corpus.train)]
    known = {each.name: each for direction in directions for each in (direction, *direction.like.values())}
    if name in known:
        return known[name]
    if Path(name).is_file():
        hint = "files go after --train, --valid or --test, a source and a target file each: --valid SRC TGT"
        raise UsageError(f"{name} is a file, but the name of a corpus belongs here", hint)
    hint = did_you_mean(name, CORPORA, unlisted=known) + " (for your own files: --train SRC TGT)"
    raise DataError(f"unknown corpus {name!r}", hint)


def parse_langs(text: str) -> tuple[str, str]:
    """Split "en-de" into two different language codes; raises UsageError."""
    match = re.fullmatch(f"{_LANG}-{_LANG}", text)
    if not match:
        raise UsageError(f"--langs is {text!r}, but must be source-target", "write it like en-de, or zh_Hans-en")
    if match[1] == match[2]:
        raise UsageError(f"--langs is {text!r}: source and target are the same", "write it like en-de")
    return match[1], match[2]
