"""Check sentence pairs one by one: a pure function of a chunk, for any process and any order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from transduce.config import CleanConfig
from transduce.data.cleaning import characters, langid, rules
from transduce.data.cleaning.dedup import Hashes, as_hashes, digest
from transduce.data.cleaning.rules import Side
from transduce.data.pairs import Chunk

_NO_HASH = bytes(8)  # for a side that is too short to be compared with others
Check = TypeVar("Check")


class Hit(NamedTuple):
    """A side of a pair to which a rule, or a style of quotation marks, applies."""

    pair: int  # its index in the chunk
    name: str  # of the rule or the style
    side: int  # 0 source, 1 target


@dataclass(frozen=True, slots=True)
class Findings:
    """The results of the rules, and the hashes by which pairs are compared with other pairs."""

    hits: list[Hit]
    quotes: list[Hit]
    exact: Hashes  # of the text of each pair
    near: Hashes  # of the letters and digits of both sides
    sources: Hashes  # of the letters and digits of the source, 0 where it is short
    targets: Hashes  # likewise of the target


def check_chunk(
    chunk: Chunk, config: CleanConfig, source_language: str, target_language: str
) -> Findings:
    """Apply every rule that looks at a single pair."""
    actions = rules.actions(config)
    check_source = _SideChecks(config, actions, source_language)
    check_target = _SideChecks(config, actions, target_language)
    pair_rules = _enabled(rules.PAIR_RULES, actions)
    hits: list[Hit] = []
    quotes: list[Hit] = []
    hashes: list[_PairHashes] = []
    texts = zip(chunk.sources, chunk.targets, strict=True)
    for index, (source_text, target_text) in enumerate(texts):
        source = check_source.measure(source_text)
        target = check_target.measure(target_text)
        hits += [Hit(index, name, 0) for name in check_source.apply(source)]
        hits += [Hit(index, name, 1) for name in check_target.apply(target)]
        hits += [Hit(index, name, 0) for name, rule in pair_rules if rule(source, target, config)]
        hashes.append(_hash_pair(source, target, config.leak_words))

        for side, text in enumerate((source_text, target_text)):
            style = rules.quotation_style(text)
            if style:
                quotes.append(Hit(index, style, side))
    return Findings(
        hits=hits,
        quotes=quotes,
        exact=as_hashes([pair.exact for pair in hashes]),
        near=as_hashes([pair.near for pair in hashes]),
        sources=as_hashes([pair.source for pair in hashes]),
        targets=as_hashes([pair.target for pair in hashes]),
    )


class _SideChecks:
    """The enabled rules for the sentences of one side."""

    def __init__(self, config: CleanConfig, actions: Mapping[str, bool], language: str) -> None:
        self._config = config
        self._language = language
        self._count_words = rules.word_counter(language)
        self._identify = "wrong-language" in actions and config.language_sample == 0
        self._side_rules = _enabled(rules.SIDE_RULES, actions)
        self._unprintable_rules = _enabled(characters.UNPRINTABLE_RULES, actions)
        self._non_ascii_rules = _enabled(characters.NON_ASCII_RULES, actions)

    def measure(self, text: str) -> Side:
        """Return the text with its number of words and its key."""
        return rules.measure(text, self._count_words)

    def apply(self, side: Side) -> list[str]:
        """Return the names of the rules that apply to a side."""
        text = side.text
        names = [name for name, rule in self._side_rules if rule(side, self._config)]
        # Two fast tests show that most sentences need no rules about characters.
        if not text.isprintable():
            names += [name for name, rule in self._unprintable_rules if rule(text)]
        if not text.isascii():
            names += [name for name, rule in self._non_ascii_rules if rule(text)]
        if self._identify and langid.is_wrong(side, self._language):
            names.append("wrong-language")
        return names


def _enabled(table: Mapping[str, Check], actions: Mapping[str, bool]) -> list[tuple[str, Check]]:
    return [(name, check) for name, check in table.items() if name in actions]


class _PairHashes(NamedTuple):
    exact: bytes
    near: bytes
    source: bytes
    target: bytes


def _hash_pair(source: Side, target: Side, leak_words: int) -> _PairHashes:
    exact = digest(f"{source.text}\n{target.text}".encode("utf-8", "surrogatepass"))
    near = digest(source.key + b"\n" + target.key) if source.key and target.key else exact
    return _PairHashes(exact, near, _hash_side(source, leak_words), _hash_side(target, leak_words))


def _hash_side(side: Side, leak_words: int) -> bytes:
    if not side.key or side.words < leak_words:
        return _NO_HASH
    return digest(side.key)
