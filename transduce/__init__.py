"""transduce: the Transformer of "Attention Is All You Need" as software to rely on."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transduce.config import ModelConfig, Recipe, SearchConfig, TrainingConfig
    from transduce.data.prepare import prepare
    from transduce.data.tokenizer import Tokenizer
    from transduce.errors import TransduceError
    from transduce.evaluation.scores import score
    from transduce.exporters.command import export
    from transduce.inspection.inspect import ablate, inspect
    from transduce.model import Tokens, Transformer
    from transduce.presets import preset
    from transduce.recipe import load_recipe
    from transduce.training.train import train
    from transduce.translation.result import Translation
    from transduce.translation.translator import Translator

# The public names and their modules. Each is imported when it is used: `import transduce` is fast.
_PUBLIC = {
    "ModelConfig": "config",
    "Recipe": "config",
    "SearchConfig": "config",
    "Tokenizer": "data.tokenizer",
    "Tokens": "model",
    "TrainingConfig": "config",
    "TransduceError": "errors",
    "Transformer": "model",
    "Translation": "translation.result",
    "Translator": "translation.translator",
    "ablate": "inspection.inspect",
    "export": "exporters.command",
    "inspect": "inspection.inspect",
    "load_recipe": "recipe",
    "prepare": "data.prepare",
    "preset": "presets",
    "score": "evaluation.scores",
    "train": "training.train",
}

__all__ = [
    "ModelConfig",
    "Recipe",
    "SearchConfig",
    "Tokenizer",
    "Tokens",
    "TrainingConfig",
    "TransduceError",
    "Transformer",
    "Translation",
    "Translator",
    "__version__",
    "ablate",
    "export",
    "inspect",
    "load_recipe",
    "prepare",
    "preset",
    "score",
    "train",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("transduce")
    if name not in _PUBLIC:
        raise AttributeError(
            f"module 'transduce' has no attribute {name!r}; it has {', '.join(__all__)}"
        )
    found = getattr(import_module(f"transduce.{_PUBLIC[name]}"), name)
    globals()[name] = found  # also over a room of the same name, such as `transduce.exporters`
    return found


def __dir__() -> list[str]:
    return sorted({*__all__, *globals()})
