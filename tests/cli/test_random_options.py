"""Random values of random settings: an answer, or one line that names the setting."""

import random
from dataclasses import fields, is_dataclass

import pytest

from transduce.cli.commands import run
from transduce.config import Recipe

VALUES = [
    *(
        "0",
        "-1",
        "1",
        "2",
        "7",
        "10000000000000000000000000000",
        "1e400",
        "-0.0",
        "0.5",
        "nan",
        "inf",
    ),
    *("true", "null", "none", "", "[]", "[1]", "{}", "{a=1}", '"', "'x'", "auto", "\u00b2", "\x00"),
    *("1,2", "0x10", "../../x", "9" * 5000, "[" * 500, "adam", "paper", "16", "bleu>1", "\ud800"),
]


def settings(config, prefix=""):
    """Return the full names of all settings of a recipe."""
    names = []
    for field in fields(config):
        value = getattr(config, field.name)
        name = f"{prefix}{field.name}"
        names += settings(value, f"{name}.") if is_dataclass(value) else [name]
    return names


@pytest.mark.parametrize("count", [200, pytest.param(800, marks=pytest.mark.battery)])
def test_no_value_of_a_setting_ends_in_a_trace(count, capsys):
    choice = random.Random(count)
    names = settings(Recipe())
    assert len(names) > 60
    for _ in range(count):
        override = f"{choice.choice(names)}={choice.choice(VALUES)}"
        status = run(["describe", "tiny", override])
        message = capsys.readouterr().err
        assert status in (0, 2), override
        assert message.count("\n") == (1 if status else 0), override
