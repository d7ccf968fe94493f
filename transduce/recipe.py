"""Read and write recipes: a preset or a TOML file, with overrides such as `model.N=2` on top."""

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

from transduce.config import ModelConfig, Recipe, SearchConfig
from transduce.errors import ConfigError
from transduce.presets import PRESETS, preset
from transduce.setting_checks import mistaken_type, settings_of
from transduce.setting_names import RENAMED, unknown_setting

Settings = TypeVar("Settings")

# What a recipe may have at most: reading more would take minutes and gigabytes.
MOST_BYTES = 1 << 20
MOST_PARTS = 30  # of a dotted name
MOST_DOTS = 1_000  # in a line, with paths

# Settings that take their value from another one, which is the one to suggest to users.
DERIVED = {"model.vocab_size", "model.source_vocab_size"}

# The settings that name text.
TEXTS = ("data.corpora", "data.validation", "data.test")


def load_recipe(name_or_path: str, overrides: Sequence[str] = ()) -> Recipe:
    """Return a preset, or the recipe of a TOML file, with each `section.setting=value` applied.

    `preset=NAME` replaces the preset that a recipe file starts from.
    """
    names = [override for override in overrides if override.startswith("preset=")]
    other = str(read_override(names[-1])[1]) if names else None
    overrides = [override for override in overrides if override not in names]
    if name_or_path in PRESETS:
        recipe = preset(other or name_or_path)
    elif Path(name_or_path).suffix == ".toml":
        recipe = read_recipe(Path(name_or_path), other)
    else:
        raise ConfigError(_not_a_recipe(name_or_path))
    return apply_overrides(recipe, overrides)


def _not_a_recipe(name: str) -> str:
    """Return the message for a name that is neither a recipe file nor a preset."""
    path = Path(name)
    if path.is_dir():
        recipe = path / "recipe.toml"
        if recipe.is_file():
            return f"{path} is a folder; did you mean {recipe}?"
        return f"{path} is a folder; expected a recipe file, such as {recipe}"
    if path.is_file():
        return (
            f"{path} is not a recipe; expected a .toml file, which transduce new writes for your "
            "text"
        )
    close = difflib.get_close_matches(name, PRESETS, n=1)
    if close:
        return f"{name!r} is not a preset; did you mean {close[0]}?"
    return f"{name!r} is neither a .toml file nor a preset; the presets are {', '.join(PRESETS)}"


def read_recipe(path: Path, other_preset: str | None = None) -> Recipe:
    """Read a recipe file. It starts from its `preset = "..."`, or else from the base model.

    With `other_preset` it starts from that one.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ConfigError(f"{path} has more than {MOST_BYTES:,} bytes; expected a recipe")
        text = path.read_text(encoding="utf-8")
        if any(map(_is_deep, text.splitlines())):
            raise ConfigError(f"{path} has a name of too many parts; expected a recipe")
        tree = tomllib.loads(text)
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist; expected a recipe") from None
    except (ValueError, OSError) as error:  # not TOML, not UTF-8, a number of too many digits
        raise ConfigError(f"{path} cannot be read as a recipe: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path} is nested too deeply; expected a recipe") from None

    # Start from the preset, and change what the file says.
    if other_preset is not None:
        tree["preset"] = other_preset
    if "preset" not in tree:
        return update_recipe(Recipe(), tree)
    name = tree.pop("preset")
    if not isinstance(name, str):
        raise ConfigError(f"{path}: preset is {name!r}; expected a name in quotes")
    return update_recipe(preset(name), tree)


def _is_deep(line: str) -> bool:
    """Return whether a line of TOML has a name whose parts would be nested very deeply."""
    return line.partition("=")[0].count(".") > MOST_PARTS or line.count(".") > MOST_DOTS


def apply_overrides(recipe: Recipe, overrides: Sequence[str]) -> Recipe:
    """Return the recipe with all of `section.setting=value` applied at once.

    Two overrides that are valid only together can therefore be given in any order.
    """
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
    return update_recipe(recipe, tree)


def update_recipe(recipe: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """Return the recipe with these changes; a new tokenizer size is the model's size as well."""
    updated = update(recipe, changes)
    sizes_tokenizer = "vocab_size" in _table(_table(changes, "data"), "tokenizer")
    sizes_model = "vocab_size" in _table(changes, "model")
    if sizes_tokenizer and not sizes_model:
        return _with_tokenizer_size(updated)
    return updated


def follow_tokenizer(recipe: Recipe) -> Recipe:
    """Return a recipe that was made in Python with the tokenizer's size in place of the default."""
    if recipe.model.vocab_size == ModelConfig.vocab_size:
        return _with_tokenizer_size(recipe)
    return recipe


def check_vocabulary(recipe: Recipe) -> None:
    """Refuse a model whose vocabulary size is not that of the tokenizer that it will get."""
    size = recipe.data.tokenizer.vocab_size
    for name in ("vocab_size", "source_vocab_size"):
        model_size = getattr(recipe.model, name)
        if model_size not in (None, size):
            raise ConfigError(
                f"model.{name} is {model_size:,}, but data.tokenizer.vocab_size is {size:,}; "
                f"leave model.{name} out and set data.tokenizer.vocab_size, which the model follows"
            )


def _with_tokenizer_size(recipe: Recipe) -> Recipe:
    size = recipe.data.tokenizer.vocab_size
    return replace(recipe, model=replace(recipe.model, vocab_size=size))


def _table(tree: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a table inside a table, empty where there is none."""
    value = tree.get(name)
    return value if isinstance(value, Mapping) else {}


def update(settings: Settings, changes: Mapping[str, Any], prefix: str = "") -> Settings:
    """Return a copy of settings with the changes of a nested mapping, each checked by type."""
    hints = settings_of(type(settings))
    values = {}
    for given_name, value in changes.items():
        name = RENAMED.get(given_name, given_name)
        if name not in hints:
            paths = _paths(settings, prefix)
            elsewhere = [path for path in paths if path.split(".")[-1] == name]
            raise ConfigError(unknown_setting(f"{prefix}{name}", name, list(hints), elsewhere))
        current = getattr(settings, name)
        if is_dataclass(current) and isinstance(value, Mapping):
            values[name] = update(current, value, f"{prefix}{name}.")
        else:
            values[name] = _convert(value, hints[name], f"{prefix}{name}")
    return replace(settings, **values)  # type: ignore[type-var]


def read_override(
    override: str, example: str = "section.setting=value, such as model.N=2"
) -> tuple[str, Any]:
    """Return the name and the value of `name=value`."""
    name, equals, text = override.partition("=")
    if not equals:
        raise ConfigError(f"{override!r} is not an override; expected {example}")
    try:
        return name, tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return name, text  # a word without quotes: training.schedule=cosine
    except (ValueError, RecursionError):  # thousands of digits, or of brackets
        raise ConfigError(f"{name} is {text[:20]!r}...; expected a value that is shorter") from None


def adjusted(search: SearchConfig, overrides: Sequence[str] = (), **changes: Any) -> SearchConfig:
    """Return search settings with those changes that are not None, and with each `name=value`.

    The beam grows to n_best hypotheses unless its size is given.
    """
    given = {name: value for name, value in changes.items() if value is not None}
    for override in overrides:
        name, value = read_override(override, "setting=value, such as temperature=0.8")
        given[name] = value
    n_best = given.get("n_best")
    if isinstance(n_best, int):
        given.setdefault("beam_size", max(search.beam_size, n_best))
    return update(search, given, "search.")


def to_toml(recipe: Recipe) -> str:
    """Return the recipe as TOML that `read_recipe` reads back unchanged."""
    return "\n".join(_toml_lines(recipe, "")).strip() + "\n"


def differences(recipe: Recipe, other: Recipe) -> dict[str, tuple[Any, Any]]:
    """Return the settings in which two recipes differ: name -> (first value, second value)."""
    first = dict(_flat(recipe))
    second = dict(_flat(other))
    return {name: (first[name], second[name]) for name in first if first[name] != second[name]}


def _flat(settings: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for item in fields(settings):
        value = getattr(settings, item.name)
        if is_dataclass(value):
            yield from _flat(value, f"{prefix}{item.name}.")
        else:
            yield f"{prefix}{item.name}", value


def _paths(settings: Any, prefix: str) -> list[str]:
    """Return the dotted names of all settings that a user should set."""
    return [name for name, _ in _flat(settings, prefix) if name not in DERIVED]


def _convert(value: Any, hint: Any, name: str) -> Any:
    """Convert a TOML value to the type that the setting has."""
    options = typing.get_args(hint)
    origin = typing.get_origin(hint)

    if origin is types.UnionType:  # X | None
        return None if value in (None, "none") else _convert(value, options[0], name)

    if origin is tuple:
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list):
            raise ConfigError(f"{name} is {value!r}; expected a list")
        return tuple(
            _convert(item, options[0], f"{name}[{index}]") for index, item in enumerate(items)
        )

    if isinstance(hint, type) and is_dataclass(hint):
        return _convert_table(value, hint, name)

    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)

    mistake = mistaken_type(value, hint, name)
    if mistake:
        raise ConfigError(mistake)
    return value


def _convert_table(value: Any, kind: type, name: str) -> Any:
    """Convert a TOML table to a dataclass that has no current values, such as a corpus."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{name} is {value!r}; expected a table of settings")
    hints = settings_of(kind)
    for key in value:
        if key not in hints:
            raise ConfigError(unknown_setting(f"{name}.{key}", key, list(hints)))
    for item in fields(kind):
        required = item.default is MISSING and item.default_factory is MISSING
        if required and item.name not in value:
            raise ConfigError(f"{name} has no {item.name}; expected a value for it")
    return kind(**{key: _convert(item, hints[key], f"{name}.{key}") for key, item in value.items()})


def _toml_lines(settings: Any, prefix: str) -> Iterator[str]:
    # TOML wants the plain values of a table before the tables inside it.
    tables = []
    for item in fields(settings):
        value = getattr(settings, item.name)
        if is_dataclass(value):
            tables.append((item.name, value))
        elif isinstance(value, tuple) and value and is_dataclass(value[0]):
            tables.extend((item.name, entry) for entry in value)
        elif value is not None:
            yield f"{item.name} = {toml_value(value)}"

    for name, table in tables:
        full_name = f"{prefix}{name}"
        repeated = isinstance(getattr(settings, name), tuple)
        yield ""
        yield f"[[{full_name}]]" if repeated else f"[{full_name}]"
        yield from _toml_lines(table, f"{full_name}.")


def toml_value(value: Any) -> str:
    """Return a plain value, or a tuple of them, as it is written in TOML."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value).lower() if isinstance(value, bool) else repr(value)
