"""The archives of named corpora. Sources of sizes and hashes:

* statmt.org: the checksum files of TensorFlow Datasets; for the zips on the Hugging Face hub, which hold the same
  members, the old dataset_infos.json of Hugging Face's wmt14;
* IWSLT 2017: MD5 from sacreBLEU's table; for the copies on the hub the dataset_infos.json of iwslt2017;
* Multi30k: computed from the files.

An archive without a published hash has no URL without TLS; manifest.json records what was downloaded.
"""

from aiayn_cli.corpora.corpus import Archive

_HUB = "https://huggingface.co/datasets"
_OPUS = "https://object.pouta.csc.fi"
_MULTI30K = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
_WIT3 = "https://raw.githubusercontent.com/hlt-mt/WIT3/master/archive/2017-01-trnted/texts"
_IWSLT17_ON_HUB = f"{_HUB}/iwslt2017/resolve/ebd7c60d9800c2a1be010a227e5f0a2363730f7a/data/2017-01-trnted/texts"


def _statmt(path: str, size: int, sha256: str, instead: Archive | None = None) -> Archive:
    hosts = ("data.statmt.org", "data.statmt.org") if "translation-task" in path else ("statmt.org", "www.statmt.org")
    urls = (f"https://{hosts[0]}/{path}", f"http://{hosts[1]}/{path}")
    return Archive(_file_name(path), urls, bytes=size, sha256=sha256, instead=instead)


def _hub_zip(path: str, size: int, sha256: str) -> Archive:
    year, _, rest = path.partition("/")
    return Archive(_file_name(path), (f"{_HUB}/wmt/{year}/resolve/main-zip/{rest}",), bytes=size, sha256=sha256)


def _file_name(path: str) -> str:
    return f"{path.partition('/')[0]}-{path.rpartition('/')[2]}"  # wmt19-dev.tgz: there are many dev.tgz


# fmt: off
EUROPARL_V7 = _statmt(
    "wmt13/training-parallel-europarl-v7.tgz", 657_632_379, "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
    _hub_zip("wmt13/training-parallel-europarl-v7.zip", 658_092_427, "5b2d8b32c2396da739b4e731871c597fcc6e75729becd74619d0712eecf7770e"),
)
COMMON_CRAWL = _statmt(
    "wmt13/training-parallel-commoncrawl.tgz", 918_311_367, "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
    _hub_zip("wmt13/training-parallel-commoncrawl.zip", 918_734_483, "5ffe980072ea29adfd84568d099bea366d9f72772b988e670794ae851b4e5627"),
)
UN = _statmt(
    "wmt13/training-parallel-un.tgz", 2_365_634_246, "29141b5c1eba149a94f7a59d3b1a834b2e47fe0f8758d68dcd77a3d3f497ee47",
    _hub_zip("wmt13/training-parallel-un.zip", 2_366_237_633, "74f07002e053c81bc7f73b4fdab58e7987e831338748f264cbda82a8b062d2e2"),
)
GIGA_FREN = _statmt(
    "wmt10/training-giga-fren.tar", 2_595_102_720, "3ff8319f6919393520559bfbc7ad6a747ec81b3abc7be9993b338d4b017b4d9a",
    _hub_zip("wmt10/training-giga-fren.zip", 2_595_877_717, "9439f86523e5dff3f923526dbf6c6929da1786c18dbf64436d2b7564b83aaba3"),
)
NEWS_COMMENTARY = {  # by version
    9: _statmt(
        "wmt14/training-parallel-nc-v9.tgz", 80_418_416, "cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
        _hub_zip("wmt14/training-parallel-nc-v9.zip", 80_462_375, "ce199f93ec56ff480137ba29f0819f9a22e70d88be6d7458f112303d67d623d5"),
    ),
    11: _statmt("wmt16/translation-task/training-parallel-nc-v11.tgz", 75_178_032, "cfe8ab047e05043476e498ee765c98e939c7b7d6d294e856344c84476b619d6a"),
    12: _statmt("wmt17/translation-task/training-parallel-nc-v12.tgz", 168_591_139, "2b45f30ef1d550d302fd17dd3a5cbe19134ccc4c2cf50c2dae534aee600101a2"),
    13: _statmt("wmt18/translation-task/training-parallel-nc-v13.tgz", 113_157_482, "17992b7e919cfb754c60f4e754148bc23b80706ad0ed7b34150831a554b40c91"),
}
WMT19_DEV = _statmt(
    "wmt19/translation-task/dev.tgz", 38_654_961, "7a7deccf82ebb05ba508dba5eb21356492224e8f630ec4f992132b029b4b25e7",
    _hub_zip("wmt19/translation-task/dev.zip", 38_714_274, "d796e363740fdc4261aa6f5a3d2f8223e3adaee7d737b7724863325b8956dfd1"),
)
# fmt: on

IWSLT14_DE_EN = Archive("iwslt14-de-en.tgz", ("https://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz",))


def _iwslt17(lang: str, size: int, md5: str, sha256: str) -> Archive:
    """The archive of WIT3, of which only the MD5 is published; its size is that of the copy on the hub."""
    name, path = f"iwslt17-{lang}-en", f"{lang}/en/{lang}-en.tgz"
    copy = Archive(f"{name}-hub.tgz", (f"{_IWSLT17_ON_HUB}/{path}",), bytes=size, sha256=sha256)
    return Archive(f"{name}.tgz", (f"{_WIT3}/{path}",), bytes=size, approximate=True, md5=md5, instead=copy)


# fmt: off
IWSLT17_DE_EN = _iwslt17(
    "de", 16_751_373, "ca2b94d694150d4d6c5dc64c200fa589",
    "ebcd53c53c8df742437e3a0fb964772e78764c3f6d4e38df0b6a2f71abc3a8b4",
)
IWSLT17_FR_EN = _iwslt17(
    "fr", 26_872_507, "19927da9de0f40348cad9c0fc61642ac",
    "a40ca3b9a0064bd1fd582df4ced260dd3e7ff9f6f7bf863f139f74b7a5cabd78",
)
# fmt: on

_MULTI30K_FILES: dict[tuple[str, str], tuple[int | None, str]] = {
    ("train", "en"): (568_929, "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f"),
    ("train", "de"): (637_044, "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6"),
    ("train", "fr"): (604_242, "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c"),
    ("train", "cs"): (593_827, "a65adb8b32e3bc664f21ecba7a6e7f6950fd1f405e135f7c312faabdb6255077"),
    ("val", "en"): (21_650, "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28"),
    ("val", "de"): (24_681, "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a"),
    ("val", "fr"): (None, "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9"),
    ("val", "cs"): (None, "b63226e05c4bd5dd6a42897d74b86a1b9d2c31498252c572b1ea7f7996927fcc"),
    ("test_2016_flickr", "en"): (21_077, "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9"),
    ("test_2016_flickr", "de"): (22_890, "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8"),
    ("test_2016_flickr", "fr"): (None, "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90"),
    ("test_2016_flickr", "cs"): (None, ""),
}
_ABOUT_A_SMALL_FILE = 23_000  # bytes; those of the same splits that were measured have 21,077 to 24,681


MULTI30K = {  # by split and language
    (split, lang): Archive(
        f"multi30k-{split}.{lang}.gz",
        (f"{_MULTI30K}/{split}.{lang}.gz",),
        bytes=size or _ABOUT_A_SMALL_FILE,
        approximate=size is None,
        sha256=sha256,
    )
    for (split, lang), (size, sha256) in _MULTI30K_FILES.items()
}


def opus_archive(corpus: str, version: str, pair: tuple[str, str]) -> Archive:
    """Name the archive of a corpus at OPUS, such as TED2020, v1 and (de, en): the languages in alphabetical order."""
    langs = "-".join(pair)
    url = f"{_OPUS}/OPUS-{corpus}/{version}/moses/{langs}.txt.zip"
    return Archive(f"opus-{corpus}-{version}-{langs}.txt.zip", (url,))
