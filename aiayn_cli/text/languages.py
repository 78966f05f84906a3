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


def joins_without_blanks(lang: str) -> bool:
    """Whether sentences of this language stand next to each other without a blank."""
    return primary_language(lang) in WITHOUT_BLANKS
