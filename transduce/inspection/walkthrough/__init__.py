"""A walk through one translation: every step with its formula, its code and its numbers."""

from transduce.inspection.walkthrough.result import Step, Walkthrough
from transduce.inspection.walkthrough.steps import walkthrough

__all__ = ["Step", "Walkthrough", "walkthrough"]
