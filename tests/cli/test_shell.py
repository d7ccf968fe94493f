"""The schema of recipes is printed for an editor."""

import json
import sys
import types

from transduce.cli.commands import run


def test_the_schema_is_printed_as_json(monkeypatch, capsys):
    schema = {"title": "recipe", "properties": {"model": {}}}
    module = types.SimpleNamespace(recipe_schema=lambda: schema)
    monkeypatch.setitem(sys.modules, "transduce.recipe_schema", module)
    assert run(["schema"]) == 0
    output = capsys.readouterr().out
    assert json.loads(output) == schema
    assert output == json.dumps(schema, indent=2) + "\n"
    monkeypatch.undo()
    assert run(["schema"]) == 0
    assert "training" in json.loads(capsys.readouterr().out)["properties"]
