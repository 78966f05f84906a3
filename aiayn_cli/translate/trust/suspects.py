"""What is done about a translation that looks wrong: kept, tried again in other ways, replaced, or refused."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from aiayn_cli.config import MOST_HYPOTHESES
from aiayn_cli.translate.aids.markup_translator import MarkupTranslator
from aiayn_cli.translate.options import OnSuspect, SearchOptions
from aiayn_cli.translate.search.sentence_search import LONGEST_SOURCE
from aiayn_cli.translate.translation import Translation
from aiayn_cli.translate.translator import Translator
from aiayn_cli.translate.trust.flags import OutputChecks

AnyTranslator = Translator | MarkupTranslator

_BLOCKED_NGRAM = 3
_BEYOND_SEARCH = {"unknown_symbols", "too_long"}  # what no other search can mend
_SHORTEST_PART = 8  # sub-words into which a line is cut at least


@dataclass(frozen=True)
class Judged:
    """The outputs for a line, and what is thought of the best one.

    Attributes:
        outputs: of the line.
        flags: names of flags.FLAGS; those of the last attempt that was kept.
        first_flags: those of the first attempt.
        tried: other searches that were made, in order.
        helped: the one whose outputs these are; None = the first search.
        replaced_by: "empty" or "copy" where no search's output was trusted.
    """

    outputs: Sequence[Translation]
    flags: tuple[str, ...]
    first_flags: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()
    helped: str | None = None
    replaced_by: str | None = None


class Judge:
    """Looks at outputs and does what was asked for about those that look wrong.

    Args:
        translator: whose outputs they are.
        checks: for its languages.
        on_suspect: "keep" leaves them; "retry" searches again: without repeating any three sub-words and not
            ending at once, then with twice the beam, then in two or more parts; "empty" and "copy" give nothing or
            the source instead; "fail" leaves them to the caller.
        is_text: False where outputs are trees, in which brackets do come again and a sentence has no parts: then
            "retry" is twice the beam alone.
    """

    def __init__(
        self, translator: AnyTranslator, checks: OutputChecks, on_suspect: OnSuspect, *, is_text: bool = True
    ) -> None:
        self._translator, self._checks, self._on_suspect = translator, checks, on_suspect
        self._is_text = is_text

    def judge(
        self, lines: Sequence[str], outputs: Sequence[Sequence[Translation]], prefixes: Sequence[str] = ()
    ) -> list[Judged]:
        """Judge the outputs for some lines, in order.

        Args:
            lines: the sources.
            outputs: for each line, the best one first.
            prefixes: how the outputs had to begin, as the translator was told.
        """
        judged = []
        for line, each in zip(lines, outputs, strict=True):
            flags = self._checks.flags(line, each[0])
            judged.append(Judged(each, flags, first_flags=flags))
        if self._on_suspect == "retry":
            for name, search in self._ladder():
                suspects = [number for number, each in enumerate(judged) if set(each.flags) - _BEYOND_SEARCH]
                found = search([lines[i] for i in suspects], [prefixes[i] for i in suspects] if prefixes else [])
                for number, attempt in zip(suspects, found, strict=True):
                    judged[number] = self._better(lines[number], judged[number], name, attempt)
        return [self._replaced(line, each) for line, each in zip(lines, judged, strict=True)]

    def _ladder(self) -> list[tuple[str, Callable[[Sequence[str], Sequence[str]], list[list[Translation]]]]]:
        """Ways to search again, the cheapest first."""
        translator = self._translator
        options = translator.options
        blocked = replace(
            options,
            no_repeat_ngram=min(options.no_repeat_ngram or _BLOCKED_NGRAM, _BLOCKED_NGRAM),
            min_length=max(options.min_length, 1),
        )
        wider = replace(translator.decoding, beam_size=min(2 * translator.decoding.beam_size, MOST_HYPOTHESES))

        def search(variant: AnyTranslator) -> Callable[[Sequence[str], Sequence[str]], list[list[Translation]]]:
            return lambda lines, prefixes: variant.translate_n_best(lines, None, prefixes) if lines else []

        if not self._is_text:
            only = ("larger_beam", search(translator.variant(decoding=wider)))
            return [only] if options.sampling is None else []
        ladder = [
            ("no_repeat", search(translator.variant(options=blocked))),
            ("larger_beam", search(translator.variant(options=blocked, decoding=wider))),
            ("split", lambda lines, prefixes: self._in_parts(lines, prefixes, blocked)),
        ]
        return [rung for rung in ladder if rung[0] != "larger_beam" or options.sampling is None]  # samples have no beam

    def _in_parts(
        self, lines: Sequence[str], prefixes: Sequence[str], options: SearchOptions
    ) -> list[list[Translation]]:
        found = []
        for number, line in enumerate(lines):
            longest = min(self._translator.count_sub_words(line), LONGEST_SOURCE)  # of a pass of the first search
            limit = max((longest + 1) // 2, _SHORTEST_PART)
            variant = self._translator.variant(options=options, longest_source=limit)
            found += variant.translate_n_best([line], None, prefixes[number : number + 1])
        return found

    def _better(self, line: str, before: Judged, name: str, outputs: Sequence[Translation]) -> Judged:
        flags = self._checks.flags(line, outputs[0])
        if len(flags) < len(before.flags):
            before = replace(before, outputs=outputs, flags=flags, helped=name)
        return replace(before, tried=(*before.tried, name))

    def _replaced(self, line: str, judged: Judged) -> Judged:
        if not judged.flags or self._on_suspect not in ("empty", "copy"):
            return judged
        text = line if self._on_suspect == "copy" else ""
        # A score of the output that nobody sees would be taken for one of the text that stands there now.
        outputs = [Translation(text, -math.inf, -math.inf)] * len(judged.outputs)
        return replace(judged, outputs=outputs, replaced_by=self._on_suspect)
