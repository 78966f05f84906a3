"""The named corpora as a table, and how they are found. Counts are from public scripts or our own; some approximate.

`like` follows others in which corpora, which sub-words, which validation and test pairs and which limits they take.
It does not follow their tokenisation: text stays raw, since SentencePiece needs no other.
"""

import re
from dataclasses import replace

from aiayn_cli.corpora import archive_urls as archives
from aiayn_cli.corpora.corpus import Archive, Corpus, Part, TextFile
from aiayn_cli.errors import DataError, UsageError, did_you_mean

# Rules of ours that others do not have, for `like`; but text that is scored is never trained on.
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


def _wmt_part(name: str, archive: Archive, path: str, lang: str, pairs: int | None, approximate: bool = False) -> Part:
    """One corpus of WMT: two members that differ in their ends; `path` says what comes before the language's code."""
    sides = {code: TextFile(archive, path.format(code)) for code in ("en", lang)}
    return Part(name, sides, pairs=pairs, approximate=approximate)


def _newstest2013(lang: str, md5: dict[str, str]) -> Part:
    sides = {code: TextFile(archives.WMT19_DEV, f"dev/newstest2013.{code}") for code in ("en", lang)}
    return Part("newstest2013", sides, pairs=3_000, md5=md5)


def _newstest2014(lang: str, md5: dict[str, str]) -> Part:
    member = f"dev/newstest2014-{lang}en-{{role}}.%s.sgm"
    sides = {code: TextFile(archives.WMT19_DEV, member % code) for code in ("en", lang)}
    return Part("newstest2014", sides, "segments", pairs=3_003, md5=md5)


_EN_2013 = "23be23d7b9bd5ad1f2ebd076484332c9"

_EUROPARL_DE = _wmt_part("europarl-v7", archives.EUROPARL_V7, "training/europarl-v7.de-en.{}", "de", 1_920_209)
_COMMON_CRAWL_DE = _wmt_part("commoncrawl", archives.COMMON_CRAWL, "commoncrawl.de-en.{}", "de", 2_399_123)
_NEWS_COMMENTARY_DE = {
    9: _wmt_part(
        "news-commentary-v9", archives.NEWS_COMMENTARY_V9, "training/news-commentary-v9.de-en.{}", "de", 201_288
    ),
    11: _wmt_part(
        "news-commentary-v11",
        archives.NEWS_COMMENTARY_V11,
        "training-parallel-nc-v11/news-commentary-v11.de-en.{}",
        "de",
        None,
    ),
    12: _wmt_part(
        "news-commentary-v12",
        archives.NEWS_COMMENTARY_V12,
        "training/news-commentary-v12.de-en.{}",
        "de",
        270_769,
        approximate=True,
    ),
    13: _wmt_part(
        "news-commentary-v13",
        archives.NEWS_COMMENTARY_V13,
        "training-parallel-nc-v13/news-commentary-v13.de-en.{}",
        "de",
        None,
    ),
}

_WMT14_EN_DE = Corpus(
    "wmt14-en-de",
    "en",
    "de",
    37_000,  # paper, Section 5.1
    "Europarl v7, Common Crawl, News Commentary v9; newstest2013, newstest2014 (the paper's 3,003 lines)",
    _WMT,
    train=(_EUROPARL_DE, _COMMON_CRAWL_DE, _NEWS_COMMENTARY_DE[9]),
    valid=(_newstest2013("de", {"en": _EN_2013, "de": "872891e01855b43f2a87155e0c1d2076"}),),
    test=(_newstest2014("de", {"en": "dabf51a9c02b2235632f3cee75c72d49", "de": "f6c3818b477e4a25cad68b61cc883c17"}),),
)
_WMT14_EN_DE = replace(
    _WMT14_EN_DE,
    like={
        # The set of the study that the paper cites for byte-pair encoding has the training text of WMT16.
        "paper": replace(
            _WMT14_EN_DE,
            name="wmt14-en-de-paper",
            description="with News Commentary v11, which the paper's own program read",
            train=(_EUROPARL_DE, _COMMON_CRAWL_DE, _NEWS_COMMENTARY_DE[11]),
            settings=_UNCLEANED,
        ),
        "t2t": replace(
            _WMT14_EN_DE,
            name="wmt14-en-de-t2t",
            vocab_size=33_708,  # entries of its sub-word vocabulary "32k"
            description="with News Commentary v13, as later versions of Tensor2Tensor",
            train=(_EUROPARL_DE, _COMMON_CRAWL_DE, _NEWS_COMMENTARY_DE[13]),
            settings=_UNCLEANED,
        ),
        "fairseq": replace(
            _WMT14_EN_DE,
            name="wmt14-en-de-fairseq",
            vocab_size=40_000,  # merges
            description="with News Commentary v12; each 100th training pair is for validation",
            train=(_EUROPARL_DE, _COMMON_CRAWL_DE, _NEWS_COMMENTARY_DE[12]),
            valid=(),
            valid_every=100,
            settings={**_UNCLEANED, "max_length": 250, "max_ratio": 1.5},
        ),
    },
)

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
        _wmt_part(
            "news-commentary-v9",
            archives.NEWS_COMMENTARY_V9,
            "training/news-commentary-v9.fr-en.{}",
            "fr",
            183_251,
            approximate=True,
        ),
        _wmt_part("giga", archives.GIGA_FREN, "giga-fren.release2.fixed.{}.gz", "fr", 22_520_400, approximate=True),
    ),
    valid=(_newstest2013("fr", {"en": _EN_2013, "fr": "77db6a3d2259d00b4d5f45009a3ed375"}),),
    test=(_newstest2014("fr", {"en": "4cc6542f5c0d54eac01c662854af6eb9", "fr": "47ce6cd70093425f4bf5f2738c69f35b"}),),
)
_WMT14_EN_FR = replace(
    _WMT14_EN_FR,
    like={
        "paper": replace(
            _WMT14_EN_FR, name="wmt14-en-fr-paper", description="as above, but uncleaned", settings=_UNCLEANED
        ),
        "t2t": replace(
            _WMT14_EN_FR,
            name="wmt14-en-fr-t2t",
            vocab_size=32_768,
            description="as above, but uncleaned, and 2^15 sub-words",
            settings=_UNCLEANED,
        ),
        "fairseq": replace(
            _WMT14_EN_FR,
            name="wmt14-en-fr-fairseq",
            vocab_size=40_000,  # merges
            description="each 1,333rd training pair is for validation",
            valid=(),
            valid_every=1_333,
            settings={**_UNCLEANED, "max_length": 250, "max_ratio": 1.5},
        ),
    },
)


def _ted_part(name: str, archive: Archive, langs: str, pairs: int | None = None) -> Part:
    sides = {code: TextFile(archive, f"{langs}/{name}.{langs}.{code}.xml") for code in langs.split("-")}
    return Part(name, sides, "segments", pairs=pairs)


def _iwslt14() -> Corpus:
    archive = archives.IWSLT14_DE_EN
    sides = {code: TextFile(archive, f"de-en/train.tags.de-en.{code}") for code in ("de", "en")}
    tests = ("IWSLT14.TED.dev2010", "IWSLT14.TEDX.dev2012", *(f"IWSLT14.TED.tst{year}" for year in (2010, 2011, 2012)))
    corpus = Corpus(
        "iwslt14-de-en",
        "de",
        "en",
        10_000,  # merges of fairseq's script, whose split this is too
        "TED talks; each 23rd training pair is for validation, dev2010 to tst2012 (6,750 pairs) are the test",
        _TED,
        # fairseq's script keeps 160,239 for training and 7,283 for validation, after its own cleaning.
        train=(Part("ted", sides, "talks", pairs=167_522, approximate=True, titles=True),),
        test=tuple(_ted_part(name, archive, "de-en") for name in tests),
        valid_every=23,
    )
    fairseq = replace(
        corpus,
        name="iwslt14-de-en-fairseq",
        description="with the script's limits of length; but the text keeps its case, and is not tokenised",
        settings={**_UNCLEANED, "max_length": 175, "max_ratio": 1.5},
    )
    return replace(corpus, like={"fairseq": fairseq})


def _iwslt17(lang: str, archive: Archive, pairs: int, valid_pairs: int) -> Corpus:
    langs = f"{lang}-en"
    sides = {code: TextFile(archive, f"{langs}/train.tags.{langs}.{code}") for code in (lang, "en")}
    return Corpus(
        f"iwslt17-{langs}",
        lang,
        "en",
        16_000,
        "TED talks; dev2010 for validation, tst2010 to tst2015 for the test",
        _TED,
        # As others count, who look at one side for tags; lines with a tag on either side are none of ours.
        train=(Part("ted", sides, "talks", pairs=pairs, approximate=True),),
        valid=(_ted_part("IWSLT17.TED.dev2010", archive, langs, valid_pairs),),
        test=tuple(_ted_part(f"IWSLT17.TED.tst{year}", archive, langs) for year in range(2010, 2016)),
    )


def _multi30k(lang: str) -> Corpus:
    def part(split: str, pairs: int) -> Part:
        return Part(split, {code: TextFile(archives.MULTI30K[split, code]) for code in ("en", lang)}, pairs=pairs)

    return Corpus(
        f"multi30k-en-{lang}",
        "en",
        lang,
        8_000,
        "captions of pictures; val for validation, test_2016_flickr for the test",
        "research use; its repository has no licence",
        train=(part("train", 29_000),),
        valid=(part("val", 1_014),),
        test=(part("test_2016_flickr", 1_000),),
    )


def opus_corpus(name: str, corpus: str, version: str, src_lang: str, tgt_lang: str) -> Corpus:
    """Describe a corpus at OPUS, spelt as there: training pairs only, of unknown size."""
    first, second = sorted((src_lang, tgt_lang))
    archive = archives.opus_archive(corpus, version, (first, second))
    sides = {code: TextFile(archive, f"{corpus}.{first}-{second}.{code}") for code in (src_lang, tgt_lang)}
    part = Part(f"{corpus}-{version}", sides)
    licence = "see opus.nlpl.eu"
    return Corpus(name, src_lang, tgt_lang, 16_000, f"{corpus} {version} from OPUS", licence, train=(part,))


def _tatoeba(lang: str) -> Corpus:
    corpus = opus_corpus(f"tatoeba-en-{lang}", "Tatoeba", "v2023-04-12", "en", lang)
    description = "short general sentences, version 2023-04-12; validation pairs are held out"
    return replace(corpus, vocab_size=8_000, description=description, licence="CC BY 2.0, tatoeba.org")


CORPORA = {
    corpus.name: corpus
    for corpus in (
        Corpus(
            "demo",
            "en",
            "de",
            2_800,
            "24,000 sentences made by a small English-German grammar; built in, no network needed",
            "as this program",
            settings={"case_copies": 0.0},
        ),
        _WMT14_EN_DE,
        _WMT14_EN_FR,
        _iwslt14(),
        _iwslt17("de", archives.IWSLT17_DE_EN, 206_112, 888),
        _iwslt17("fr", archives.IWSLT17_FR_EN, 232_825, 890),
        _multi30k("de"),
        _multi30k("fr"),
        _multi30k("cs"),
        _tatoeba("de"),
        _tatoeba("fr"),
    )
}

LIKE = ("paper", "t2t", "fairseq")  # values of --like; not every corpus has each
OPUS = "opus:"

_LANGS = re.compile(r"([A-Za-z]{2,8}(?:_[A-Za-z0-9]+)*)-([A-Za-z]{2,8}(?:_[A-Za-z0-9]+)*)")
_OPUS_NAME = re.compile(r"opus:([A-Za-z0-9][A-Za-z0-9_.-]*)/([A-Za-z0-9][A-Za-z0-9_.-]*)")


def find_corpus(name: str, langs: str | None = None, like: str | None = None) -> Corpus:
    """Find a corpus by name.

    Args:
        name: a name of the table, perhaps with its languages exchanged, or "opus:CORPUS/VERSION".
        langs: such as "en-de": needed for OPUS; elsewhere they must agree with the name.
        like: whose preparation to follow, of LIKE; None follows ours.
    Raises:
        DataError: no corpus has this name; the nearest is named.
        UsageError: the languages or `like` do not fit the corpus.
    """
    if name.startswith(OPUS):
        corpus = _find_opus(name, langs)
    else:
        corpus = _find_named(name)
        own_langs = f"{corpus.src_lang}-{corpus.tgt_lang}"
        if langs is not None and parse_langs(langs) != (corpus.src_lang, corpus.tgt_lang):
            raise UsageError(f"--langs is {langs}, but {name} is {own_langs}", "leave out --langs")
    if like is None:
        return corpus
    if like not in corpus.like:
        known = ", ".join(corpus.like) or "none"
        raise UsageError(f"--like {like} is not known for {name}", f"known for it: {known}")
    return corpus.like[like]


def _find_named(name: str) -> Corpus:
    directions = [
        each for corpus in CORPORA.values() for each in ((corpus, corpus.reverse()) if corpus.train else (corpus,))
    ]
    known = {each.name: each for direction in directions for each in (direction, *direction.like.values())}
    if name in known:
        return known[name]
    hint = did_you_mean(name, CORPORA, unlisted=known) + " (for files of your own give --train)"
    raise DataError(f"unknown corpus {name!r}", hint)


def _find_opus(name: str, langs: str | None) -> Corpus:
    match = _OPUS_NAME.fullmatch(name)
    if not match:
        raise UsageError(f"{name!r} names no corpus at OPUS", "write it like opus:TED2020/v1 --langs en-de")
    if langs is None:
        raise UsageError(f"{name} without --langs", "say which languages, such as --langs en-de")
    corpus, version = match.groups()
    src_lang, tgt_lang = parse_langs(langs)
    return opus_corpus(name, corpus, version, src_lang, tgt_lang)


def parse_langs(text: str) -> tuple[str, str]:
    """Split "en-de" into source and target language.

    Raises:
        UsageError: not two different language codes.
    """
    match = _LANGS.fullmatch(text)
    if not match:
        raise UsageError(f"--langs is {text!r}, but must be source-target", "write it like en-de, or zh_Hans-en")
    src, tgt = match.groups()
    if src == tgt:
        raise UsageError(f"--langs is {text!r}: source and target are the same", "write it like en-de")
    return src, tgt
