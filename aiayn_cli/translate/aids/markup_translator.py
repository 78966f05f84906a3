"""A translator of text with markup: every tag, placeholder and address comes through exactly once."""

from collections.abc import Sequence
from dataclasses import replace

from aiayn_cli.config import DecodingConfig
from aiayn_cli.translate.aids.markup import Item, find_markup, find_placeholders, put_back, take_out
from aiayn_cli.translate.options import SearchOptions
from aiayn_cli.translate.translation import Translation
from aiayn_cli.translate.translator import Translator


class MarkupTranslator:
    """Translates text without its markup, and puts that back by the alignment of words.

    Placeholders and addresses are left in the text at first, since a sentence may need the word that they stand for.
    Where the model does not bring each of them through, the line is translated again without them.

    Args:
        translator: does the work. Its models have to be Transformers of raw text.
    """

    def __init__(self, translator: Translator) -> None:
        self._translator = translator

    @property
    def decoding(self) -> DecodingConfig:
        """The translator's."""
        return self._translator.decoding

    @property
    def options(self) -> SearchOptions:
        """The translator's."""
        return self._translator.options

    def count_sub_words(self, line: str) -> int:
        """How many sub-words the model reads for a line without its markup."""
        return self._translator.count_sub_words(take_out(line, placeholders=True)[0])

    def variant(
        self,
        *,
        decoding: DecodingConfig | None = None,
        options: SearchOptions | None = None,
        longest_source: int | None = None,
    ) -> "MarkupTranslator":
        """One that searches in another way; see Translator."""
        return MarkupTranslator(
            self._translator.variant(decoding=decoding, options=options, longest_source=longest_source)
        )

    def translate_n_best(
        self, lines: Sequence[str], first_line: int | None = 1, prefixes: Sequence[str] = ()
    ) -> list[list[Translation]]:
        """Translate lines; see Translator. A line of nothing but markup comes out as it is."""
        taken = [take_out(line, placeholders=False) for line in lines]
        outputs = self._translator.translate_n_best([plain for plain, _ in taken], first_line, prefixes)
        lost = [
            number
            for number, (plain, _) in enumerate(taken)
            if (wanted := find_placeholders(plain))
            and any(find_markup(each.text) != wanted for each in outputs[number])
        ]
        if lost:
            for number in lost:
                taken[number] = take_out(lines[number], placeholders=True)
            again = self._translator.translate_n_best(
                [taken[number][0] for number in lost], None, [prefixes[n] for n in lost] if prefixes else ()
            )
            for number, each in zip(lost, again, strict=True):
                outputs[number] = each
        return self._restored(taken, outputs)

    def _restored(
        self, taken: Sequence[tuple[str, tuple[Item, ...]]], outputs: list[list[Translation]]
    ) -> list[list[Translation]]:
        wanted = [number for number, (_, items) in enumerate(taken) if items]
        flat = [each for number in wanted for each in outputs[number]]
        details = iter(self._translator.second_pass().details(flat, with_alignment=True) if flat else ())
        for number in wanted:
            plain, items = taken[number]
            outputs[number] = [
                replace(each, text=put_back(plain, items, each.text, next(details).alignment))
                for each in outputs[number]
            ]
        return outputs
