"""The completion scripts offer what the commands accept."""

import re
import shutil
import subprocess

import pytest

from transduce.cli.arguments import read_arguments
from transduce.cli.commands import COMMANDS, run
from transduce.cli.completion import completion_script
from transduce.presets import PRESETS

SHELLS = ("bash", "zsh", "fish")
needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")


@pytest.fixture
def complete(tmp_path):
    """Complete the last of some words in a real bash, in a folder with two files."""
    (tmp_path / "my recipe.toml").touch()
    (tmp_path / "runs").mkdir()
    script = completion_script("bash", COMMANDS)
    ask = 'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _transduce; printf "%s\\n" "${COMPREPLY[@]}"'

    def completed(*words):
        command = ["bash", "-c", f"{script}\n{ask}", "bash", "transduce", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return done.stdout.split("\n")[:-1] if done.stdout != "\n" else []

    return completed


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_names_all_commands_options_and_choices(shell, capsys):
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    words = set(re.findall(r"[\w.-]+", script))
    for name, command in COMMANDS.items():
        assert name in words
        for argument in read_arguments(command):
            if argument.is_option:
                assert (argument.option[2:] if shell == "fish" else argument.option) in words
            assert set(argument.choices) <= words
    assert set(PRESETS) <= words


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_valid(shell):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = completion_script(shell, COMMANDS)
    done = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, check=True)
    assert done.stderr == ""


@needs_bash
@pytest.mark.parametrize(
    ("words", "candidates"),
    [
        (["tr"], ["train", "translate"]),
        (["--v"], ["--version"]),
        (["translate", "--sc"], ["--scores"]),
        (["doctor", "--te"], ["--test"]),
        (["schema", "-"], ["--help"]),
        (["translate", "--engine", ""], ["auto", "torch", "ctranslate2"]),
        (["translate", "--engine", "=", "c"], ["ctranslate2"]),
        (["translate", "--engine", "="], ["auto", "torch", "ctranslate2"]),
        (["export", "runs/demo", "--to", "o"], ["onnx"]),
        (["data", ""], ["list", "get"]),
        (["completion", "z"], ["zsh"]),
        (["describe", "table3-D-l"], ["table3-D-ls0.0", "table3-D-ls0.2"]),
        (["describe", "my"], ["my recipe.toml"]),
        (["describe", "model.N=2", "ti"], ["tiny"]),
        (["new", "x", "--preset", "mod"], ["modern"]),
        (["train", "base", "--run", "r"], ["runs"]),
        (["translate", "--beam", ""], []),
        (["translate", "--scores", "--beam", ""], []),
    ],
)
def test_bash_completes(complete, words, candidates):
    assert complete(*words) == candidates


@needs_bash
def test_bash_completes_every_command_and_option(complete):
    assert complete("") == [*COMMANDS, "--help", "--version"]
    for name, command in COMMANDS.items():
        options = [argument.option for argument in read_arguments(command) if argument.is_option]
        assert complete(name, "--") == [*options, "--help"]
