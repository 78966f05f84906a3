"""Codes of languages, in whichever standard they come: ISO 639-1, -2 and -3, BCP 47, and those of FLORES."""

from functools import cache

WITHOUT_BLANKS = ("zh", "ja", "th", "lo", "km", "my", "bo", "dz")  # no blanks between words


@cache
def primary_language(lang: str) -> str:
    """The shortest code of a language, without region or script: "de" for deu, ger, de-AT and deu_Latn.

    What no standard knows comes back in lower case, up to its first "-" or "_".
    """
    tag = lang.strip().lower().replace("_", "-")
    primary = tag.partition("-")[0]
    if len(primary) == 2:
        return primary
    import langcodes  # here, since it takes a tenth of a second

    try:
        return langcodes.standardize_tag(primary, macro=True).partition("-")[0].lower()
    except ValueError:  # no tag of BCP 47
        return primary


@cache
def language_fit(code: str, wanted: str) -> int:
    """How well text with this code fits a wanted language, from 3 (the same tag) to 0 (another language).

    2: the same tag in another standard, as ger for de; 1: the same language with a region or script of its own, where
    the wanted code names none, or names the script that the language has there (zh-TW for zh_Hant).
    """
    tags = [each.strip().lower().replace("_", "-") for each in (code, wanted)]
    (_, _, rest), (_, _, wanted_rest) = (tag.partition("-") for tag in tags)
    if primary_language(code) != primary_language(wanted):
        return 0
    if rest == wanted_rest:
        return 2 + (tags[0] == tags[1])
    if not wanted_rest or f"{rest}-".startswith(f"{wanted_rest}-"):
        return 1
    if len(wanted_rest) != len("hant"):
        return 0
    import langcodes

    try:
        return int(str(langcodes.Language.get(tags[0]).maximize().script).lower() == wanted_rest)
    except ValueError:  # no tag of BCP 47
        return 0


def joins_without_blanks(lang: str) -> bool:
    """Whether sentences of this language stand next to each other without a blank."""
    return primary_language(lang) in WITHOUT_BLANKS
