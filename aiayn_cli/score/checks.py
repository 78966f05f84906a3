"""Signs that a score would mislead: an unsuitable tokeniser, or text in a form that the metrics are not meant for."""

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence

from aiayn_cli import logs
from aiayn_cli.score.metrics import MetricOptions, is_written_in_characters, tokenizer_of
from aiayn_cli.text.languages import primary_language

_SCRIPTS = (
    (re.compile("[\u3400-\u9fff\uf900-\ufaff]"), ("zh", "Chinese")),
    (re.compile("[\u3040-\u30ff]"), ("ja", "Japanese")),
    (re.compile("[\uac00-\ud7af\u1100-\u11ff]"), ("ko", "Korean")),
)
# Languages without blanks between words for which sacreBLEU has no tokeniser.
_WITHOUT_WORDS = {"th": "Thai", "lo": "Lao", "km": "Khmer", "my": "Burmese", "bo": "Tibetan", "dz": "Dzongkha"}
_PROBLEMS = {  # of hypotheses, unless the references have them too
    re.compile(r"@@(?: |$)|▁|(?:^| )##\w", re.M): "contain sub-word marks (@@ or ▁): join the pieces before scoring",
    re.compile(r" [.,!?;:](?: |$)| @-@ ", re.M): (
        "look tokenised (blanks before punctuation), but the references do not: detokenise before scoring"
    ),
}
_MARKUP = re.compile(r"\s*<(\?xml|!DOCTYPE|/?(mteval|(ref|src|tst)set|dataset|doc|seg|hl|p|tmx|tuv?|xliff)\b)", re.I)
_ONE_SIDED = (  # what makes equal text differ: what to find, what to call it, what the other side has, and the cure
    (lambda line: not unicodedata.is_normalized("NFC", line), "decomposed characters", "", "write both in NFC"),
    (re.compile(r"&([a-z]{2,8}|#\d+|#x[\da-f]+);", re.I).search, "HTML entities such as &quot;", "", "unescape them"),
    (re.compile("[şţŞŢ]").search, "ş or ţ with a cedilla", "[șțȘȚ]", "Romanian has a comma below, as there"),
)
_SHARE = 0.2  # of the lines; a smaller share can be part of the text
_COPIED = 0.5  # share of lines equal to the source
_WINDOW = 20  # lines compared together to find a shift
_FURTHEST = 3  # lines of the largest shift that is looked for
_IN_PLACE = 0.3  # share of common words from which a window counts as not shifted
_CLEAR = 0.15  # how much larger that share must be for a shifted window than for the window in place


def remark_on_language(options: MetricOptions, metrics: Sequence[str], reference: Sequence[str]) -> None:
    """Log which tokeniser the target language has, or why the one in use does not suit it or the references."""
    lang = options.tgt_lang
    tokenizer = tokenizer_of(lang)
    is_default = options.tokenize is None and "bleu" in metrics
    if is_default and tokenizer != "13a":
        logs.notice(f"tokeniser {tokenizer}, for target language {lang}; --tokenize chooses another")
    if is_written_in_characters(lang) and "ter" in metrics:
        logs.notice(f"TER counts characters (normalised, Asian support), for target language {lang}")
    if name := _WITHOUT_WORDS.get(primary_language(lang or "")):
        if is_default:
            logs.warning(
                f"{name} has no blanks between words, which tokeniser 13a needs: use --tokenize char, or --metric chrf"
            )
    elif tokenizer == "13a" and (found := _language_of_script(reference)):
        code, name = found
        wrong = ["BLEU's tokeniser 13a"] if is_default else []
        wrong += ["TER by words"] if "ter" in metrics and is_written_in_characters(code) else []
        if wrong:
            known = f"the target language is {lang}" if lang else "no target language is given"
            logs.warning(
                f"the references look {name}, but {known}: {' and '.join(wrong)} would mislead; "
                f"add -l, such as -l en-{code}"
            )


def warn(
    systems: Mapping[str, Sequence[str]], references: Sequence[Sequence[str]], source: Sequence[str] | None
) -> list[list[str]]:
    """Log and return what is suspicious about each system, by name if there are several."""
    found = [suspicions(lines, references, source) for lines in systems.values()]
    for name, of_system in zip(systems, found, strict=True):
        for suspicion in of_system:
            logs.warning(suspicion if len(systems) == 1 else f"{name}: {suspicion}")
    return found


def _language_of_script(lines: Sequence[str]) -> tuple[str, str] | None:
    """Code and name of the language of most lines by their script, if sacreBLEU has a tokeniser for it."""
    in_han, in_kana, in_hangul = (sum(pattern.search(line) is not None for line in lines) for pattern, _ in _SCRIPTS)
    written = sum(bool(line.strip()) for line in lines)
    if 2 * max(in_han, in_kana, in_hangul) <= written:
        return None
    # Japanese is written with Chinese characters too, and Korean at times; neither kana nor hangul are in Chinese.
    if 2 * in_kana > in_han and in_kana >= in_hangul:
        return _SCRIPTS[1][1]
    return _SCRIPTS[2][1] if in_hangul >= in_han else _SCRIPTS[0][1]


def suspicions(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], sources: Sequence[str] | None = None
) -> list[str]:
    """One line for each sign that a score would mislead; all texts have the same number of lines."""
    found = []
    reference_lines = [line for reference in references for line in reference]
    if any(map(str.strip, reference_lines)) and not any(map(str.strip, hypotheses)):
        return ["every line of the hypotheses is blank"]
    for pattern, problem in _PROBLEMS.items():
        if (share := _share(hypotheses, pattern)) >= _SHARE > _share(reference_lines, pattern):
            found.append(f"{share:.0%} of the hypotheses {problem}")
    found += _forms(hypotheses, reference_lines)
    capitals, expected = _share_with_capitals(hypotheses), _share_with_capitals(reference_lines)
    if capitals < expected / 10 and expected >= _SHARE:
        few = "no hypothesis has" if capitals == 0 else f"only {capitals:.0%} of the hypotheses have"
        found.append(f"{few} a capital letter, unlike the references: BLEU is case-sensitive")
    written = [
        (bool(ours.strip()), any(map(str.strip, lines))) for ours, *lines in zip(hypotheses, *references, strict=True)
    ]
    if blank := written.count((False, True)):
        found.append(f"blank where a reference is not: {logs.counted(blank, 'line')} of {len(hypotheses):,}")
    if blank := written.count((True, False)):
        found.append(f"blank references: {logs.counted(blank, 'line')} of {len(hypotheses):,}; drop them on both sides")
    if sources is not None:
        for number, reference in enumerate(references, start=1):
            if (same := _same(reference, sources)) >= _COPIED:
                name = "the reference" if len(references) == 1 else f"reference {number}"
                found.append(f"{name} looks like the source: {same:.0%} of its lines are the same")
        if (same := _same(hypotheses, sources)) >= _COPIED:
            found.append(f"the hypotheses look like the source: {same:.0%} are the same lines")
    if shift := _shift(hypotheses, references[0]):
        found.append(shift)
    return found


def _forms(hypotheses: Sequence[str], references: Sequence[str]) -> Iterator[str]:
    """Markup that is taken for text, and what is written in another way than on the other side."""
    sides = {"hypotheses": hypotheses, "references": references}
    for name, lines in sides.items():
        if sum(_MARKUP.match(line) is not None for line in lines) >= max(1, _SHARE * len(lines)):
            yield f"the {name} look like SGML or XML, whose tags count as words: score the text of the segments only"
    for find, what, counterpart, cure in _ONE_SIDED:
        few, many = sorted((sum(map(bool, map(find, lines))), name) for name, lines in sides.items())
        if 10 * few[0] < many[0] and re.search(counterpart, "\n".join(sides[few[1]])):
            yield f"the {many[1]} have {what} in {logs.counted(many[0], 'line')}, the {few[1]} in {few[0]:,}: {cure}"


def _same(lines: Sequence[str], sources: Sequence[str]) -> float:
    pairs = [(line.strip(), source.strip()) for line, source in zip(lines, sources, strict=True) if source.strip()]
    return sum(line == source for line, source in pairs) / max(len(pairs), 1)


def _shift(hypotheses: Sequence[str], reference: Sequence[str]) -> str:
    """Say where lines of a file seem lost or added: where windows fit better some lines up or down."""
    units = _units(reference)

    def overlap(numbers: range, by: int) -> float:
        """The mean share of common units (Dice) of lines with those `by` lines further on."""
        shares = []
        for number in numbers:
            if 0 <= number + by < len(reference):
                ours, theirs = units(hypotheses[number]), units(reference[number + by])
                if ours and theirs:
                    shares.append(2 * len(ours & theirs) / (len(ours) + len(theirs)))
        return sum(shares) / len(shares) if 2 * len(shares) >= len(numbers) else 0.0

    shifted = []  # first lines of windows that fit better elsewhere
    windows = range(0, len(hypotheses), _WINDOW)
    for start in windows:
        window = range(start, min(start + _WINDOW, len(hypotheses)))
        if overlap(window[::3], 0) > _IN_PLACE:  # nearly all windows: no need to look further
            continue
        here = overlap(window, 0)
        if max(overlap(window, by) for by in range(-_FURTHEST, _FURTHEST + 1)) > here + _CLEAR:
            shifted.append(start)
    if not shifted:
        return ""
    share = f"{len(shifted):,} of {logs.counted(len(windows), 'window')} of {_WINDOW} lines"
    return f"lines seem shifted from line {shifted[0] + 1:,} on: {share} fit better up to {_FURTHEST} lines away"


def _units(reference: Sequence[str]) -> Callable[[str], frozenset[str]]:
    """Split a line into what is compared: words, or characters where blanks are rare."""
    text = "".join(reference[:200])
    if text.count(" ") < len(text) / 30:
        return frozenset
    return lambda line: frozenset(line.lower().split())


def _share(lines: Sequence[str], pattern: re.Pattern[str]) -> float:
    """The share of lines that a pattern is found in."""
    # One search over all text is many times faster than one for each line; most text holds none of it.
    if sum(1 for _ in pattern.finditer("\n".join(lines))) < _SHARE * len(lines):
        return 0.0
    return sum(pattern.search(line) is not None for line in lines) / max(len(lines), 1)


def _share_with_capitals(lines: Sequence[str]) -> float:
    return sum(line != line.lower() for line in lines) / max(len(lines), 1)
