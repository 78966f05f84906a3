"""Punctuation normalisation and tokenisation as the Moses scripts do them, through the optional package sacremoses.

The default is raw text. These two are for comparison with work that used the scripts, and for text whose quotation
marks and dashes vary without meaning.
"""

import importlib
from collections.abc import Iterable, Sequence
from typing import Any

from aiayn_cli.errors import DataError
from aiayn_cli.recipe_keys import TextConfig
from aiayn_cli.text.languages import primary_language


class MosesText:
    """Processing of the text of one language before it is split into sub-words, undone after."""

    def __init__(self, config: TextConfig, lang: str) -> None:
        code = primary_language(lang)  # what Moses does not know is treated like English
        self._normaliser = _sacremoses().MosesPunctNormalizer(code) if config.normalise_punctuation else None
        self._tokeniser = _sacremoses().MosesTokenizer(code) if config.moses_tokenise else None
        self._detokeniser = _sacremoses().MosesDetokenizer(code) if config.moses_tokenise else None

    def apply(self, records: Iterable[str]) -> list[str]:
        """The records as the model reads and writes them; a record that would become empty stays as it is."""
        return [self._apply(record) or record for record in records]

    def undo(self, records: Sequence[str]) -> list[str]:
        """Records that the model wrote, as people write them."""
        if self._detokeniser is None:
            return list(records)
        return [self._detokeniser.detokenize(record.split(" "), unescape=False) for record in records]

    def _apply(self, record: str) -> str:
        if self._normaliser is not None:
            record = self._normaliser.normalize(record)
        if self._tokeniser is not None:
            record = self._tokeniser.tokenize(record, escape=False, return_str=True)
        return record


def rules_of(lang: str) -> str:
    """The language whose rules Moses applies: "de", or "en for hr" for a language that it does not know."""
    code = primary_language(lang)
    known = _sacremoses().corpus.NonbreakingPrefixes().available_langs.values()
    return code if code in known else f"en for {code}"


def _sacremoses() -> Any:
    try:
        return importlib.import_module("sacremoses")  # here, because few need it
    except ImportError as error:
        raise DataError(
            "punctuation normalisation and Moses tokenisation need the package sacremoses",
            "pip install '.[moses]' in a checkout, or turn both off",
        ) from error
