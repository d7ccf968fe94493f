"""Arguments are read from the signature of a command, and their values from words."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.cli.arguments import Help, parse, read_arguments, usage
from transduce.cli.commands import COMMANDS
from transduce.errors import InputError, TransduceError


def command(
    file: Annotated[Path, Help("a file")],
    words: Annotated[tuple[str, ...], Help("words", value="WORD")] = (),
    *,
    engine: Annotated[Literal["fast", "slow"] | None, Help("which one")] = None,
    batch_size: Annotated[int | None, Help("how many")] = 3,
    weight: float,
    paths: Annotated[tuple[Path, ...], Help("more", "PATH", several=True)] = (),
    loud: bool = False,
) -> None:
    """Do something."""


ARGUMENTS = {argument.name: argument for argument in read_arguments(command)}


def test_a_parameter_after_the_star_is_an_option():
    options = [name for name, argument in ARGUMENTS.items() if argument.is_option]
    assert options == ["engine", "batch_size", "weight", "paths", "loud"]
    assert ARGUMENTS["batch_size"].option == "--batch-size"


def test_the_type_gives_the_kind_the_choices_and_the_placeholder():
    shown = {name: (a.kind, a.is_list, a.placeholder) for name, a in ARGUMENTS.items()}
    assert shown == {
        "file": (Path, False, "FILE"),
        "words": (str, True, "WORD"),
        "engine": (str, False, "fast|slow"),
        "batch_size": (int, False, "N"),
        "weight": (float, False, "NUMBER"),
        "paths": (Path, True, "PATH"),
        "loud": (bool, False, ""),
    }
    assert ARGUMENTS["engine"].choices == ("fast", "slow")


def test_an_option_may_have_a_value_or_none():
    def report(*, json: Annotated[Path | None, Help("write it", bare="-")] = None) -> None: ...

    (argument,) = read_arguments(report)
    assert argument.option_usage == "--json [FILE]"
    values = [
        parse("report", report, words).keywords for words in ([], ["--json"], ["--json", "x"])
    ]
    assert values == [{}, {"json": Path("-")}, {"json": Path("x")}]


def test_a_placeholder_with_dots_is_shown_as_it_is():
    def score(
        files: Annotated[tuple[Path, ...], Help("files", value="[A ...] B")] = (),
    ) -> None: ...

    assert usage("score", read_arguments(score)) == "transduce score [A ...] B"


def test_an_argument_without_a_default_is_required():
    assert [name for name, a in ARGUMENTS.items() if a.is_required] == ["file", "weight"]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("file", "a/b", Path("a/b")),
        ("batch_size", "1_000", 1000),
        ("batch_size", "-3", -3),
        ("weight", "1e-3", 0.001),
        ("engine", "slow", "slow"),
        ("words", "", ""),
    ],
)
def test_a_word_becomes_a_value(name, text, value):
    assert ARGUMENTS[name].convert(text) == value


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("batch_size", "x", "--batch-size is 'x'; expected a whole number"),
        ("batch_size", "1.5", "--batch-size is '1.5'; expected a whole number"),
        ("weight", "", "--weight is ''; expected a number"),
        ("engine", "slw", "--engine is 'slw'; did you mean slow?"),
        ("engine", "a\nb", r"--engine is 'a\nb'; expected one of fast, slow"),
    ],
)
def test_a_wrong_value_says_what_is_expected(name, text, message):
    with pytest.raises(InputError) as caught:
        ARGUMENTS[name].convert(text)
    assert str(caught.value) == message


@pytest.mark.parametrize("name", COMMANDS)
def test_every_argument_has_a_help_text(name):
    for argument in read_arguments(COMMANDS[name]):
        text = argument.help.text
        assert text
        assert text[0].islower() or text.startswith("JSON")
        assert not text.endswith(".")
        # A default that is not a plain value is explained in words.
        if argument.is_option and argument.default is None:
            needs_no_default = (
                "also ",
                "write ",
                "translate ",
                "fine-tune ",
                "stop ",
                "folder with",
            )
            optional = text.startswith((*needs_no_default, "its translation"))
            assert "default: " in text or optional, (name, argument.name)


def test_every_default_of_a_command_is_in_its_signature():
    for command_function in COMMANDS.values():
        parameters = inspect.signature(command_function).parameters
        for argument in read_arguments(command_function):
            assert argument.default is parameters[argument.name].default


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
        (
            build,
            ["base", "--batch-size", "64"],
            "--batch-size is not an option of transduce name; "
            "here it is the setting training.tokens_per_step (in tokens of each language)",
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
