"""A recipe in and out: a preset or a TOML file, then dotted overrides (`model.N=2`); unknown names are errors."""

from __future__ import annotations

import difflib
import json
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from transduce.config import Recipe, SearchConfig, mistaken_type, settings_of
from transduce.errors import ConfigError
from transduce.presets import PRESETS, preset

Settings = TypeVar("Settings")

# Settings that had another spelling in recipes and bundles of earlier versions.
RENAMED = {"optimiser": "optimizer", "normalise_punctuation": "normalize_punctuation"}


def load_recipe(name_or_path: str, overrides: Sequence[str] = ()) -> Recipe:
    """The preset of that name, or the recipe in that TOML file, with `section.setting=value` applied on top."""
    if name_or_path in PRESETS:
        recipe = preset(name_or_path)
    elif Path(name_or_path).suffix == ".toml":
        recipe = read_recipe(Path(name_or_path))
    else:
        raise ConfigError(
            f"{name_or_path!r} is neither a .toml file nor a preset; known: {', '.join(PRESETS)}"
        )
    return apply_overrides(recipe, overrides)


def read_recipe(path: Path) -> Recipe:
    """A recipe file. Its optional first line `preset = "base"` says what it starts from; the default is `base`."""
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist; expected a recipe") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{path} cannot be read as a recipe: {error}") from None
    start = tree.pop("preset", "base")
    if not isinstance(start, str):
        raise ConfigError(f"{path}: preset is {start!r}; expected a name in quotes")
    return update(preset(start), tree)


def update(settings: Settings, changes: Mapping[str, Any], where: str = "") -> Settings:
    """A copy of a settings dataclass with the changes of a (nested) mapping, each checked against its type."""
    hints = settings_of(type(settings))
    values = {}
    for given, value in changes.items():
        name = RENAMED.get(given, given)
        if name not in hints:
            sections = {
                part: getattr(getattr(settings, part), "__dataclass_fields__", ()) for part in hints
            }
            inside = [f"{part}.{name}" for part, names in sections.items() if name in names]
            raise ConfigError(_unknown(f"{where}{name}", name, list(hints), inside))
        current = getattr(settings, name)
        if is_dataclass(current) and isinstance(value, Mapping):
            values[name] = update(current, value, f"{where}{name}.")
        else:
            values[name] = _convert(value, hints[name], f"{where}{name}")
    return replace(settings, **values)  # type: ignore[type-var]


def apply_overrides(recipe: Recipe, overrides: Sequence[str]) -> Recipe:
    """The recipe with each `section.setting=value` applied: all at once, so that two may need each other."""
    tree: dict[str, Any] = {}
    for override in overrides:
        name, value = read_override(override)
        *sections, setting = name.split(".")
        table = tree
        for section in sections:
            table = table.setdefault(section, {})
            if not isinstance(table, dict):
                raise ConfigError(
                    f"{section} is {table!r}; expected a table of settings, such as {name}={value}"
                )
        table[setting] = value
    return update(recipe, tree)


def read_override(
    override: str, example: str = "section.setting=value, such as model.N=2"
) -> tuple[str, Any]:
    """The name and the value of `name=value`."""
    name, equals, text = override.partition("=")
    if not equals:
        raise ConfigError(f"{override!r} is not an override; expected {example}")
    try:
        return name, tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return name, text  # a bare word: training.schedule=cosine


def adjusted(search: SearchConfig, overrides: Sequence[str] = (), **changes: Any) -> SearchConfig:
    """The settings of a search with these changed, where they are not None, and with each `name=value`.

    A beam that nobody asked for grows to give enough hypotheses.
    """
    given = {name: value for name, value in changes.items() if value is not None}
    given.setdefault("beam_size", max(search.beam_size, given.get("n_best", 1)))
    named = dict(
        read_override(each, "setting=value, such as temperature=0.8") for each in overrides
    )
    return update(search, {**given, **named}, "search.")


def to_toml(recipe: Recipe) -> str:
    """The recipe as a TOML file that `read_recipe` takes back unchanged."""
    return "\n".join(_toml_lines(recipe, "")).strip() + "\n"


def differences(recipe: Recipe, other: Recipe) -> dict[str, tuple[Any, Any]]:
    """The settings in which two recipes differ, by dotted name: (the first's value, the second's)."""
    mine, theirs = dict(_flat(recipe)), dict(_flat(other))
    return {name: (mine[name], theirs[name]) for name in mine if mine[name] != theirs[name]}


def _flat(settings: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    for item in fields(settings):
        value = getattr(settings, item.name)
        if is_dataclass(value):
            yield from _flat(value, f"{where}{item.name}.")
        else:
            yield f"{where}{item.name}", value


def _convert(value: Any, hint: Any, where: str) -> Any:
    """A TOML value as the type that the setting has."""
    options = typing.get_args(hint)
    origin = typing.get_origin(hint)
    if origin is types.UnionType:  # X | None
        return None if value in (None, "none") else _convert(value, options[0], where)
    if origin is tuple:
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list):
            raise ConfigError(f"{where} is {value!r}; expected a list")
        return tuple(
            _convert(item, options[0], f"{where}[{index}]") for index, item in enumerate(items)
        )
    if isinstance(hint, type) and is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where} is {value!r}; expected a table of settings")
        hints = settings_of(hint)
        for name in value:
            if name not in hints:
                raise ConfigError(_unknown(f"{where}.{name}", name, list(hints)))
        for item in fields(hint):
            if (
                item.name not in value
                and item.default is MISSING
                and item.default_factory is MISSING
            ):
                raise ConfigError(f"{where} has no {item.name}; expected a value for it")
        return hint(
            **{name: _convert(item, hints[name], f"{where}.{name}") for name, item in value.items()}
        )
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if mistake := mistaken_type(value, hint, where):
        raise ConfigError(mistake)
    return value


def _unknown(full_name: str, name: str, known: list[str], inside: Sequence[str] = ()) -> str:
    close = [*inside, *difflib.get_close_matches(name, known, n=1)]
    hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"
    return f"{full_name} is not a setting; {hint}"


def _toml_lines(settings: Any, where: str) -> Iterator[str]:
    tables = []
    for item in fields(settings):
        value = getattr(settings, item.name)
        if is_dataclass(value):
            tables.append((item.name, value))
        elif isinstance(value, tuple) and value and is_dataclass(value[0]):
            tables.extend((item.name, entry) for entry in value)
        elif value is not None:
            yield f"{item.name} = {_toml_value(value)}"
    for name, value in tables:
        repeated = isinstance(getattr(settings, name), tuple)
        full = f"{where}{name}"
        yield ""
        yield f"[[{full}]]" if repeated else f"[{full}]"
        yield from _toml_lines(value, f"{full}.")


def _toml_value(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml_value, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value).lower() if isinstance(value, bool) else repr(value)
