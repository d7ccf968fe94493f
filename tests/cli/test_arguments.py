"""Arguments are read from the signature of a command."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Literal

import pytest

from transduce.cli.arguments import Help, read_arguments, suggest
from transduce.cli.commands import COMMANDS
from transduce.errors import InputError


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


@pytest.mark.parametrize(
    ("word", "known", "end"),
    [
        ("trian", ["train", "score"], "did you mean train?"),
        ("tra", ["train", "translate", "score"], "did you mean train or translate?"),
        ("--out", ["--run", "--store"], "expected one of --run, --store"),
        ("--rum", ["--run", "--store"], "did you mean --run?"),
        ("--", ["--run", "--store"], "expected one of --run, --store"),
        ("x", ["decode"], "expected decode"),
    ],
)
def test_a_similar_word_is_suggested(word, known, end):
    assert suggest(word, known) == end


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
