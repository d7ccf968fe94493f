"""The help texts are complete, plain, and fit a terminal."""

import re
import shlex

import pytest

from transduce.cli.arguments import parse, read_arguments
from transduce.cli.commands import COMMANDS, GROUPS, run
from transduce.cli.help import command_help, overview


def examples_of(name):
    """The examples of a command, as words."""
    _, _, examples = command_help(name, COMMANDS[name]).partition("\nexamples:\n")
    return [shlex.split(line) for line in examples.splitlines()]


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"], ["--help", "x"]])
def test_the_overview_has_a_line_for_each_command_in_its_group(arguments, capsys):
    assert run(arguments) == 0
    text = capsys.readouterr().out
    for title, commands in GROUPS.items():
        (group,) = re.findall(rf"^{title}:\n((?:  .*\n)+)", text, flags=re.MULTILINE)
        lines = [line.split(maxsplit=1) for line in group.splitlines()]
        assert [line[0] for line in lines] == list(commands)
        assert all(line[1].endswith(".") for line in lines)
    summaries = re.findall(r"^  [a-z]+ +(?=[A-Z])", text, flags=re.MULTILINE)
    assert len(summaries) == len(COMMANDS)
    assert len({len(start) for start in summaries}) == 1  # one column


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_names_all_its_arguments(name, capsys):
    assert run([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: transduce {name}")
    for argument in read_arguments(COMMANDS[name]):
        label = argument.option if argument.is_option else argument.placeholder
        assert re.search(rf"^  {re.escape(label)}\b", text, flags=re.MULTILINE)
        assert all(choice in text for choice in argument.choices)
    assert "--help" in text


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_shown_wherever_it_is_asked_for(name, capsys):
    assert run([name, "--help"]) == 0
    text = capsys.readouterr().out
    for arguments in (["-h"], ["x", "--help"], ["--no-such-option", "--help", "x"]):
        assert run([name, *arguments]) == 0
        assert capsys.readouterr().out == text


def test_defaults_and_choices_are_shown_as_people_write_them(capsys):
    assert run(["translate", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "--engine auto|torch|ctranslate2 " in text
    assert (
        "--nbest N number of translations for each line; JSON if more than 1 (default: 1)" in text
    )
    assert "strict|replace" in text
    assert "(default: strict)" in text
    assert run(["export", "--help"]) == 0
    assert "(required)" in capsys.readouterr().out
    assert run(["serve", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "that the page shows (default: runs)" in text
    assert "must be translated (default: 120)" in text
    assert "refusing connections (default: 0)" in text
    for name in COMMANDS:
        page = command_help(name, COMMANDS[name])
        assert not re.search(r"\(default:[^)]*\)\s+\(default:", page)
        assert not re.search(
            r"None|True|False|\{|\}|\bSTR\b|\bINT\b|\bPATH\b|`|\(default: \)", page
        )


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples_that_it_accepts(name):
    examples = examples_of(name)
    assert examples
    for words in examples:
        if words[0] == "torchrun":
            words = words[words.index("--") + 1 :]
        if words[0] == "eval":
            words = shlex.split(words[1].strip("$()"))
        if ">" in words:
            words = words[: words.index(">")]
        assert words[:2] == ["transduce", name]
        parse(name, COMMANDS[name], words[2:])


def test_every_line_fits_a_terminal():
    pages = [overview(GROUPS), *(command_help(name, COMMANDS[name]) for name in COMMANDS)]
    lines = [line for page in pages for line in page.splitlines()]
    assert [line for line in lines if len(line) > 100] == []
    assert [line for line in lines if len(line) > 80 and not line.startswith("usage:")] == []
    assert not any(line.endswith(" ") for line in lines)
