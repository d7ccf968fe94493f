"""transduce: the Transformer of "Attention Is All You Need" as software to rely on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transduce.decoding.translation import Translation
    from transduce.decoding.translator import Translator

__all__ = ["Translation", "Translator"]


def __getattr__(name: str) -> Any:
    """The public names, imported when they are used: `import transduce` alone costs nothing."""
    if name not in __all__:
        raise AttributeError(f"module 'transduce' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"transduce.decoding.{name.lower()}"), name)
