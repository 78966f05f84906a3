"""Numbers, clock times and dates, against words written by hand."""

import pytest

from aiayn_cli.corpora.demo_grammar.times import CLOCK_MINUTES, ago, at, clock, digital_clock, number, on_date, within


@pytest.mark.parametrize(
    ("n", "en", "de"),
    [
        (2, "two", "zwei"),
        (12, "twelve", "zwölf"),
        (16, "sixteen", "sechzehn"),
        (17, "seventeen", "siebzehn"),
        (20, "twenty", "zwanzig"),
        (21, "twenty-one", "einundzwanzig"),
        (30, "thirty", "dreißig"),
        (47, "forty-seven", "siebenundvierzig"),
        (66, "sixty-six", "sechsundsechzig"),
        (99, "ninety-nine", "neunundneunzig"),
    ],
)
def test_numbers_are_spelt_in_both_languages(n: int, en: str, de: str) -> None:
    assert number(n) == (en, de)


def test_numbers_from_1_to_99_differ() -> None:
    for language in (0, 1):
        assert len({number(n)[language] for n in range(1, 100)}) == 99


@pytest.mark.parametrize(
    ("hour", "minute", "en", "de"),
    [
        (1, 0, "one o'clock", "ein Uhr"),
        (11, 0, "eleven o'clock", "elf Uhr"),
        (12, 30, "half past twelve", "halb eins"),
        (3, 30, "half past three", "halb vier"),
        (1, 10, "ten past one", "zehn nach eins"),
        (7, 15, "a quarter past seven", "Viertel nach sieben"),
        (4, 45, "a quarter to five", "Viertel vor fünf"),
        (12, 55, "five to one", "fünf vor eins"),
        (9, 40, "twenty to ten", "zwanzig vor zehn"),
    ],
)
def test_clock_times_are_told_as_speakers_tell_them(hour: int, minute: int, en: str, de: str) -> None:
    assert clock(hour, minute) == (en, de)


def test_no_two_clock_times_are_told_alike() -> None:
    times = [(hour, minute) for hour in range(1, 13) for minute in CLOCK_MINUTES]
    for language in (0, 1):
        assert len({clock(*time)[language] for time in times}) == len(times)


def test_times_of_day_dates_and_distances() -> None:
    adverbials = [at(digital_clock(17, 5)), on_date(1, 11), ago(number(2), ("weeks", "Wochen"))]
    adverbials.append(within(number(10), ("days", "Tagen")))
    assert [adverbial.english() for adverbial in adverbials] == [
        "at 17:05",
        "on 1 December",
        "two weeks ago",
        "in ten days",
    ]
    assert [adverbial.german() for adverbial in adverbials] == [
        "um 17:05 Uhr",
        "am 1. Dezember",
        "vor zwei Wochen",
        "in zehn Tagen",
    ]
