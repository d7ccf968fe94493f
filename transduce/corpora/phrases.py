"""Generate a corpus: dates, times, numbers, money and quantities in two languages.

Every random value is worded in both languages by Babel (CLDR) and num2words, so that translations
are exact, and each source has one translation.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterator
from datetime import date, time
from decimal import Decimal
from functools import cache, partial
from pathlib import Path
from random import Random
from string import Formatter
from typing import Any

from transduce.corpora.phrasebook import BARE, SENTENCES, TOUCH_UPS
from transduce.data.text_folder import RECIPE, whole_file, write_recipe
from transduce.errors import ConfigError, require

# A random value: a function that words it in a language.
Say = Callable[[str], str]
Pair = tuple[str, str]

LANGUAGES = tuple(SENTENCES)
MAX_PAIRS = 1_000_000
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
# Some rules of cleaning are off, since the pairs are correct: a number may be one word in one
# language and seven in another, and 3:30 PM is 15:30.
SETTINGS = """
[data.clean]
off = ["length-ratio", "numbers", "wrong-language"]

[data.tokenizer]
vocab_size = 1000
split_digits = true

[model]
p_drop = 0.0

[training]  # the mapping is exact and never repeats: nothing to smooth, nothing to drop
steps = 900
tokens_per_step = 1500
schedule = "cosine"
warmup_steps = 100
learning_rate = 0.002
eps_ls = 0.0
report_every = 50
validate_every = 300
validation_sentences = 200
save_every = 300
average_checkpoints = 1

[search]
beam_size = 1
"""
FIRST_DAY = date(1900, 1, 1)
LAST_DAY = date(2099, 12, 31)


def phrases(
    source_language: str, target_language: str, pairs: int = 50_000, seed: int = 1
) -> dict[str, list[Pair]]:
    """Return different pairs, divided into train, valid and test.

    No text occurs twice on a side, so that no split has a sentence of another.
    """
    known = ", ".join(LANGUAGES)
    for language in (source_language, target_language):
        if language not in LANGUAGES:
            raise ConfigError(f"phrases has no language {language!r}; known: {known}")
    if source_language == target_language:
        raise ConfigError(
            f"phrases needs two languages but got {source_language!r} twice; known: {known}"
        )
    if not 10 <= pairs <= MAX_PAIRS:
        raise ConfigError(f"phrases was asked for {pairs:,} pairs; expected 10 to {MAX_PAIRS:,}")

    unique: list[Pair] = []
    seen_sources: set[str] = set()
    seen_targets: set[str] = set()
    for source, target in _draw(Random(seed), source_language, target_language):
        source_key = _key(source)
        target_key = _key(target)
        if source == target or source_key in seen_sources or target_key in seen_targets:
            continue
        seen_sources.add(source_key)
        seen_targets.add(target_key)
        unique.append((source, target))
        if len(unique) == pairs:
            break

    # Hold out the first pairs: later on, kinds with few values (times, ordinals) are used up.
    held_out = min(1_000, pairs // 10)
    return {
        "train": unique[2 * held_out :],
        "valid": unique[:held_out],
        "test": unique[held_out : 2 * held_out],
    }


def write_phrases(
    folder: Path, source_language: str, target_language: str, pairs: int = 50_000, seed: int = 1
) -> Path:
    """Write the splits as train.en, train.de, ..., and return the path of the recipe for them.

    The recipe is written last: where there is one, the text is complete.
    """
    splits = phrases(source_language, target_language, pairs, seed)
    (folder / RECIPE).unlink(missing_ok=True)
    for split, examples in splits.items():
        for side, language in enumerate((source_language, target_language)):
            with whole_file(folder / f"{split}.{language}") as file:
                file.writelines(f"{pair[side]}\n".encode() for pair in examples)
    corpora = {split: (split,) for split in splits}
    return write_recipe(
        folder, (source_language, target_language), corpora, preset="tiny", settings=SETTINGS
    )


def _key(text: str) -> str:
    """Return what texts have in common that differ only in case, spaces or punctuation."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text).casefold()))


def _draw(random: Random, source_language: str, target_language: str) -> Iterator[Pair]:
    """Yield pairs without end, with repetitions. The values do not depend on the languages."""
    templates = {language: _templates(language) for language in SENTENCES}
    slots = [_slots(template) for template in templates["en"]]
    while True:
        number = random.randrange(len(slots))
        values = {slot: _KINDS[slot](random) for slot in slots[number]}
        source = _fill(templates[source_language][number], values, source_language)
        target = _fill(templates[target_language][number], values, target_language)
        yield source, target


def _templates(language: str) -> list[str]:
    """Return the values that are used alone, and the sentences."""
    bare = [f"{{{kind}}}" for kind in BARE.split()]
    return bare + [line.strip() for line in SENTENCES[language].split("\n")]


def _slots(template: str) -> list[str]:
    return [name for _, name, _, _ in Formatter().parse(template) if name]


def _fill(template: str, values: dict[str, Say], language: str) -> str:
    """Return a sentence with its values, in correct grammar."""
    text = template.format_map({slot: say(language) for slot, say in values.items()})
    text = text.replace("\u202f", " ").replace("\xa0", " ")  # the space on a keyboard
    for pattern, correction in TOUCH_UPS.get(language, ()):
        text = re.sub(pattern, correction, text)
    return text


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


_KINDS: dict[str, Callable[[Random], Say]] = {
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
