"""Decide which pairs of a corpus to keep, and why the others are dropped.

`doctor` and `prepare` use the same cleaner.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from transduce.config import CleanConfig
from transduce.data.cleaning import langid, rules
from transduce.data.cleaning.checks import Findings, check_chunk
from transduce.data.cleaning.dedup import Hashes, HashSet
from transduce.data.cleaning.report import Finding, Report
from transduce.data.cleaning.verdict import judge
from transduce.data.pairs import Chunk, Pair
from transduce.data.suggestions import SAMPLE
from transduce.data.workers import worker_pool
from transduce.errors import MissingExtra

# A corpus of at most this many chunks is done before other processes have started.
_FEW_CHUNKS = 8


class Cleaner:
    """Decides on pairs in order, and counts. It remembers two hashes of every pair: 16 bytes."""

    def __init__(
        self,
        config: CleanConfig,
        source_language: str,
        target_language: str,
        held_out: Iterable[Chunk] = (),
    ) -> None:
        """Start with an empty report.

        Args:
            config: Which rules are off, warn or drop, and their bounds.
            source_language: The code by which words are counted and the language is checked.
            target_language: Likewise.
            held_out: The validation and test sets, whose sentences must not be in the corpus.
        """
        self._config = config
        self._languages = (source_language, target_language)
        self._actions = rules.actions(config)
        self._report = Report(source_language, target_language)
        self._quotes: dict[tuple[int, str], _QuoteStyle] = {}  # by side and style
        self._sample = _Sample(config.language_sample or SAMPLE)

        # Pairs seen so far, by two kinds of hash.
        self._seen_exact = HashSet()
        self._seen_near = HashSet()

        # Pairs, sources and targets that are held out. A hash of 0 means "too short to compare".
        self._held_out_near = HashSet()
        self._held_out_sources = HashSet()
        self._held_out_targets = HashSet()
        for chunk in held_out:
            findings = self._check(chunk)
            self._held_out_near.add(findings.near)
            self._held_out_sources.add(findings.sources[findings.sources != 0])
            self._held_out_targets.add(findings.targets[findings.targets != 0])

    def clean(
        self, chunks: Iterable[Chunk], processes: int = 1
    ) -> Iterator[tuple[Chunk, list[str | None]]]:
        """Yield each chunk and, for each of its pairs, the rule that drops it or None."""
        for chunk, findings in _check_all(chunks, self._check, processes):
            yield chunk, self.decide(chunk, findings)

    def decide(self, chunk: Chunk, findings: Findings | None = None) -> list[str | None]:
        """Return, for each pair of a chunk, the rule that drops it or None."""
        findings = findings or self._check(chunk)

        # Collect the rules that apply to each pair, with the side where each was found first.
        rules_of: dict[int, dict[str, int]] = {}
        for index, rule, side in findings.hits:
            rules_of.setdefault(index, {}).setdefault(rule, side)
        for rule, applies in self._compare(findings):
            for index in np.flatnonzero(applies).tolist():
                rules_of.setdefault(index, {})[rule] = 0

        # The first rule that drops, in the order of the table of rules, is the reason.
        reasons: list[str | None] = [None] * len(chunk)
        for index in sorted(rules_of):
            for rule, side in rules_of[index].items():
                _add(self._finding(rule), chunk, index, side)
            dropping = (rule for rule, drops in self._actions.items() if drops)
            reasons[index] = next((rule for rule in dropping if rule in rules_of[index]), None)

        self._add_quotes(chunk, findings)
        self._add_remarks(chunk)
        self._sample.offer(chunk, findings.exact, reasons)
        self._count(reasons)
        return reasons

    def report(self) -> Report:
        """Return the report. Call it at the end: it identifies languages, which is slow."""
        if self._report.verdict.text:
            return self._report
        sampled = self._sample.take()
        if "wrong-language" in self._actions and self._config.language_sample:
            self._identify_languages(sampled)
        self._report_rare_quotes()
        self._report.verdict = judge(
            [(pair.source, pair.target) for pair, _ in sampled],
            self._languages,
            self._report.kept,
            self._report.pairs,
            self._wrong_language_share(),
        )
        return self._report

    def _wrong_language_share(self) -> float:
        finding = self._report.findings.get("wrong-language")
        if finding is None or finding.drops:
            return 0.0
        return finding.count / max(finding.of or self._report.pairs, 1)

    @property
    def _check(self) -> Callable[[Chunk], Findings]:
        """The rules about single pairs, as a pure function that other processes can run."""
        return functools.partial(
            check_chunk,
            config=self._config,
            source_language=self._languages[0],
            target_language=self._languages[1],
        )

    def _compare(self, findings: Findings) -> Iterator[tuple[str, NDArray[np.bool_]]]:
        """Yield the rules that compare pairs with others, and to which pairs they apply."""
        leaked = self._held_out_near.contains(findings.near)
        leaked |= self._held_out_sources.contains(findings.sources)
        leaked |= self._held_out_targets.contains(findings.targets)
        duplicate = self._seen_exact.add(findings.exact)
        near_duplicate = self._seen_near.add(findings.near) & ~duplicate
        results = {"leak": leaked, "duplicate": duplicate, "near-duplicate": near_duplicate}
        return ((rule, applies) for rule, applies in results.items() if rule in self._actions)

    def _finding(self, rule: str) -> Finding:
        return self._report.findings.setdefault(rule, Finding(self._actions[rule]))

    def _add_quotes(self, chunk: Chunk, findings: Findings) -> None:
        """Count the styles of quotation marks on each side."""
        for index, style, side in findings.quotes:
            first_pair = self._report.pairs + index
            new = _QuoteStyle(first_pair, Finding(drops=False))
            counted = self._quotes.setdefault((side, style), new)
            _add(counted.finding, chunk, index, side)

    def _add_remarks(self, chunk: Chunk) -> None:
        """Report what the reader remarked about files; advice is given once for each file."""
        for remark in chunk.remarks:
            if remark.times and remark.rule in self._actions:
                finding = self._finding(remark.rule)
                finding.count += remark.times
                finding.first = finding.first or f"{remark.file}:{remark.line}"
            notes = self._report.notes
            noted = any(note.startswith(f"{remark.file}:") for note in notes)
            if remark.advice and not noted:
                notes.append(remark.advice)

    def _count(self, reasons: list[str | None]) -> None:
        self._report.pairs += len(reasons)
        self._report.kept += reasons.count(None)
        for rule, count in Counter(filter(None, reasons)).items():
            self._report.dropped[rule] = self._report.dropped.get(rule, 0) + count

    def _report_rare_quotes(self) -> None:
        """Report all styles of quotation marks but the most frequent one of each side."""
        rare: list[_QuoteStyle] = []
        for side in (0, 1):
            styles = [style for (where, _), style in self._quotes.items() if where == side]
            rare += sorted(styles, key=lambda style: style.finding.count)[:-1]
        if rare and "mixed-quotes" in self._actions:
            total = self._finding("mixed-quotes")
            for style in sorted(rare, key=lambda style: style.first_pair):
                total.merge(style.finding)
        self._quotes = {}

    def _identify_languages(self, sampled: Sequence[tuple[Pair, str]]) -> None:
        """Identify the languages of the sample, and report sentences in a wrong one."""
        try:
            unknown = [code for code in self._languages if not langid.is_known(code)]
        except MissingExtra as missing:
            self._report.notes.append(f"languages were not identified: {missing}")
            return
        for code in unknown:
            self._report.notes.append(
                f"sentences in {code!r} cannot be identified: their language was not checked"
            )

        for pair, target_file in sampled:
            files = (pair.file, target_file)
            texts = (pair.source, pair.target)
            for text, code, file in zip(texts, self._languages, files, strict=True):
                if langid.is_wrong(rules.measure(text, len), code):
                    finding = self._finding("wrong-language")
                    finding.add(file, pair.line, pair.source, pair.target)
                    break
        if "wrong-language" in self._report.findings:
            self._report.findings["wrong-language"].of = len(sampled)


class _QuoteStyle(NamedTuple):
    """A style of quotation marks on one side."""

    first_pair: int  # the number of the first pair with this style
    finding: Finding


class _Sampled(NamedTuple):
    hash: int
    number: int  # of the pair in the corpus
    pair: Pair
    target_file: str


class _Sample:
    """A random sample of the kept pairs: those with the smallest hashes.

    It has a fixed size, and does not depend on how the corpus is divided into chunks.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._largest_hash = 2**64 - 1
        self._sampled: list[_Sampled] = []
        self._offered = 0

    def offer(self, chunk: Chunk, hashes: Hashes, reasons: list[str | None]) -> None:
        """Take those kept pairs of a chunk whose hashes are small enough."""
        for index in np.flatnonzero(hashes < self._largest_hash).tolist():
            if reasons[index] is None:
                source = chunk.sources[index]
                target = chunk.targets[index]
                pair = Pair(source, target, chunk.source_file, chunk.lines[index])
                number = self._offered + index
                sampled = _Sampled(int(hashes[index]), number, pair, chunk.target_file)
                self._sampled.append(sampled)
        self._offered += len(reasons)

        # Sort only now and then.
        if len(self._sampled) > 2 * self.size:
            self._sampled = sorted(self._sampled)[: self.size]
            self._largest_hash = self._sampled[-1].hash

    def take(self) -> list[tuple[Pair, str]]:
        """Return the sample in the order of the corpus, with the target file of each pair."""
        smallest = sorted(self._sampled)[: self.size]
        self._sampled = []
        in_order = sorted(smallest, key=lambda sampled: sampled.number)
        return [(sampled.pair, sampled.target_file) for sampled in in_order]


def _add(finding: Finding, chunk: Chunk, index: int, side: int) -> None:
    file = chunk.target_file if side else chunk.source_file
    finding.add(file, chunk.lines[index], chunk.sources[index], chunk.targets[index])


def _check_all(
    chunks: Iterable[Chunk], check: Callable[[Chunk], Findings], processes: int
) -> Iterator[tuple[Chunk, Findings]]:
    """Yield the chunks in order with their findings, and check a few of them in advance."""
    chunks = iter(chunks)
    checked_here = None if processes == 1 else _FEW_CHUNKS
    for chunk in itertools.islice(chunks, checked_here):
        yield chunk, check(chunk)
    if processes == 1:
        return

    waiting: deque[tuple[Chunk, Future[Findings]]] = deque()
    with worker_pool(processes) as pool:
        for chunk in chunks:
            waiting.append((chunk, pool.submit(check, chunk)))
            if len(waiting) > 2 * processes:
                oldest, future = waiting.popleft()
                yield oldest, future.result()
        for oldest, future in waiting:
            yield oldest, future.result()
