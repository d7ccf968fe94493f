"""Bracketed trees (§6.3): read from files, written as a sequence of tokens, and read back from it.

A tree is text such as `(S (NP (PRP It)) (VP (VBZ works)))`. The parser translates its words into
its brackets, as in Vinyals et al. (2015): `(S (NP XX )NP (VP XX )VP )S`, where XX stands for the
next word, whatever its part of speech.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from transduce.data.readers.compression import blocks
from transduce.errors import DataError

WORD = "XX"
EMPTY = "-NONE-"  # the tag of a trace, which is no word
UNLABELLED = ("", "TOP", "ROOT", "S1")  # brackets around a whole sentence that mean nothing
ESCAPES = {"-LRB-": "(", "-RRB-": ")", "-LCB-": "{", "-RCB-": "}", "-LSB-": "[", "-RSB-": "]"}
_TOKEN = re.compile(r"[()]|[^\s()]+")


@dataclass(frozen=True)
class Tree:
    """A constituent with its children, or a word with its tag."""

    label: str
    children: tuple[Tree, ...] = ()
    word: str = ""  # of a leaf

    def leaves(self) -> Iterator[Tree]:
        """Yield the words with their tags, from left to right."""
        if self.word:
            yield self
        for child in self.children:
            yield from child.leaves()

    def words(self) -> list[str]:
        """Return the words, with brackets as people write them."""
        return [ESCAPES.get(leaf.word, leaf.word) for leaf in self.leaves()]


@dataclass(frozen=True, order=True)
class Span:
    """A labelled constituent: the words from `start` up to but not including `end`."""

    label: str
    start: int
    end: int


def read_trees(path: Path) -> Iterator[Tree]:
    """Yield the trees of a file, without traces and function tags; a tree may span lines."""
    content = b"".join(blocks(path))
    tokens = _TOKEN.findall(content.decode("utf-8", errors="replace"))
    position = 0
    while position < len(tokens):
        raw, position = _parse(tokens, position, path)
        tree = _cleaned(raw)
        if tree is not None:
            yield tree


def linearize(tree: Tree) -> str:
    """Return the brackets of a tree as tokens, with XX in the place of each word."""
    if tree.word:
        return WORD
    inside = " ".join(linearize(child) for child in tree.children)
    return f"({tree.label} {inside} ){tree.label}"


def spans_of(tree: Tree) -> list[Span]:
    """Return the constituents of a tree, as a list since two may be equal."""
    spans: list[Span] = []
    _collect(tree, 0, spans)
    return spans


def spans_of_text(text: str, words: int) -> list[Span] | None:
    """Return the constituents of linearized brackets, or None if they are no tree of these words.

    Every bracket must be closed by its own label, and there must be one XX for each word.
    """
    spans: list[Span] = []
    stack: list[tuple[str, int]] = []
    position = 0
    for number, token in enumerate(text.split()):
        if number and not stack:
            return None  # something follows the end of the tree
        if token.startswith("(") and len(token) > 1:
            stack.append((token[1:], position))
        elif token == WORD and stack:
            position += 1
        elif token.startswith(")") and stack and stack[-1][0] == token[1:]:
            label, start = stack.pop()
            if start == position:
                return None  # a constituent without words
            spans.append(Span(label, start, position))
        else:
            return None
    return spans if spans and not stack and position == words else None


def _collect(tree: Tree, start: int, spans: list[Span]) -> int:
    """Add the constituents of a tree whose first word is `start`; return where it ends."""
    if tree.word:
        return start + 1
    end = start
    for child in tree.children:
        end = _collect(child, end, spans)
    spans.append(Span(tree.label, start, end))
    return end


def _parse(tokens: list[str], position: int, path: Path) -> tuple[Tree, int]:
    """Return the tree that starts at a position, and where the next one starts.

    It needs no recursion, so that a damaged file cannot exhaust the stack.
    """
    stack: list[list[Tree | str]] = []
    for index in range(position, len(tokens)):
        token = tokens[index]
        if token == "(":
            stack.append([])
        elif not stack:
            break
        elif token != ")":
            stack[-1].append(token)
        else:
            tree = _build(stack.pop(), path)
            if not stack:
                return tree, index + 1
            stack[-1].append(tree)
    raise DataError(
        f"{path} has a tree that does not begin or end with a bracket; expected bracketed trees "
        "such as (S (NP (PRP It)) (VP (VBZ works)))"
    )


def _build(parts: list[Tree | str], path: Path) -> Tree:
    label = ""
    if parts and isinstance(parts[0], str):
        label = parts[0]
        parts = parts[1:]
    if len(parts) == 1 and isinstance(parts[0], str):
        return Tree(label, word=parts[0])
    children = [part for part in parts if isinstance(part, Tree)]
    if len(children) != len(parts):
        raise DataError(
            f"{path} has a bracket with several words, ({label} {parts[0]} ...; expected a bracket "
            "with a tag for each word"
        )
    return Tree(label, tuple(children))


def _cleaned(tree: Tree) -> Tree | None:
    """Return a tree without traces, empty constituents, function tags and the outermost TOP."""
    if tree.word:
        return None if tree.label == EMPTY else tree
    children = []
    for child in tree.children:
        kept = _cleaned(child)
        if kept is not None:
            children.append(kept)
    if not children:
        return None
    label = _plain(tree.label)
    if label in UNLABELLED and len(children) == 1 and not children[0].word:
        return children[0]
    return Tree(label or "TOP", tuple(children))


def _plain(label: str) -> str:
    """Return a label without function tags and indices: NP-SBJ-1 and NP=2 are NP."""
    return re.split(r"[-=|]", label)[0] if not label.startswith("-") else label
