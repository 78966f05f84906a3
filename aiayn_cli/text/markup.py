"""Tags, placeholders and addresses in a text, by one rule for all that carries, counts or spares them."""

import re
from collections import Counter

from aiayn_cli.text.normalise import normalise

# All patterns are linear in the length of the text: none rescans it from each of its characters.
ADDRESS = re.compile(
    r"(?:(?:https?|ftp)://|www\.)[^\s<>\"]*[^\s<>\".,;:!?)\]}'”’»]|(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
)
# Names alone are attributes only if HTML or a framework has them, so that "a <b and c> d" is text.
_VALUE = r"\s*+=\s*+(?:\"[^\"]*+\"|'[^']*+'|[^\s\"'<>=`/]++(?:/[^\s\"'<>=`/]++)*+)"
_ALONE = (
    r"(?:checked|controls|defer|async|disabled|download|hidden|loop|multiple|muted|open|readonly|required|selected)"
)
TAG = re.compile(
    rf"<(/?)(\d+|[A-Za-z][\w:.-]*+)(?:\s++(?:[\w:.@*#-]++{_VALUE}|{_ALONE}(?![\w-])|[\w@*#]*+[-:@*#][\w:.-]++))*+\s*+(/?)>"
)
_COMMENT = r"<!--(?:(?!<!--|-->).)*+-->|<[!?][^<>]*+>"
_ENTITY = r"&(?:[A-Za-z][A-Za-z0-9]{1,31}|#\d{1,7}|#[xX][0-9a-fA-F]{1,6});"
_INNER = r"(?:[^{}]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*+\})*+\})*+\})*+"  # braces in braces, as deep as ICU messages go
_BRACES = (
    rf"\{{\{{\{{[^{{}}]*+\}}\}}\}}|\{{\{{[^{{}}]*+\}}\}}|\{{%[^{{}}]*+%\}}|\{{\s*+[\w.]++\s*+,\s*+\w++\s*+(?:,{_INNER})?\}}"
    r"|[$#%]?\{[^{}\s]*+\}"
)
# Not after a number, of which "%" is the per cent sign, nor before a word: "5 % of", "100%ig".
_PERCENT = (
    r"%%|(?<![^%]\d)(?<![^%]\d\s)(?<!^\d)(?<!^\d\s)%(?:(?:\(\w+\)|<\w+>|\d+\$)?[-+0#]*+(?:\d++|\*)?+(?:\.(?:\d++|\*))?+(?:hh?|ll?|[qjzt])?"
    r"[diouxXeEfFgGaAcCsSpn@](?!\w{3})|L?\d{1,2}(?!\d)|[A-Za-z_]\w++%(?!\w))"
)
_DOLLAR = r"(?<![\w$])\$(?:[A-Za-z_]\w*+|\d{1,2}(?![\d.,]*\d))"
MARKUP = re.compile(
    "|".join(f"(?:{part})" for part in (TAG.pattern, _COMMENT, _BRACES, _PERCENT, _DOLLAR, _ENTITY, ADDRESS.pattern))
)


def find_markup(text: str, *, tags: bool = True) -> Counter[str]:
    """The (tags,) placeholders and addresses of a text, counted; blanks in them count as one."""
    found = (match.group() for match in MARKUP.finditer(text))
    return Counter(normalise(each) for each in found if tags or not TAG.fullmatch(each))
