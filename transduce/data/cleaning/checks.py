"""What is wrong with pairs taken one by one: a pure function over a chunk, for any process and any order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from transduce.config import CleanConfig
from transduce.data.cleaning import characters, langid, rules
from transduce.data.cleaning.dedup import Hashes, as_hashes, digest
from transduce.data.cleaning.rules import Side
from transduce.data.pairs import Chunk

_NOTHING = bytes(8)  # the hash of a side too short to be told from others
Finder = TypeVar("Finder")


@dataclass(frozen=True, slots=True)
class Findings:
    """What the rules found, and the hashes by which pairs are compared with others."""

    found: list[tuple[int, str, int]]  # which pair, which rule, which side (0 source, 1 target)
    quotes: list[tuple[int, str, int]]  # which pair, which style of quotation marks, which side
    exact: Hashes  # of each pair as it is
    near: Hashes  # of the letters and digits of both sides
    sources: Hashes  # of those of the source alone, 0 where it is short
    targets: Hashes


def judge(
    chunk: Chunk, config: CleanConfig, source_language: str, target_language: str
) -> Findings:
    """Apply every rule that needs one pair only."""
    on = rules.actions(config)
    looks = [_SideChecks(config, on, code) for code in (source_language, target_language)]
    of_pair = _enabled(rules.PAIR_RULES, on)
    found, quotes = [], []
    hashes: tuple[list[bytes], ...] = ([], [], [], [])
    for index, (source_text, target_text) in enumerate(
        zip(chunk.sources, chunk.targets, strict=True)
    ):
        source, target = looks[0].measure(source_text), looks[1].measure(target_text)
        found += [(index, name, 0) for name in looks[0].findings(source)]
        found += [(index, name, 1) for name in looks[1].findings(target)]
        found += [(index, name, 0) for name, finds in of_pair if finds(source, target, config)]
        if style := rules.quotation_style(source_text):
            quotes.append((index, style, 0))
        if style := rules.quotation_style(target_text):
            quotes.append((index, style, 1))
        for column, value in zip(
            hashes, _fingerprints(source, target, config.leak_words), strict=True
        ):
            column.append(value)
    return Findings(found, quotes, *map(as_hashes, hashes))


class _SideChecks:
    """The rules that are on for the sentences of one side."""

    def __init__(self, config: CleanConfig, on: Mapping[str, bool], code: str) -> None:
        self._config = config
        self._language = code
        self._count_words = rules.word_counter(code)
        self._identify = "wrong-language" in on and config.language_sample == 0
        self._unprintable = _enabled(characters.UNPRINTABLE_RULES, on)
        self._non_ascii = _enabled(characters.NON_ASCII_RULES, on)
        self._of_side = _enabled(rules.SIDE_RULES, on)

    def measure(self, text: str) -> Side:
        """The text with its words and key."""
        return rules.measure(text, self._count_words)

    def findings(self, side: Side) -> list[str]:
        """The names of the rules that find something."""
        text = side.text
        names = [name for name, finds in self._of_side if finds(side, self._config)]
        if not text.isprintable():
            names += [name for name, finds in self._unprintable if finds(text)]
        if not text.isascii():
            names += [name for name, finds in self._non_ascii if finds(text)]
        if self._identify and langid.is_wrong(side, self._language):
            names.append("wrong-language")
        return names


def _enabled(table: Mapping[str, Finder], on: Mapping[str, bool]) -> list[tuple[str, Finder]]:
    return [(name, finds) for name, finds in table.items() if name in on]


def _fingerprints(source: Side, target: Side, leak_words: int) -> tuple[bytes, bytes, bytes, bytes]:
    exact = digest(f"{source.text}\n{target.text}".encode("utf-8", "surrogatepass"))
    near = digest(source.key + b"\n" + target.key) if source.key and target.key else exact
    one_sided = [
        digest(side.key) if side.key and side.words >= leak_words else _NOTHING
        for side in (source, target)
    ]
    return exact, near, one_sided[0], one_sided[1]
