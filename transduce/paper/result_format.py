"""The format of results: what the JSON files of each part contain, checked when they are read.

A file that a person has edited is either complete or refused, so whatever reads results can rely on
their types.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from transduce.monitoring.records import is_number


@dataclass(frozen=True)
class Kind:
    """A kind of JSON value, with the words for it in a message."""

    words: str
    check: Callable[[Any], bool]


# What a value must be: of a kind, an object with these keys, or a list whose items are alike.
Format = Kind | dict[str, Any] | list[Any]


def _is_optional(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or check(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_points(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_point, value))


def _is_point(value: Any) -> bool:
    return isinstance(value, list) and list(map(_is_coordinate, value)) == [True, True]


def _is_coordinate(value: Any) -> bool:
    """Return whether a chart can show or leave out a value: NaN, as of a run that diverged, too."""
    if type(value) is float and not math.isfinite(value):
        return True
    return is_number(value) and abs(value) < 1e100


def _by_name(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


TEXT = Kind("a text", _is_text)
NUMBER = Kind("a number", is_number)
POSITIVE = Kind("a number above 0", lambda value: is_number(value) and value > 0)
NUMBER_OR_NULL = Kind("a number or null", _is_optional(is_number))
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
FLAG_OR_NULL = Kind("true, false or null", lambda value: value is None or isinstance(value, bool))
OBJECT = Kind("an object", lambda value: isinstance(value, dict))
NUMBERS = Kind("numbers or nulls by name", _by_name(_is_optional(is_number)))
CURVES = Kind("lists of points [x, y] by name", _by_name(_are_points))

RESULT: dict[str, Format] = {
    "part": TEXT,
    "row": TEXT,
    "numbers": OBJECT,
    "seconds": NUMBER,
    "commit": TEXT,
    "hardware": {"gpus": POSITIVE},
    "flops": NUMBER_OR_NULL,
    "recipe": TEXT,
    "corpus": TEXT,
    "text": TEXT,
    "budget": NUMBER_OR_NULL,
    "curves": CURVES,
}
_TRAINED: dict[str, Format] = {"flops": POSITIVE, "budget": POSITIVE}
_MODEL: dict[str, Format] = {
    "perplexity": NUMBER_OR_NULL,  # null if the loss was infinite
    "parameters": NUMBER,
    "target_tokens": POSITIVE,
    "tokens_per_second": POSITIVE,
}
_BLEU: dict[str, Format] = {
    "sentences": NUMBER,
    "bleu": NUMBER,
    "bleu_signature": TEXT,
    "tokenized_bleu": NUMBER,
}
_TRANSLATOR: dict[str, Format] = {
    **_TRAINED,
    "numbers": {
        **_MODEL,
        "validation": _BLEU,
        "test": _BLEU,
        "ladder": [{"name": TEXT, "gain": NUMBER_OR_NULL, "score": {"value": NUMBER}}],
    },
}
_CHART: dict[str, Format] = {
    "title": TEXT,
    "x_label": TEXT,
    "y_label": TEXT,
    "curves": CURVES,
    "log_x": FLAG,
    "log_y": FLAG,
}
_PARSING = ("sentences", "malformed", "exact", "precision", "recall", "f1")
# What the results of a part contain in addition.
PARTS: dict[str, dict[str, Format]] = {
    "table1": {"numbers": {"exponents": NUMBERS, "sequences": NUMBER}},
    "table2": _TRANSLATOR,
    "table3": _TRANSLATOR,
    "table4": {**_TRAINED, "numbers": {**_MODEL, "parsing": dict.fromkeys(_PARSING, NUMBER)}},
    "claims": {"numbers": {"holds": FLAG_OR_NULL, "verdict": TEXT, "charts": [_CHART]}},
}
# What may be absent: in results of older versions, on a CPU, without a test set or a ladder.
OPTIONAL = {"text", "sequences", "gpus", "test", "ladder"}


def check_result(content: Any, part: str, row: str) -> None:
    """Raise a ValueError that names the first key of a result that is missing or wrong."""
    _check(content, RESULT, "")
    unknown = sorted(content.keys() - RESULT.keys())
    if unknown:
        raise ValueError(f"the key {unknown[0]} is not known")
    for key, expected in (("part", part), ("row", row)):
        if content[key] != expected:
            raise ValueError(f"{key} is {content[key]!r}, but its place is that of {expected!r}")
    _check(content, PARTS.get(part, {}), "")


def _check(value: Any, expected: Format, name: str) -> None:
    if isinstance(expected, Kind):
        if not expected.check(value):
            raise ValueError(f"{name} is {_short(value)}, expected {expected.words}")
    elif isinstance(expected, list):
        if not isinstance(value, list):
            raise ValueError(f"{name} is {_short(value)}, expected a list")
        for number, item in enumerate(value):
            _check(item, expected[0], f"{name}[{number}]")
    else:
        if not isinstance(value, dict):
            raise ValueError(f"{name or 'the file'} is {_short(value)}, expected an object")
        for key, inner in expected.items():
            path = f"{name}.{key}" if name else key
            if key in value:
                _check(value[key], inner, path)
            elif key not in OPTIONAL:
                raise ValueError(f"the key {path} is missing")


def _short(value: Any) -> str:
    """Return the beginning of a value as JSON."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:40]}..."
