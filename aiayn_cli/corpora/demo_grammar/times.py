"""Numbers, clock times, dates and other times of the built-in corpus, in English and German."""

from aiayn_cli.corpora.demo_grammar.adverbials import Fixed
from aiayn_cli.corpora.demo_grammar.conjugation import Tense

_EN_ONES = (
    *("", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_DE_ONES = (
    *("", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf"),
    *("dreizehn", "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn"),
)
_EN_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_DE_TENS = ("", "", "zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig")

_MONTHS = (
    ("January", "Januar"),
    ("February", "Februar"),
    ("March", "März"),
    ("April", "April"),
    ("May", "Mai"),
    ("June", "Juni"),
    ("July", "Juli"),
    ("August", "August"),
    ("September", "September"),
    ("October", "Oktober"),
    ("November", "November"),
    ("December", "Dezember"),
)
_WEEKDAYS = (
    ("Monday", "Montag"),
    ("Tuesday", "Dienstag"),
    ("Wednesday", "Mittwoch"),
    ("Thursday", "Donnerstag"),
    ("Friday", "Freitag"),
    ("Saturday", "Samstag"),
    ("Sunday", "Sonntag"),
)

ON_WEEKDAYS = tuple(Fixed(f"on {en}", f"am {de}") for en, de in _WEEKDAYS)
EVERY_WEEKDAY = tuple(Fixed(f"every {en}", f"jeden {de}") for en, de in _WEEKDAYS)
OFTEN = tuple(
    Fixed(en, de, before_verb=True)
    for en, de in (("often", "oft"), ("always", "immer"), ("never", "nie"), ("sometimes", "manchmal"))
)
REGULARLY = (
    Fixed("every day", "jeden Tag"),
    Fixed("every morning", "jeden Morgen"),
    Fixed("every evening", "jeden Abend"),
    Fixed("in summer", "im Sommer"),
    Fixed("in winter", "im Winter"),
    *EVERY_WEEKDAY,
)
NOW = (Fixed("now", "jetzt"), Fixed("today", "heute"), Fixed("at the moment", "im Moment"))
# Days that a clock time may follow: "yesterday at half past three".
DAYS = {
    Tense.PAST: (Fixed("yesterday", "gestern"), *ON_WEEKDAYS),
    Tense.FUTURE: (Fixed("tomorrow", "morgen"), Fixed("today", "heute"), *ON_WEEKDAYS),
}
TIMES = {
    Tense.PAST: (
        Fixed("this morning", "heute Morgen"),
        Fixed("yesterday evening", "gestern Abend"),
        Fixed("last week", "letzte Woche"),
        Fixed("last year", "letztes Jahr"),
    ),
    Tense.FUTURE: (
        Fixed("this evening", "heute Abend"),
        Fixed("tomorrow morning", "morgen früh"),
        Fixed("next week", "nächste Woche"),
        Fixed("next year", "nächstes Jahr"),
        Fixed("soon", "bald"),
    ),
}
_MINUTES = {5: ("five", "fünf"), 10: ("ten", "zehn"), 15: ("a quarter", "Viertel"), 20: ("twenty", "zwanzig")}
SPANS = (("days", "Tagen"), ("weeks", "Wochen"), ("months", "Monaten"), ("years", "Jahren"))
CLOCK_MINUTES = (0, 5, 10, 15, 20, 30, 40, 45, 50, 55)
QUARTERS = (0, 15, 30, 45)


def number(n: int) -> tuple[str, str]:
    """Spell a number from 1 to 99 in both languages: forty-two, zweiundvierzig."""
    if n < 20:
        return _EN_ONES[n], _DE_ONES[n]
    tens, ones = divmod(n, 10)
    if not ones:
        return _EN_TENS[tens], _DE_TENS[tens]
    de_one = "ein" if ones == 1 else _DE_ONES[ones]
    return f"{_EN_TENS[tens]}-{_EN_ONES[ones]}", f"{de_one}und{_DE_TENS[tens]}"


def digits(n: int) -> tuple[str, str]:
    """Write a number in digits, alike in both languages."""
    return str(n), str(n)


def clock(hour: int, minute: int) -> tuple[str, str]:
    """Say a time of the twelve-hour clock in words, as answer to "what time is it".

    Args:
        hour: 1 to 12.
        minute: one of `CLOCK_MINUTES`; German counts the half hour towards the next one: half past three, halb vier.
    """
    following = hour % 12 + 1
    if minute == 0:
        return f"{_EN_ONES[hour]} o'clock", f"{'ein' if hour == 1 else _DE_ONES[hour]} Uhr"
    if minute == 30:
        return f"half past {_EN_ONES[hour]}", f"halb {_DE_ONES[following]}"
    if minute < 30:
        en, de = _MINUTES[minute]
        return f"{en} past {_EN_ONES[hour]}", f"{de} nach {_DE_ONES[hour]}"
    en, de = _MINUTES[60 - minute]
    return f"{en} to {_EN_ONES[following]}", f"{de} vor {_DE_ONES[following]}"


def digital_clock(hour: int, minute: int) -> tuple[str, str]:
    """Write a time of the 24-hour clock in digits: 17:45, 17:45 Uhr."""
    return f"{hour}:{minute:02}", f"{hour}:{minute:02} Uhr"


def at(time: tuple[str, str]) -> Fixed:
    """Make the adverbial of a clock time: at half past three, um halb vier."""
    return Fixed(f"at {time[0]}", f"um {time[1]}")


def on_date(day: int, month: int) -> Fixed:
    """Make the adverbial of a date: on 3 May, am 3. Mai; months from 0."""
    en, de = _MONTHS[month]
    return Fixed(f"on {day} {en}", f"am {day}. {de}")


def ago(count: tuple[str, str], span: tuple[str, str]) -> Fixed:
    """Make "three weeks ago", "vor drei Wochen"."""
    return Fixed(f"{count[0]} {span[0]} ago", f"vor {count[1]} {span[1]}")


def within(count: tuple[str, str], span: tuple[str, str]) -> Fixed:
    """Make "in three weeks", "in drei Wochen"."""
    return Fixed(f"in {count[0]} {span[0]}", f"in {count[1]} {span[1]}")


def joined(first: Fixed, second: Fixed) -> Fixed:
    """Put two times one after the other, in the same order in both languages."""
    return Fixed(f"{first.en} {second.en}", f"{first.de} {second.de}")
