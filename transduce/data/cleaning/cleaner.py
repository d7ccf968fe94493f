"""Which pairs of a corpus to keep, and why not the others. `doctor` and `prepare` both clean with it."""

from __future__ import annotations

import functools
import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future

import numpy as np
from numpy.typing import NDArray

from transduce.config import CleanConfig
from transduce.data.cleaning import langid, rules
from transduce.data.cleaning.checks import Findings, judge
from transduce.data.cleaning.dedup import Hashes, HashSet
from transduce.data.cleaning.report import Finding, Report
from transduce.data.pairs import Chunk, Pair
from transduce.data.workers import worker_pool
from transduce.errors import MissingExtra


class Cleaner:
    """Decides pair by pair, in order, and counts. It remembers two hashes of every pair: 16 bytes."""

    def __init__(
        self,
        config: CleanConfig,
        source_language: str,
        target_language: str,
        held_out: Iterable[Chunk] = (),
    ) -> None:
        """A cleaner that knows of no pair yet.

        Args:
            config: Rules that are off, that warn, that drop, and their bounds.
            source_language: Its code: words are counted and languages identified by it.
            target_language: Likewise.
            held_out: The validation and test sets that may not leak into training.
        """
        self._config = config
        self._languages = (source_language, target_language)
        self._actions = rules.actions(config)
        self._report = Report(source_language, target_language)
        # By side and style: first pair, finding.
        self._quotes: dict[tuple[int, str], tuple[int, Finding]] = {}
        self._seen_exact, self._seen_near = HashSet(), HashSet()
        self._held_near, self._held_sources, self._held_targets = HashSet(), HashSet(), HashSet()
        self._sample = _Sample(config.language_sample if "wrong-language" in self._actions else 0)
        for chunk in held_out:
            judgement = self.judge(chunk)
            self._held_near.add(judgement.near)
            self._held_sources.add(judgement.sources[judgement.sources != 0])
            self._held_targets.add(judgement.targets[judgement.targets != 0])

    @property
    def judge(self) -> Callable[[Chunk], Findings]:
        """The part that needs one pair only, as a pure function that can be sent to other processes."""
        return functools.partial(
            judge,
            config=self._config,
            source_language=self._languages[0],
            target_language=self._languages[1],
        )

    def check(self, pair: Pair) -> str | None:
        """The rule that drops this pair, or None. (Slower than chunks.)"""
        return self.decide(Chunk([pair.source], [pair.target], [pair.line], pair.file, pair.file))[
            0
        ]

    def clean(
        self, chunks: Iterable[Chunk], processes: int = 1
    ) -> Iterator[tuple[Chunk, list[str | None]]]:
        """Each chunk with, for each of its pairs, the rule that drops it or None."""
        for chunk, judgement in _judged(chunks, self.judge, processes):
            yield chunk, self.decide(chunk, judgement)

    def decide(self, chunk: Chunk, judgement: Findings | None = None) -> list[str | None]:
        """For each pair of the chunk, the rule that drops it or None."""
        judgement = judgement or self.judge(chunk)
        found: dict[int, dict[str, int]] = {}
        for index, rule, side in judgement.found:
            found.setdefault(index, {}).setdefault(rule, side)
        for rule, which in self._compare(judgement):
            for index in np.flatnonzero(which).tolist():
                found.setdefault(index, {})[rule] = 0
        reasons: list[str | None] = [None] * len(chunk)
        for index in sorted(found):
            for rule, side in found[index].items():
                _add(self._finding(rule), chunk, index, side)
            reasons[index] = next(
                (rule for rule, drops in self._actions.items() if drops and rule in found[index]),
                None,
            )
        for index, style, side in judgement.quotes:
            new = (self._report.pairs + index, Finding(drops=False))
            _add(self._quotes.setdefault((side, style), new)[1], chunk, index, side)
        self._remark(chunk)
        self._sample.offer(chunk, judgement.exact, reasons)
        self._count(reasons)
        return reasons

    def report(self) -> Report:
        """What was found so far. Identifies the languages of the sample, which takes seconds: call it at the end."""
        self._identify()
        self._compare_quotes()
        return self._report

    def _compare(self, judgement: Findings) -> Iterator[tuple[str, NDArray[np.bool_]]]:
        """The rules over many pairs: which pairs were seen before, or are held out."""
        again = self._seen_exact.add(judgement.exact)
        leaked = self._held_near.contains(judgement.near)
        leaked |= self._held_sources.contains(judgement.sources) | self._held_targets.contains(
            judgement.targets
        )
        results = {
            "leak": leaked,
            "duplicate": again,
            "near-duplicate": self._seen_near.add(judgement.near) & ~again,
        }
        return ((rule, which) for rule, which in results.items() if rule in self._actions)

    def _finding(self, rule: str) -> Finding:
        return self._report.findings.setdefault(rule, Finding(self._actions[rule]))

    def _remark(self, chunk: Chunk) -> None:
        for remark in chunk.remarks:
            if remark.times and remark.rule in self._actions:
                finding = self._finding(remark.rule)
                finding.count += remark.times
                finding.first = finding.first or f"{remark.file}:{remark.line}"
            told = any(note.startswith(f"{remark.file}:") for note in self._report.notes)
            if remark.advice and not told:  # once a file
                self._report.notes.append(remark.advice)

    def _count(self, reasons: list[str | None]) -> None:
        self._report.pairs += len(reasons)
        self._report.kept += reasons.count(None)
        for rule, count in Counter(filter(None, reasons)).items():
            self._report.dropped[rule] = self._report.dropped.get(rule, 0) + count

    def _compare_quotes(self) -> None:
        """Lines in another style than most of their side: a style is a fault only beside another."""
        rarer: list[tuple[int, Finding]] = []
        for side in (0, 1):
            styles = [found for (where, _), found in self._quotes.items() if where == side]
            rarer += sorted(styles, key=lambda found: found[1].count)[:-1]
        if rarer and "mixed-quotes" in self._actions:
            total = self._finding("mixed-quotes")
            for _, finding in sorted(rarer, key=lambda found: found[0]):
                total.merge(finding)
        self._quotes = {}

    def _identify(self) -> None:
        if not self._sample.size:
            return
        try:
            unknown = [code for code in self._languages if not langid.is_known(code)]
        except MissingExtra as missing:
            self._report.notes.append(f"languages were not identified: {missing}")
            return
        for code in unknown:
            self._report.notes.append(
                f"sentences in {code!r} cannot be identified: their language was not checked"
            )
        pairs = self._sample.take()
        self._sample = _Sample(0)
        for pair, target_file in pairs:
            for side, (text, code) in enumerate(zip(pair[:2], self._languages, strict=True)):
                if langid.is_wrong(rules.measure(text, len), code):
                    file = target_file if side else pair.file
                    self._finding("wrong-language").add(file, pair.line, pair.source, pair.target)
                    break
        if "wrong-language" in self._report.findings:
            self._report.findings["wrong-language"].of = len(pairs)


class _Sample:
    """The kept pairs of the smallest hashes: a fair sample of fixed size, the same whatever the chunks are."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._bound = 2**64 - 1
        self._held: list[tuple[int, int, Pair, str]] = []
        self._offered = 0

    def offer(self, chunk: Chunk, hashes: Hashes, reasons: list[str | None]) -> None:
        if not self.size:
            return
        for index in np.flatnonzero(hashes < self._bound).tolist():
            if reasons[index] is None:
                pair = Pair(
                    chunk.sources[index],
                    chunk.targets[index],
                    chunk.source_file,
                    chunk.lines[index],
                )
                self._held.append(
                    (int(hashes[index]), self._offered + index, pair, chunk.target_file)
                )
        self._offered += len(reasons)
        if len(self._held) > 2 * self.size:
            self._held = sorted(self._held)[: self.size]
            self._bound = self._held[-1][0]

    def take(self) -> list[tuple[Pair, str]]:
        """The sample in the order of the corpus, with the file of each target."""
        held, self._held = sorted(self._held)[: self.size], []
        return [
            (pair, target_file)
            for _, _, pair, target_file in sorted(held, key=lambda entry: entry[1])
        ]


def _add(finding: Finding, chunk: Chunk, index: int, side: int) -> None:
    file = chunk.target_file if side else chunk.source_file
    finding.add(file, chunk.lines[index], chunk.sources[index], chunk.targets[index])


def _judged(
    chunks: Iterable[Chunk], judge: Callable[[Chunk], Findings], processes: int
) -> Iterator[tuple[Chunk, Findings]]:
    """Chunks with their judgements, in order, a few of them under way at a time."""
    chunks = iter(chunks)
    alone = None if processes == 1 else 8  # a small corpus is done before processes have started
    for chunk in itertools.islice(chunks, alone):
        yield chunk, judge(chunk)
    if processes == 1:
        return
    waiting: deque[tuple[Chunk, Future[Findings]]] = deque()
    with worker_pool(processes) as pool:
        for chunk in chunks:
            waiting.append((chunk, pool.submit(judge, chunk)))
            if len(waiting) > 2 * processes:
                first, result = waiting.popleft()
                yield first, result.result()
        for first, result in waiting:
            yield first, result.result()
