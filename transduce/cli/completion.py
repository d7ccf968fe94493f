"""Scripts that complete the commands, options and values of the command line in a shell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from transduce.cli.arguments import Argument, Command, read_arguments
from transduce.cli.help import summary

Commands: TypeAlias = Mapping[str, Command]

# Arguments of type `str` that take the name of a preset, or of a file.
PRESET_PLACEHOLDERS = ("RECIPE", "PRESET")
FILE_PLACEHOLDERS = ("RECIPE", "FILE", "[MODEL] TEXT")

# `_transduce_words COMMAND PREVIOUS WORD` prints the words that can be written in place of WORD,
# one per line. Its status is 1 where the name of a file can be written, too.
WORDS_FUNCTION = """\
_transduce_words() {{
    case "$1 $2" in
        " "*) printf '%s\\n' {first_words}; return 0 ;;
{value_cases}
    esac
    case "$1 $3" in
{option_name_cases}
{positional_cases}
    esac
    return 1
}}
"""

BASH = """\
# Completion for transduce in bash. Load it with: eval "$(transduce completion bash)"
{words_function}
_transduce() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}"
    local command="" words files IFS=$'\\n'
    if ((COMP_CWORD > 1)); then command="${{COMP_WORDS[1]}}"; fi

    # Bash makes three words of --option=value.
    if [[ $word == "=" ]]; then
        word=""
    elif [[ $previous == "=" ]]; then
        previous="${{COMP_WORDS[COMP_CWORD-2]}}"
    fi

    words=$(_transduce_words "$command" "$previous" "$word")
    files=$?
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    if ((files)); then
        COMPREPLY+=($(compgen -f -- "$word"))
        compopt -o filenames 2>/dev/null
    fi
}}
complete -F _transduce transduce
"""

ZSH = """\
#compdef transduce
# Completion for transduce in zsh. Load it after compinit with: eval "$(transduce completion zsh)"
{words_function}
_transduce() {{
    local word="$words[CURRENT]" previous="$words[CURRENT-1]" command="" candidates files
    if ((CURRENT > 2)); then command="$words[2]"; fi

    # Complete only the value of --option=value.
    if [[ $word == --*=* ]]; then
        previous="${{word%%=*}}"
        word="${{word#*=}}"
        compset -P '*='
    fi

    candidates=$(_transduce_words "$command" "$previous" "$word")
    files=$?
    compadd -- ${{(f)candidates}}
    if ((files)); then _files; fi
}}
# The file can also be saved as _transduce in a folder of $fpath.
if [[ $funcstack[1] == _transduce ]]; then _transduce "$@"; else compdef _transduce transduce; fi
"""

FISH = """\
# Completion for transduce in fish. Load it with: transduce completion fish | source
{lines}
"""


def completion_script(shell: str, commands: Commands) -> str:
    """Return the completion script for bash, zsh or fish."""
    if shell == "fish":
        return FISH.format(lines="\n".join(_fish_lines(commands))).rstrip()
    words_function = _words_function(commands)
    template = BASH if shell == "bash" else ZSH
    return template.format(words_function=words_function).rstrip()


def _words_function(commands: Commands) -> str:
    """Return the shell function that knows all commands, options and values."""
    # Patterns with the same reply share one case.
    value_cases: dict[str, list[str]] = {}
    option_name_cases: dict[str, list[str]] = {}
    positional_cases: dict[str, list[str]] = {}
    for name, command in commands.items():
        arguments = read_arguments(command)
        options = [argument for argument in arguments if argument.is_option]

        # The word after an option is its value; after a flag, any word can follow.
        for option in options:
            if option.kind is not bool:
                value_reply = _reply(_known_values(option), _takes_files(option))
                value_cases.setdefault(value_reply, []).append(f'"{name} {option.option}"')

        # Other words are options if they begin with a dash, and positional arguments otherwise.
        option_names = [option.option for option in options]
        option_name_reply = _reply([*option_names, "--help"], takes_files=False)
        option_name_cases.setdefault(option_name_reply, []).append(f'"{name} -"*')
        positional_reply = _reply(*_positional_values(arguments))
        positional_cases.setdefault(positional_reply, []).append(f'"{name} "*')

    return WORDS_FUNCTION.format(
        first_words=" ".join([*commands, "--help", "--version"]),
        value_cases="\n".join(_case_lines(value_cases)),
        option_name_cases="\n".join(_case_lines(option_name_cases)),
        positional_cases="\n".join(_case_lines(positional_cases)),
    )


def _case_lines(cases: Mapping[str, Iterable[str]]) -> Iterable[str]:
    """Yield the lines of a shell `case` statement, from the patterns of each reply."""
    for reply, patterns in cases.items():
        yield f"        {' | '.join(patterns)}) {reply} ;;"


def _reply(words: Sequence[str], takes_files: bool) -> str:
    """Return the shell code that prints these words, and returns 1 where a file is allowed."""
    printing = f"printf '%s\\n' {' '.join(words)}; " if words else ""
    return f"{printing}return {int(takes_files)}"


def _fish_lines(commands: Commands) -> Iterable[str]:
    """Yield the `complete` calls for fish."""
    first = "complete -c transduce -n __fish_use_subcommand -f"
    yield f"{first} -l help -d 'Show the commands'"
    yield f"{first} -l version -d 'Print the version'"
    for name, command in commands.items():
        yield f"{first} -a {name} -d {_fish_quote(summary(command))}"

    for name, command in commands.items():
        arguments = read_arguments(command)
        start = f"complete -c transduce -n '__fish_seen_subcommand_from {name}'"
        for option in arguments:
            if option.is_option:
                yield f"{start} {_fish_option(option)}"
        yield f"{start} -l help -d 'Show the help of the command'"

        # -f: do not offer files; -a: offer these words.
        values, takes_files = _positional_values(arguments)
        no_files = "" if takes_files else " -f"
        words = f" -a {_fish_quote(' '.join(values))}" if values else ""
        if no_files or words:
            yield start + no_files + words


def _fish_option(option: Argument) -> str:
    """Return the part of a `complete` call that describes an option."""
    parts = [f"-l {option.option[2:]}"]
    if option.kind is not bool:
        # -r: the option has a value; -x: it has a value that is not a file.
        parts.append("-r" if _takes_files(option) else "-x")
    values = _known_values(option)
    if values:
        parts.append(f"-a {_fish_quote(' '.join(values))}")
    parts.append(f"-d {_fish_quote(option.help.text)}")
    return " ".join(parts)


def _fish_quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _positional_values(arguments: Sequence[Argument]) -> tuple[list[str], bool]:
    """Return the known values of the positional arguments, and whether one of them is a file."""
    positionals = [argument for argument in arguments if not argument.is_option]
    values: list[str] = []
    for argument in positionals:
        values += _known_values(argument)
    return values, any(_takes_files(argument) for argument in positionals)


def _known_values(argument: Argument) -> list[str]:
    """Return the choices of an argument, or the presets where one is expected."""
    if argument.placeholder in PRESET_PLACEHOLDERS:
        from transduce.presets import PRESETS

        return list(PRESETS)
    return list(argument.choices)


def _takes_files(argument: Argument) -> bool:
    return argument.kind is Path or argument.placeholder in FILE_PLACEHOLDERS
