"""The report on a translation: a JSON record for each line, and a summary for people."""

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiayn_cli.translate.trust.flags import FLAGS
from aiayn_cli.translate.trust.suspects import Judged


def report_record(
    number: int, source: str, judged: Judged, line_id: Any = None, more: Mapping[str, Any] | None = None
) -> str:
    """One line of the report.

    Args:
        number: of the line, from 1 on.
        source: its text.
        judged: its outputs; the report is about the best one.
        line_id: the "id" of a JSON record.
        more: further entries, in JSON's types.
    """
    best = judged.outputs[0]
    src_tokens = sum(len(part.src) for part in best.parts)
    tgt_tokens = sum(len(part.tgt) for part in best.parts)
    record: dict[str, Any] = {"line": number}
    if line_id is not None:
        record["id"] = line_id
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
        """One line for people; "" if nothing looked wrong."""
        parts = []
        if self.suspect:
            kinds = ", ".join(f"{self.flags[name]:,} {name.replace('_', ' ')}" for name in FLAGS if self.flags[name])
            parts.append(f"{self.suspect:,} of {self.lines:,} lines look wrong: {kinds}")
        if self.mended:
            parts.append(f"{self.mended:,} were mended by another search")
        return "; ".join(parts)
