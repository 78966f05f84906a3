"""Splitters of sentences on the cases of tests/text/test_sentences.py: how many are right, and lines a second.

python tests/benchmarks/sentences.py      # ours and sentencex; pysbd and blingfire too where they are installed
"""

import importlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "text"))
from test_sentences import SENTENCES, WITHOUT_BLANKS

from aiayn_cli.text.sentences import split_sentences

Split = Callable[[str, str], list[str]]
SECONDS = 2.0


def main() -> None:
    cases = [
        (lang, sentences, ("" if lang in WITHOUT_BLANKS else " ").join(sentences)) for lang, sentences in SENTENCES
    ]
    languages = len({lang for lang, *_ in cases})
    print(f"{len(cases)} lines in {languages} languages    right   lines/s (English)")
    for name, split in splitters().items():
        right = sum(split(line, lang) == sentences for lang, sentences, line in cases)
        english = [line for lang, _, line in cases if lang == "en"]
        started, done = time.perf_counter(), 0
        while time.perf_counter() - started < SECONDS:
            for line in english:
                split(line, "en")
            done += len(english)
        print(f"{name:28}{right:8}{done / (time.perf_counter() - started):10,.0f}")


def splitters() -> dict[str, Split]:
    import sentencex

    found: dict[str, Split] = {
        "aiayn": split_sentences,
        "sentencex": lambda t, lang: stripped(sentencex.segment(lang, t)),
    }
    if pysbd := installed("pysbd"):
        known = pysbd.languages.LANGUAGE_CODES
        made: dict[str, Any] = {}

        def by_pysbd(text: str, lang: str) -> list[str]:
            code = lang if lang in known else "en"
            if code not in made:
                made[code] = pysbd.Segmenter(language=code, clean=False)
            return stripped(made[code].segment(text))

        found["pysbd"] = by_pysbd
    if blingfire := installed("blingfire"):
        found["blingfire"] = lambda text, _: stripped(blingfire.text_to_sentences(text).split("\n"))
    return found


def installed(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def stripped(parts: list[str]) -> list[str]:
    return [part.strip() for part in parts if part.strip()]


if __name__ == "__main__":
    main()
