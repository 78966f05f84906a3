"""Deals with translations that look wrong: keeps, retries, replaces or refuses them, and reports on that."""

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from aiayn_cli import logs
from aiayn_cli.config import MOST_HYPOTHESES
from aiayn_cli.translate.aids.markup import MarkupTranslator
from aiayn_cli.translate.line_translator import LineTranslator, Translation
from aiayn_cli.translate.options import OnSuspect, SearchOptions
from aiayn_cli.translate.search.sentence_search import LONGEST_SOURCE
from aiayn_cli.translate.trust.flags import FLAGS, OutputChecks

AnyTranslator = LineTranslator | MarkupTranslator

_BLOCKED_NGRAM = 3
_BEYOND_SEARCH = {"unknown_symbols", "too_long"}  # what no other search can mend
_SHORTEST_PART = 8  # sub-words into which a line is cut at least


Search = Callable[[Sequence[str], Sequence[str]], list[list[Translation]]]  # of lines and their prefixes


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
        translator: made the outputs.
        checks: for its languages.
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
                found = search([lines[i] for i in suspects], [prefixes[i] for i in suspects] if prefixes else [])
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

        def search(variant: AnyTranslator) -> Search:
            return lambda lines, prefixes: variant.translate_n_best(lines, None, prefixes) if lines else []

        beam_options = blocked if self._is_text else options
        larger_beam = ("larger_beam", search(translator.variant(options=beam_options, decoding=wider)))
        middle = [larger_beam] if options.sampling is None else []  # samples have no beam
        if not self._is_text:
            return middle
        return [
            ("no_repeat", search(translator.variant(options=blocked))),
            *middle,
            ("split", lambda lines, prefixes: self._in_parts(lines, prefixes, blocked)),
        ]

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
        # The score of the replaced output would be taken for that of the text.
        outputs = [Translation(text, -math.inf, -math.inf)] * len(judged.outputs)
        return replace(judged, outputs=outputs, replaced_by=self._on_suspect)


def report_record(
    number: int, source: str, judged: Judged, line_id: Any = None, more: Mapping[str, Any] | None = None
) -> str:
    """A line of the report, on the best output; `line_id` is the "id" of a JSON record, `more` has further entries."""
    best = judged.outputs[0]
    src_tokens = sum(len(part.src) for part in best.parts)
    tgt_tokens = sum(len(part.tgt) for part in best.parts)
    record: dict[str, Any] = {"line": number} | ({} if line_id is None else {"id": line_id})
    record |= {
        "flags": list(judged.flags),
        "score": round(best.score, 5) if math.isfinite(best.score) else None,
        "log_prob": round(best.log_prob, 5) if math.isfinite(best.log_prob) else None,
        "length_ratio": round(tgt_tokens / src_tokens, 3) if src_tokens else None,
        "parts": len(best.parts),
    }
    if judged.tried:
        record |= {"first_flags": list(judged.first_flags), "tried": list(judged.tried), "helped": judged.helped}
    if judged.replaced_by:
        record["replaced_by"] = judged.replaced_by
    record |= {**(more or {}), "source": source, "translation": best.text}
    return json.dumps(record, ensure_ascii=False, allow_nan=False)


@dataclass
class SuspectCounts:
    """How many lines looked wrong, and why."""

    lines: int = 0  # judged so far
    suspect: int = 0  # with a flag in the end
    mended: int = 0  # without a flag thanks to another search
    flags: Counter[str] = field(default_factory=Counter)  # raised in the end

    def take(self, judged: Judged) -> None:
        self.lines += 1
        self.suspect += bool(judged.flags)
        self.mended += bool(judged.first_flags and not judged.flags)
        self.flags.update(judged.flags)

    def summary(self) -> str:
        parts = []
        if self.suspect:
            kinds = ", ".join(f"{self.flags[name]:,} {name.replace('_', ' ')}" for name in FLAGS if self.flags[name])
            look = "looks" if self.suspect == 1 else "look"
            parts.append(f"{self.suspect:,} of {logs.counted(self.lines, 'line')} {look} wrong: {kinds}")
        if self.mended:
            were = "was" if self.mended == 1 else "were"
            parts.append(f"{self.mended:,} {were} mended by another search")
        return "; ".join(parts)
