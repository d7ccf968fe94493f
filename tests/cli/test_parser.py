"""The words of a command line become the arguments of a function, or an error of one line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.cli.arguments import Help, read_arguments
from transduce.cli.commands import COMMANDS
from transduce.cli.parser import parse
from transduce.errors import InputError, TransduceError


def greet(
    name: str,
    others: tuple[str, ...] = (),
    *,
    times: int = 1,
    tone: Literal["kind", "rude"] = "kind",
    file: tuple[Path, ...] = (),
    languages: Annotated[tuple[str, ...], Help("codes", several=True)] = (),
    in_capitals: bool = False,
) -> None:
    """Say hello."""


def build(recipe: str, overrides: tuple[str, ...] = (), *, steps_per_day: int = 1) -> None:
    """Build something from a recipe."""


def values_of(command, *words):
    return parse("name", command, words).keywords


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["you"], {"name": "you", "others": ()}),
        (["a", "b", "c"], {"name": "a", "others": ("b", "c")}),
        (["a", "--times", "2", "b"], {"name": "a", "others": ("b",), "times": 2}),
        (["--times=2", "a"], {"name": "a", "others": (), "times": 2}),
        (["--times", "-2", "a"], {"name": "a", "others": (), "times": -2}),
        (["a", "--times", "1", "--times", "2"], {"name": "a", "others": (), "times": 2}),
        (["a", "--in-capitals"], {"name": "a", "others": (), "in_capitals": True}),
        (["a", "--in_capitals"], {"name": "a", "others": (), "in_capitals": True}),
        (["a", "--no-in-capitals"], {"name": "a", "others": (), "in_capitals": False}),
        (
            ["--file", "x", "a", "--file=y"],
            {"name": "a", "others": (), "file": (Path("x"), Path("y"))},
        ),
        (
            ["a", "--languages", "de", "fr", "--tone", "rude"],
            {"name": "a", "others": (), "languages": ("de", "fr"), "tone": "rude"},
        ),
        (
            ["a", "--languages", "de", "--languages", "fr", "it"],
            {"name": "a", "others": (), "languages": ("de", "fr", "it")},
        ),
        ([""], {"name": "", "others": ()}),
        (["-"], {"name": "-", "others": ()}),
        (["-5"], {"name": "-5", "others": ()}),
        (["-5 degrees"], {"name": "-5 degrees", "others": ()}),
        (["--x y"], {"name": "--x y", "others": ()}),
        (["--", "-x"], {"name": "-x", "others": ()}),
        (["a", "--", "--times", "--"], {"name": "a", "others": ("--times", "--")}),
        (["--file=-x", "a"], {"name": "a", "others": (), "file": (Path("-x"),)}),
    ],
)
def test_words_become_arguments(words, values):
    assert values_of(greet, *words) == values


def test_settings_come_after_the_recipe_wherever_they_are_written():
    words = ["model.N=2", "--steps-per-day", "3", "base", "data=x", "model.h=4"]
    settings = ("model.N=2", "data=x", "model.h=4")
    assert values_of(build, *words) == {"recipe": "base", "overrides": settings, "steps_per_day": 3}
    # Other commands keep the order of the words.
    assert values_of(greet, "model.N=2", "base") == {"name": "model.N=2", "others": ("base",)}


@pytest.mark.parametrize(
    ("command", "words", "message"),
    [
        (greet, [], "NAME is missing; write transduce name NAME [OTHERS ...] [options]"),
        (greet, ["a", "--times"], "--times has no value; write --times N"),
        (
            greet,
            ["a", "--tone", "--times", "1"],
            "--tone has no value; write --tone kind|rude, "
            "or --tone=--times for a value that begins with a dash",
        ),
        (greet, ["a", "--in-capitals=1"], "--in-capitals takes no value; write --in-capitals alone"),
        (
            greet,
            ["a", "--no-in-capitals=1"],
            "--no-in-capitals takes no value; write --no-in-capitals alone",
        ),
        (greet, ["a", "--time", "1"], "--time is not an option of transduce name; did you mean --times?"),
        (greet, ["a", "--in_capital"], "--in-capital is not an option of transduce name; did you mean --in-capitals?"),
        (
            greet,
            ["a", "-x"],
            "-x is not an option of transduce name; "
            "expected one of --times, --tone, --file, --languages, --in-capitals",
        ),
        (
            build,
            ["base", "--training.tokens_per_step=3"],
            "--training.tokens-per-step is not an option of transduce name; "
            "a setting is written training.tokens_per_step=value",
        ),
        (
            build,
            ["base", "--tokens-per-step", "3"],
            "--tokens-per-step is not an option of transduce name; "
            "a setting is written training.tokens_per_step=value",
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_named(command, words, message):
    with pytest.raises(InputError) as caught:
        parse("name", command, words)
    assert str(caught.value) == message


def test_options_are_not_abbreviated():
    with pytest.raises(InputError, match="--capitals is not an option"):
        values_of(greet, "a", "--capitals")
    with pytest.raises(InputError, match="did you mean --times or --tone"):
        values_of(greet, "a", "--t", "1")


OPTIONS = sorted({a.option for c in COMMANDS.values() for a in read_arguments(c) if a.is_option})
WORDS = st.one_of(
    st.text(max_size=8),
    st.text("-=_. \nax0", max_size=8),
    st.sampled_from(
        [*OPTIONS, "--", "-", "=", "model.N=2", "-1", "--help", "None", "list", "auto"]
    ),
    st.builds("{}={}".format, st.sampled_from(OPTIONS), st.text(max_size=3)),
    st.builds("--{}".format, st.text(max_size=6)),
)


@pytest.mark.parametrize("name", COMMANDS)
@given(words=st.lists(WORDS, max_size=6))
def test_any_words_give_arguments_or_an_error_of_one_line(name, words):
    try:
        call = parse(name, COMMANDS[name], words)
    except TransduceError as error:
        message = str(error)
        assert message
        assert len(message.splitlines()) == 1
    else:
        assert set(call.keywords) <= {a.name for a in read_arguments(COMMANDS[name])}
