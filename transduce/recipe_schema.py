"""The JSON Schema of recipes, with which editors complete, explain and check `recipe.toml`.

It is generated from the dataclasses in `config`: types, choices, ranges, defaults, and the comment
of each setting as its description.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
import typing
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, Literal

from transduce.config import (
    CleanConfig,
    CorpusConfig,
    DataConfig,
    ModelConfig,
    Recipe,
    SearchConfig,
    TokenizerConfig,
    TrainingConfig,
)
from transduce.presets import PRESETS
from transduce.setting_checks import INFINITY, RANGES, Range, settings_of

DIALECT = "https://json-schema.org/draft/2020-12/schema"
SECTIONS: dict[type, str] = {
    ModelConfig: "model",
    DataConfig: "data",
    CorpusConfig: "data.corpora",
    CleanConfig: "data.clean",
    TokenizerConfig: "data.tokenizer",
    TrainingConfig: "training",
    SearchConfig: "search",
}
PLAIN_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}


def recipe_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a recipe file."""
    recipe = _object_schema(Recipe, "recipe")
    preset = {
        "description": "Name of the preset that supplies every setting that is not in this file",
        "enum": list(PRESETS),
        "default": "base",
    }
    return {
        "$schema": DIALECT,
        "title": "transduce recipe",
        **recipe,
        "properties": {"preset": preset, **recipe["properties"]},
        "$defs": {kind.__name__: _object_schema(kind, name) for kind, name in SECTIONS.items()},
    }


def _object_schema(kind: type, section: str) -> dict[str, Any]:
    """Return the schema of a table, which is a dataclass."""
    descriptions = setting_descriptions(kind)
    hints = settings_of(kind)
    ranges = RANGES.get(section, {})

    # Describe each setting: its meaning, its type, its range and its default.
    properties: dict[str, Any] = {}
    required: list[str] = []
    for item in fields(kind):
        schema = {"description": descriptions[item.name]}
        schema |= _value_schema(hints[item.name], ranges.get(item.name, Range()))
        if item.default is not MISSING:
            schema["default"] = _as_json(item.default)
        properties[item.name] = schema
        if _is_required(item):
            required.append(item.name)

    table: dict[str, Any] = {
        "description": inspect.getdoc(kind),
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }
    if required:
        table["required"] = required
    return table


def _value_schema(hint: Any, limits: Range) -> dict[str, Any]:
    """Return the schema of a value, from the type of its setting."""
    kind = typing.get_origin(hint)
    options = typing.get_args(hint)
    if kind is types.UnionType:  # X | None, which is written as "none" in TOML
        return {"anyOf": [_value_schema(options[0], limits), {"const": "none"}]}
    if kind is Literal:
        return {"enum": list(options)}
    if kind is tuple:
        item_schema = _value_schema(options[0], limits)
        array = {"type": "array", "items": item_schema}
        # A single string stands for a list of one.
        return {"anyOf": [item_schema, array]} if options[0] is str else array
    if isinstance(hint, type) and is_dataclass(hint):
        return {"$ref": f"#/$defs/{hint.__name__}"}
    return {"type": PLAIN_TYPES[hint], **_limits_schema(limits)}


def _limits_schema(limits: Range) -> dict[str, Any]:
    keywords = {
        "minimum": limits.least,
        "maximum": limits.most,
        "exclusiveMinimum": limits.above,
        "exclusiveMaximum": limits.below,
    }
    return {name: limit for name, limit in keywords.items() if limit not in (None, INFINITY)}


def _is_required(item: Field[Any]) -> bool:
    return item.default is MISSING and item.default_factory is MISSING


def _as_json(default: Any) -> Any:
    if default is None:
        return "none"
    return list(default) if isinstance(default, tuple) else default


def setting_descriptions(kind: type) -> dict[str, str]:
    """Return the comment of each setting of a dataclass: on lines above it, or at its end."""
    source = textwrap.dedent(inspect.getsource(kind))
    lines = source.splitlines()
    class_node = ast.parse(source).body[0]
    assert isinstance(class_node, ast.ClassDef)

    descriptions = {}
    for node in class_node.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            comment = [*_lines_above(lines, node.lineno - 1), _end_of_line(lines, node)]
            text = " ".join(filter(None, comment))
            descriptions[node.target.id] = text[:1].upper() + text[1:]
    return descriptions


def _lines_above(lines: list[str], row: int) -> list[str]:
    """Return the own-line comments directly above a row."""
    comment: list[str] = []
    while row > 0 and lines[row - 1].lstrip().startswith("#"):
        row -= 1
        comment.insert(0, lines[row].strip().lstrip("# "))
    return comment


def _end_of_line(lines: list[str], node: ast.AnnAssign) -> str:
    """Return the comment behind a statement."""
    assert node.end_lineno is not None
    # Columns of the syntax tree count bytes.
    rest = lines[node.end_lineno - 1].encode()[node.end_col_offset :].decode()
    return rest.strip().lstrip("# ")
