"""Replay of a beam search (§6.1): which hypotheses it kept, ended and pruned at each step, and why.

The search itself is that of every translation (`search.search`); only the probabilities that the
model gave it are recorded. A step of the search is a pure function, so the same function applied to
the same probabilities afterwards shows every decision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from torch import Tensor

from transduce.config import SearchConfig
from transduce.engines.model_calls import next_token, start
from transduce.model import Tokens
from transduce.search.beam_step import continuations, settle
from transduce.search.beams import Beams, begin
from transduce.search.candidates import EOS, NEVER
from transduce.search.hypothesis import Hypothesis
from transduce.search.search import Ensemble, ensemble, search

NodeState = Literal["kept", "pruned", "ended"]


@dataclass(frozen=True)
class Search:
    """One search and the probabilities that it saw."""

    hypothesis: Hypothesis  # the best
    log_probs: tuple[Tensor, ...]  # of each step: (hypotheses, V)
    limit: int
    pad: int
    config: SearchConfig


@dataclass(frozen=True)
class Node:
    """A hypothesis of the search: its parent and one more token."""

    parent: int | None  # the index of a node; None for the start
    id: int | None  # the token; None for the start
    step: int  # 0 for the start
    log_prob: float  # of all tokens up to here
    state: NodeState
    reason: str = ""
    best: bool = False  # whether it is part of the translation
    score: float | None = None  # of a hypothesis that has ended
    row: int = 0  # the row of `log_probs` that the token was chosen from


def run_search(models: Sequence[Any], source: Sequence[int], config: SearchConfig) -> Search:
    """Search for the translation of one source, and record what the models answered."""
    steps: list[Tensor] = []
    average = ensemble([partial(next_token, model) for model in models])

    def step(tokens: Tensor, state: Ensemble) -> tuple[Tensor, Ensemble]:
        log_probs, state = average(tokens, state)
        steps.append(log_probs)
        return log_probs, state

    model_config = models[0].config
    tokens = Tokens.padded([list(source)], model_config.source_pad)
    state = Ensemble(tuple(start(model, tokens) for model in models))
    limit = config.limit(len(source))
    ((best, *_),) = search(step, state, [limit], model_config.pad, config)
    return Search(best, tuple(steps), limit, model_config.pad, config)


def replay(found: Search) -> list[Node]:
    """Return the tree of a search. Node 0 is the start; the others are in the order of steps."""
    tree = _Tree(found.config)
    beams = begin([found.limit], found.pad, found.config)
    for log_probs in found.log_probs:
        values, ids = continuations(beams, log_probs, found.config)
        after, rows, tokens = settle(beams, values, ids, found.config, pad=found.pad)
        tree.grow(beams, after, values[0].clamp(max=0.0), ids[0], rows, tokens)
        beams = after
    return tree.finish()


class _Tree:
    """The tree while it grows."""

    def __init__(self, config: SearchConfig) -> None:
        self.config = config
        self.nodes = [Node(None, None, 0, 0.0, "kept")]
        self.live = [0] * config.width  # the node of each row
        self.step = 0

    def grow(
        self,
        before: Beams,
        after: Beams,
        values: Tensor,
        ids: Tensor,
        rows: Tensor,
        tokens: Tensor,
    ) -> None:
        """Add the nodes of one step, in which candidates (K, 1 + C) were selected."""
        self.step += 1
        K = self.config.width
        totals = before.live.score[0][:, None] + values  # (K, 1 + C)

        # Hypotheses that end: as many as the search counted, the best first.
        count = int(after.endings[0] - before.endings[0])
        order = totals[:, 0].sort(descending=True, stable=True).indices.tolist()
        ended = [(row, 0) for row in order[:count]]
        penalty = before.penalty[0, int(before.length[0]) + 1]
        for row, column in ended:
            score = float(totals[row, column] / penalty)
            reason = f"ended with the score {score:.3f}"
            self._add(row, EOS, float(totals[row, column]), "ended", reason, score=score)

        # Hypotheses that go on. When the search is over, none does.
        live = []
        chosen = {(row, 0) for row, _ in ended}
        scores = after.live.score[0].tolist()
        for row, token, score in zip(rows.tolist(), tokens.tolist(), scores, strict=True):
            live.append(len(self.nodes))
            if score > NEVER:
                self._add(row, token, score, "kept")
                chosen.add((row, 1 + ids[row, 1:].tolist().index(token)))

        # The best of those that were rejected.
        why = self._why(after, scores)
        added = 0
        for flat in totals.flatten().sort(descending=True, stable=True).indices.tolist():
            row, column = divmod(flat, totals.size(1))
            if added == K or totals[row, column] == NEVER:
                break
            if (row, column) not in chosen:
                token = int(ids[row, column])
                total = float(totals[row, column])
                self._add(row, token, total, "pruned", why(token, total))
                added += 1
        self.live = live

    def _add(
        self,
        row: int,
        token: int,
        total: float,
        state: NodeState,
        reason: str = "",
        score: float | None = None,
    ) -> None:
        node = Node(self.live[row], token, self.step, total, state, reason, score=score, row=row)
        self.nodes.append(node)

    def _why(self, after: Beams, scores: list[float]) -> Callable[[int, float], str]:
        """Return a function that explains why a candidate (token, total) was rejected."""
        K = self.config.width
        kept = [score for score in scores if score > NEVER]
        is_full = int(after.endings[0]) >= self.config.patience * K
        best = float(after.ended.score[0, 0])

        def why(token: int, total: float) -> str:
            if not kept and is_full:
                return f"the search was over: {int(after.endings[0])} hypotheses had ended"
            if not kept:
                return f"the search was over: none could reach the score {best:.3f} of the best"
            if token == EOS:
                return f"the end was not among the {K} best candidates"
            return f"below the {K} best: {total:.3f}, the last of them has {min(kept):.3f}"

        return why

    def finish(self) -> list[Node]:
        """Mark the best hypothesis, and explain the hypotheses that were not continued."""
        ended = [index for index, node in enumerate(self.nodes) if node.state == "ended"]
        # Of equal scores the search keeps the one that ended first.
        best: int | None = max(ended, key=lambda index: self.nodes[index].score or 0.0)
        path = set()
        while best is not None:
            path.add(best)
            best = self.nodes[best].parent

        continued = {node.parent for node in self.nodes if node.state != "pruned"}
        finished = []
        for index, node in enumerate(self.nodes):
            if node.state == "kept" and index not in continued:
                is_last = node.step == self.step - 1
                dropped = f"none of its continuations was among the {self.config.width} best"
                node = replace(node, reason="the search was over" if is_last else dropped)
            finished.append(replace(node, best=index in path))
        return finished
