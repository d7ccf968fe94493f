"""The commands for your editor and shell: a schema of recipes, and completion."""

from __future__ import annotations

from typing import Annotated, Literal

from transduce.cli.arguments import Command, Help


def schema() -> None:
    """Print the JSON schema of recipe files, for your editor.

    Examples:
        transduce schema > recipe.schema.json
    """
    import json

    from transduce.recipe_schema import recipe_schema

    print(json.dumps(recipe_schema(), indent=2))


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], Help("the shell that you use")],
) -> None:
    """Print a script that completes commands in your shell.

    Examples:
        eval "$(transduce completion bash)"
        transduce completion fish > ~/.config/fish/completions/transduce.fish
    """
    from transduce.cli.commands import COMMANDS as ALL_COMMANDS
    from transduce.cli.completion import completion_script

    print(completion_script(shell, ALL_COMMANDS))


COMMANDS: dict[str, Command] = {"schema": schema, "completion": completion}
