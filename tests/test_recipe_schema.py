"""The JSON Schema of recipes accepts what `read_recipe` does, and explains every setting."""

import json
import tomllib
from dataclasses import replace

import pytest

from transduce.config import CorpusConfig, DataConfig, ModelConfig, Recipe, TokenizerConfig
from transduce.presets import PRESETS
from transduce.recipe import to_toml
from transduce.recipe_schema import SECTIONS, recipe_schema, setting_descriptions

SCHEMA = recipe_schema()
TYPES = {
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "string": str,
    "array": list,
    "object": dict,
}
LIMITS = {
    "minimum": lambda value, limit: value >= limit,
    "maximum": lambda value, limit: value <= limit,
    "exclusiveMinimum": lambda value, limit: value > limit,
    "exclusiveMaximum": lambda value, limit: value < limit,
}
KEYWORDS = {
    *("$schema", "$defs", "$ref", "title", "description", "default", "type", "enum", "const"),
    *("anyOf", "items", "properties", "additionalProperties", "required", *LIMITS),
}


def is_valid(value, schema):
    """Whether a value fits a schema, as far as it uses KEYWORDS."""
    assert set(schema) <= KEYWORDS
    if "$ref" in schema and not is_valid(value, SCHEMA["$defs"][schema["$ref"].split("/")[-1]]):
        return False
    if "type" in schema:
        is_switch = isinstance(value, bool) and schema["type"] != "boolean"
        if is_switch or not isinstance(value, TYPES[schema["type"]]):
            return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if "const" in schema and value != schema["const"]:
        return False
    if "anyOf" in schema and not any(is_valid(value, option) for option in schema["anyOf"]):
        return False
    if any(name in schema and not fits(value, schema[name]) for name, fits in LIMITS.items()):
        return False
    if "items" in schema and not all(is_valid(item, schema["items"]) for item in value):
        return False
    if "properties" in schema:
        known = schema["properties"]
        missing = set(schema.get("required", ())) - set(value)
        unknown = set(value) - set(known)
        if missing or (unknown and not schema["additionalProperties"]):
            return False
        return all(is_valid(item, known[name]) for name, item in value.items())
    return True


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_valid(name):
    assert is_valid(tomllib.loads(to_toml(PRESETS[name])), SCHEMA)


def test_a_recipe_with_every_kind_of_value_is_valid():
    corpora = (CorpusConfig(source="a.en", target="a.de", weight=0.5), CorpusConfig(source="b.tsv"))
    data = DataConfig(corpora=corpora, validation=corpora[:1], test=corpora[1:])
    recipe = replace(Recipe(), data=data, model=ModelConfig(N_decoder=2, r=5))
    tree = tomllib.loads(to_toml(recipe))
    assert is_valid(tree, SCHEMA)
    tree["preset"] = "tiny"
    tree["model"]["r"] = "none"
    tree["data"]["corpora"][0]["source"] = "a.en"
    assert is_valid(tree, SCHEMA)


@pytest.mark.parametrize(
    "text",
    [
        "steps = 3",
        "[model]\nsteps = 3",
        "[data.tokenizer]\nvocab_sise = 3",
        "[[data.corpora]]\ntarget = 'a.de'",
        "[[data.corpora]]\nsource = 'a.en'\nwieght = 2",
        'preset = "bass"',
        "[model]\nN = 0",
        "[model]\nN = 1001",
        "[model]\nN = true",
        "[model]\nN = 2.5",
        "[model]\np_drop = 1.0",
        "[model]\nr = 'all'",
        "[training]\nlearning_rate = 0",
        "[training]\nschedule = 'cosin'",
        "[data.tokenizer]\ncharacter_coverage = 0.5",
    ],
)
def test_what_a_recipe_refuses_is_not_valid(text):
    assert not is_valid(tomllib.loads(text), SCHEMA)


def test_every_setting_has_a_description():
    tables = {"Recipe": SCHEMA, **SCHEMA["$defs"]}
    assert set(tables) == {"Recipe", *(kind.__name__ for kind in SECTIONS)}
    for table_name, table in tables.items():
        assert table["description"]
        for name, setting in table["properties"].items():
            description = setting["description"]
            assert len(description.split()) >= 2, f"{table_name}.{name}"
            assert description[0].isupper()
            assert "#" not in description


def test_descriptions_are_the_comments_of_the_settings():
    descriptions = setting_descriptions(ModelConfig)
    assert descriptions["h"] == "Number of attention heads (§3.2.2)"
    assert descriptions["norm_order"].startswith('Where LayerNorm goes: "post" is the paper\'s ')
    assert descriptions["norm_order"].endswith("which trains more stably.")
    tokenizer = setting_descriptions(TokenizerConfig)
    assert tokenizer["joint"] == "Whether source and target share one vocabulary (§5.1)"


def test_defaults_are_those_of_the_settings():
    assert SCHEMA["properties"]["preset"]["default"] == "base"
    assert SCHEMA["$defs"]["ModelConfig"]["properties"]["N"]["default"] == 6
    assert SCHEMA["$defs"]["ModelConfig"]["properties"]["r"]["default"] == "none"
    assert SCHEMA["$defs"]["CorpusConfig"]["required"] == ["source"]


def test_the_schema_is_plain_json():
    text = json.dumps(SCHEMA, allow_nan=False)
    assert json.loads(text) == SCHEMA


def test_the_validator_of_these_tests_is_no_rubber_stamp():
    assert not is_valid(3, {"type": "string"})
    assert is_valid("x", {"anyOf": [{"type": "integer"}, {"const": "x"}]})
    assert not is_valid("y", {"anyOf": [{"type": "integer"}, {"const": "x"}]})
