"""Random dates, numbers, amounts and names, which Babel and num2words write in any language."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, time
from decimal import Decimal
from functools import cache, partial
from random import Random
from typing import Any

from transduce.errors import require

# A random value: a function that writes it in a language.
Say = Callable[[str], str]

CURRENCIES = ("EUR", "USD", "GBP", "CHF", "CAD", "AUD", "SEK", "PLN", "BRL", "INR")
GOODS = (
    "mass-kilogram",
    "mass-gram",
    "volume-liter",
    "volume-milliliter",
    "length-meter",
    "area-square-meter",
)
MEASURES = (
    "length-kilometer",
    "length-centimeter",
    "length-mile",
    "area-hectare",
    "area-square-kilometer",
    "temperature-celsius",
    "speed-kilometer-per-hour",
    "digital-gigabyte",
    "power-kilowatt",
    "energy-kilowatt-hour",
)
UNITS_OF_TIME = ("second", "minute", "hour", "day", "week", "month", "year")
DURATIONS = (
    (("year", 40), ("month", 11)),
    (("week", 51), ("day", 6)),
    (("day", 30), ("hour", 23)),
    (("hour", 48), ("minute", 59)),
    (("minute", 59), ("second", 59)),
)
COUNTRIES = (
    "DE AT CH FR BE NL LU IT ES PT GB IE DK SE NO FI IS PL CZ SK HU RO BG GR HR RS UA TR US CA MX "
    "BR AR CL CO PE CN JP KR IN ID TH VN PH AU NZ EG MA ZA KE NG SA IL"
)
NAMED_LANGUAGES = (
    "en de fr es it pt nl da sv fi is pl cs sk hu ro bg el hr sr uk ru tr "
    "ar he hi id th vi ja ko zh"
)
FIRST_DAY = date(1900, 1, 1)
LAST_DAY = date(2099, 12, 31)


@cache
def _babel(part: str) -> Any:
    return require(f"babel.{part}", extra="phrases")


@cache
def _locale(language: str) -> Any:
    return _babel("core").Locale(language)


def _date(random: Random, style: str) -> Say:
    day = date.fromordinal(random.randint(FIRST_DAY.toordinal(), LAST_DAY.toordinal()))
    if style == "abbreviated":
        return lambda language: _babel("dates").format_skeleton(
            "yMMMEd", day, locale=_locale(language)
        )
    return lambda language: _babel("dates").format_date(day, style, locale=_locale(language))


def _time(random: Random) -> Say:
    moment = time(random.randrange(24), random.randrange(60))
    return lambda language: _babel("dates").format_time(moment, "short", locale=_locale(language))


def _span(value: int, unit: str, language: str, add_direction: bool = False) -> str:
    """Return a time span in one unit, such as "90 minutes"."""
    seconds = value * dict(_babel("dates").TIMEDELTA_UNITS)[unit]
    # An infinite threshold keeps Babel from choosing a larger unit.
    say = partial(_babel("dates").format_timedelta, seconds, granularity=unit, threshold=math.inf)
    return str(say(add_direction=add_direction, locale=_locale(language)))


def _relative(random: Random, sign: int) -> Say:
    unit = random.choice(UNITS_OF_TIME)
    value = sign * random.randint(1, 99)
    return lambda language: _span(value, unit, language, add_direction=True)


def _number(random: Random, decimals: int) -> Say:
    digits = Decimal(random.randrange(1_000, 10 ** random.randint(4, 6 + decimals)))
    number = digits.scaleb(-random.randint(0, decimals))
    return lambda language: _babel("numbers").format_decimal(number, locale=_locale(language))


def _spelt(random: Random, to: str, last: int) -> Say:
    # Small numbers are more frequent, since people write those as words.
    number = random.randint(1, random.choice((99, 999, last)))
    return lambda language: require("num2words", extra="phrases").num2words(
        number, lang=language, to=to
    )


def _percent(random: Random) -> Say:
    # From 2 %: Italian writes "dell'1 %" but "del 1.000 %".
    share = Decimal(random.randint(20, 999)) / 1_000
    return lambda language: _babel("numbers").format_percent(
        share, locale=_locale(language), decimal_quantization=False
    )


def _money(random: Random, style: str, currencies: tuple[str, ...]) -> Say:
    amount = Decimal(random.randrange(200, 10 ** random.randint(3, 7))) / 100
    say = partial(
        _babel("numbers").format_currency, amount, random.choice(currencies), format_type=style
    )
    return lambda language: say(locale=_locale(language))


def _quantity(random: Random, units: tuple[str, ...]) -> Say:
    value = Decimal(random.choice((10 * random.randint(1, 999), random.randint(1, 999)))) / 10
    say = partial(_babel("units").format_unit, value, random.choice(units), length="long")
    return lambda language: say(locale=_locale(language))


def _duration(random: Random) -> Say:
    parts = [(unit, random.randint(1, last)) for unit, last in random.choice(DURATIONS)]
    parts = random.choice((parts, parts, parts[:1], parts[1:]))

    def say(language: str) -> str:
        spans = [_span(value, unit, language) for unit, value in parts]
        return str(_babel("lists").format_list(spans, locale=_locale(language)))

    return say


def _names(random: Random, of: str, codes: str) -> Say:
    chosen = random.sample(codes.split(), random.randint(1, 4))

    def say(language: str) -> str:
        known = getattr(_locale(language), of)
        names = [known[code] for code in chosen]
        return str(_babel("lists").format_list(names, locale=_locale(language)))

    return say


# By name of the slot in a sentence.
KINDS: dict[str, Callable[[Random], Say]] = {
    "full": partial(_date, style="full"),
    "date": partial(_date, style="long"),
    "day": partial(_date, style="abbreviated"),
    "time": _time,
    "ahead": partial(_relative, sign=1),
    "ago": partial(_relative, sign=-1),
    "count": partial(_number, decimals=0),
    "number": partial(_number, decimals=3),
    "words": partial(_spelt, to="cardinal", last=9_999),
    "ordinal": partial(_spelt, to="ordinal", last=699),
    "percent": _percent,
    "money": partial(_money, style="standard", currencies=CURRENCIES[:3]),
    "amount": partial(_money, style="name", currencies=CURRENCIES),
    "quantity": partial(_quantity, units=GOODS),
    "measure": partial(_quantity, units=MEASURES),
    "duration": _duration,
    "places": partial(_names, of="territories", codes=COUNTRIES),
    "tongues": partial(_names, of="languages", codes=NAMED_LANGUAGES),
}
