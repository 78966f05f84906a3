"""`aiayn score --stress`: what a model makes of a test set whose lines look as people write them.

Part of `score`, since its figure is a score of a test set, and `translate` knows no metrics; no other module of `score`
loads models.
"""

import json
import os
import random
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from aiayn_cli import logs
from aiayn_cli.checkpoint.checkpoint import Checkpoint, load_checkpoint
from aiayn_cli.checkpoint.run_checkpoints import find_model
from aiayn_cli.files import write_output
from aiayn_cli.score.metrics import bleu
from aiayn_cli.score.result import text_table
from aiayn_cli.score.session import ScoreOptions, Texts, check_usage, read_texts
from aiayn_cli.text.languages import joins_without_blanks
from aiayn_cli.text.sentences import split_sentences
from aiayn_cli.translate.translator import TranslatedLine, Translator

_EMOJI = ("🙂", "🎉", "🇩🇪", "👩‍💻")
_PLACEHOLDERS = ("{name}", "${path}", "%s", "%(total)d", "<br/>")
_ADDED = re.compile("|".join(map(re.escape, (*_EMOJI, *_PLACEHOLDERS))) + '|[“”„‟"«»]')
_FINAL_MARK = re.compile(r"[\s.!?…。！？؟।۔]+$")


@dataclass(frozen=True)
class Disguise:
    """Another look of a line that means the same."""

    change: Callable[[str, random.Random], str] = lambda line, _: line
    view: Callable[[str], str] = str  # of translations and references, before they are compared
    joined: int = 1  # lines made one
    keeps: bool = True  # whether the translation should stay the same in this view


def _with_one_of(what: Sequence[str], line: str, chance: random.Random) -> str:
    return " ".join(chance.sample((line, chance.choice(what)), 2))


def _without_added(text: str) -> str:
    return " ".join(_ADDED.sub(" ", text).split())


def _with_letters_swapped(line: str, chance: random.Random) -> str:
    """Make the commonest typing error: two letters within a word change places."""
    places = [match.start() for match in re.finditer(r"(?<=\w)[^\W\d_](?=[^\W\d_]\w)", line)]
    at = chance.choice(places or [len(line)])
    return line[:at] + line[at : at + 2][::-1] + line[at + 2 :]


DISGUISES = {
    "as it is": Disguise(),
    "joined by twos": Disguise(joined=2),
    "joined by fives": Disguise(joined=5),
    "upper case": Disguise(lambda line, _: line.upper(), str.casefold),
    "title case": Disguise(lambda line, _: re.sub(r"(?<!\S)\w", lambda first: first[0].upper(), line), str.casefold),
    "no final mark": Disguise(lambda line, _: _FINAL_MARK.sub("", line), partial(_FINAL_MARK.sub, "")),
    "double blanks": Disguise(lambda line, _: line.replace(" ", "  ")),
    "no-break spaces": Disguise(lambda line, _: line.replace(" ", "\u00a0")),
    "decomposed (NFD)": Disguise(lambda line, _: unicodedata.normalize("NFD", line)),
    "soft hyphens": Disguise(lambda line, _: re.sub(r"(?<=\w{3})(?=\w{3})", "\u00ad", line)),
    "curly quotes": Disguise(lambda line, _: f"“{line}”", _without_added),
    "emoji": Disguise(partial(_with_one_of, _EMOJI), _without_added),
    "typos": Disguise(_with_letters_swapped, keeps=False),
    "placeholders": Disguise(partial(_with_one_of, _PLACEHOLDERS), _without_added),
}


@dataclass(frozen=True)
class StressRow:
    """How the test set fared in one disguise."""

    disguise: str
    changed: int  # lines that the disguise changes
    bleu: float
    cost: float  # BLEU of the translations of the text as it is, in the same view, minus `bleu`
    unchanged: float | None  # share of translations that stay the same, with all that was added; None = they may change
    sentences_lost: int  # that translations have fewer than their sources
    sentences: int  # of the sources
    flagged: int  # lines with a flag of `translate`
    flags: dict[str, int]  # lines with each


@dataclass(frozen=True)
class StressResult:
    """What `aiayn score --stress` prints."""

    model: str  # checkpoint
    references: tuple[str, ...]
    lines: int
    rows: tuple[StressRow, ...]

    def __str__(self) -> str:
        table = [["disguise", "changed", "BLEU", "cost", "unchanged", "sentences lost", "flagged"]]
        for row in self.rows:
            unchanged = "" if row.unchanged is None else f"{row.unchanged:.1%}"
            numbers = f"{row.changed:,}", f"{row.bleu:.2f}", f"{row.cost:.2f}", unchanged
            table.append([row.disguise, *numbers, f"{row.sentences_lost:,} of {row.sentences:,}", f"{row.flagged:,}"])
        return text_table(table)


def run_stress(model: Path, options: ScoreOptions) -> StressResult:
    """Translate and score a test set in each disguise; the result is left next to the model's weights, too.

    AiaynError as in run_score(), and for a model that cannot be loaded.
    """
    options = replace(options, hypotheses=())
    check_usage(options)
    checkpoint, source = load_checkpoint(find_model(model)), options.source
    if source is None and options.references:
        source = str(options.references[0].with_suffix(f".{checkpoint.src_lang}"))
        logs.notice(f"source text: {source}")
    texts = read_texts(replace(options, source=source))
    rows, plain = list[StressRow](), list[str]()
    # Placeholders need --markup, which changes nothing elsewhere.
    with (
        Translator.load(checkpoint.path, markup=not checkpoint.text.changes_text) as translator,
        logs.progress("translating", len(DISGUISES) * texts.lines, "lines") as progress,
    ):
        for name, disguise in DISGUISES.items():
            changed = [disguise.change(line, random.Random(number)) for number, line in enumerate(texts.source or ())]
            found = [
                best for best, *_ in translator.translate_n_best(_joined(changed, disguise.joined, checkpoint.src_lang))
            ]
            plain = plain or [each.text for each in found]
            rows.append(_row(name, texts, changed, found, plain, checkpoint))
            progress.advance(texts.lines)
    result = StressResult(str(checkpoint.path), tuple(texts.references), texts.lines, tuple(rows))
    if os.access(checkpoint.path, os.W_OK):
        write_output(checkpoint.path / "stress.json", json.dumps(asdict(result), indent=2) + "\n", "free some space")
    return result


def _row(
    name: str, texts: Texts, changed: Sequence[str], found: Sequence[TranslatedLine], plain: Sequence[str],
    checkpoint: Checkpoint,
) -> StressRow:  # fmt: skip
    """Compare the translations of the changed lines with those of the plain ones."""
    disguise, outputs = DISGUISES[name], [each.text for each in found]
    src_lang, tgt_lang = checkpoint.src_lang, checkpoint.tgt_lang
    sources, plain_sources = (_joined(lines, disguise.joined, src_lang) for lines in (changed, texts.source or ()))
    before, *references = (_joined(lines, disguise.joined, tgt_lang) for lines in (plain, *texts.reference_lines))
    viewed, viewed_before, *references = (list(map(disguise.view, lines)) for lines in (outputs, before, *references))
    score, possible = (bleu(lines, references, tgt_lang).score for lines in (viewed, viewed_before))
    added = [[len(_ADDED.findall(line)) for line in lines] for lines in (sources, plain_sources, outputs, before)]
    same = [
        now == then and source - plain_source == output - plain_output
        for now, then, source, plain_source, output, plain_output in zip(viewed, viewed_before, *added, strict=True)
    ]
    sentences, kept = (
        [len(split_sentences(disguise.view(line), lang)) for line in lines]
        for lines, lang in ((sources, src_lang), (outputs, tgt_lang))
    )
    return StressRow(
        name, changed=sum(line != old for line, old in zip(sources, texts.source or (), strict=False)), bleu=score,
        cost=possible - score, unchanged=sum(same) / len(same) if disguise.keeps else None,
        sentences_lost=sum(max(0, count - left) for count, left in zip(sentences, kept, strict=True)),
        sentences=sum(sentences), flagged=sum(bool(each.flags) for each in found),
        flags=dict(Counter(flag for each in found for flag in each.flags).most_common()),
    )  # fmt: skip


def _joined(lines: Sequence[str], number: int, lang: str) -> list[str]:
    glue = "" if joins_without_blanks(lang) else " "
    return [glue.join(lines[start : start + number]) for start in range(0, len(lines), number)]
