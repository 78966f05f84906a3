"""Deals with translations that look wrong: keeps, retries, replaces or refuses them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from aiayn_cli.recipe_keys import MOST_HYPOTHESES
from aiayn_cli.translate.aids.markup import MarkupTranslator
from aiayn_cli.translate.line_translator import LineTranslator, Translation
from aiayn_cli.translate.options import OnSuspect, SearchOptions
from aiayn_cli.translate.search.sentence_search import LONGEST_SOURCE
from aiayn_cli.translate.trust.flags import OutputChecks

AnyTranslator = LineTranslator | MarkupTranslator

_BLOCKED_NGRAM = 3
_BEYOND_SEARCH = {"unknown_symbols", "too_long"}  # what no other search can mend
_SHORTEST_PART = 8  # sub-words into which a line is cut at least

Search = Callable[[Sequence[str], None, Sequence[str]], list[list[Translation]]]  # as translate_n_best()


@dataclass(frozen=True)
class Judged:
    """The outputs for a line, and the flags of the best one."""

    outputs: Sequence[Translation]
    flags: tuple[str, ...]  # names of flags.FLAGS; those of the last attempt that was kept
    first_flags: tuple[str, ...] = ()  # those of the first attempt
    tried: tuple[str, ...] = ()  # other searches that were made, in order
    helped: str | None = None  # the search that gave these outputs; None = the first one
    replaced_by: str | None = None  # "empty" or "copy" if no search's output was trusted


class Judge:
    """Checks outputs and deals with those that look wrong.

    Args:
        on_suspect: "keep" leaves them; "retry" searches again: without repeating any three sub-words and not
            ending at once, then with twice the beam, then in two or more parts; "empty" and "copy" give nothing or
            the source instead; "fail" leaves them to the caller.
        is_text: False for trees, in which brackets repeat and a sentence has no parts: "retry" only doubles the beam.
    """

    def __init__(
        self, translator: AnyTranslator, checks: OutputChecks, on_suspect: OnSuspect, *, is_text: bool = True
    ) -> None:
        self._translator, self._checks, self._on_suspect = translator, checks, on_suspect
        self._is_text = is_text

    def judge(
        self, lines: Sequence[str], outputs: Sequence[Sequence[Translation]], prefixes: Sequence[str] = ()
    ) -> list[Judged]:
        """Judge the outputs for some lines, the best one of each first; prefixes as the translator was told."""
        judged = []
        for line, each in zip(lines, outputs, strict=True):
            flags = self._checks.flags(line, each[0])
            judged.append(Judged(each, flags, first_flags=flags))
        if self._on_suspect == "retry":
            for name, search in self._ladder():
                suspects = [number for number, each in enumerate(judged) if set(each.flags) - _BEYOND_SEARCH]
                if not suspects:
                    break
                found = search([lines[i] for i in suspects], None, [prefixes[i] for i in suspects] if prefixes else [])
                for number, attempt in zip(suspects, found, strict=True):
                    judged[number] = self._better(lines[number], judged[number], name, attempt)
        return [self._replaced(line, each) for line, each in zip(lines, judged, strict=True)]

    def _ladder(self) -> list[tuple[str, Search]]:
        translator, options = self._translator, self._translator.options
        blocked = replace(
            options,
            no_repeat_ngram=min(options.no_repeat_ngram or _BLOCKED_NGRAM, _BLOCKED_NGRAM),
            min_length=max(options.min_length, 1),
        )
        wider = replace(translator.decoding, beam_size=min(2 * translator.decoding.beam_size, MOST_HYPOTHESES))

        larger_beam = translator.variant(options=blocked if self._is_text else options, decoding=wider)
        ladder: list[tuple[str, Search]] = []
        if options.sampling is None:  # samples have no beam
            ladder.append(("larger_beam", larger_beam.translate_n_best))
        if not self._is_text:
            return ladder
        no_repeat = translator.variant(options=blocked).translate_n_best
        return [("no_repeat", no_repeat), *ladder, ("split", partial(self._in_parts, blocked))]

    def _in_parts(
        self, options: SearchOptions, lines: Sequence[str], _: None, prefixes: Sequence[str]
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
        return replace(judged, outputs=[Translation(text)] * len(judged.outputs), replaced_by=self._on_suspect)
