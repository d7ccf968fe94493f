"""§6.1 greedy, beam and sampling over any next-token function `step(tokens, state) -> (log_probs, state)`.

A beam of K hypotheses is searched until K have ended; a beam of one is greedy. A hypothesis ends where its
end-of-sentence is among the K best candidates of a step, and at its limit, where nothing else is allowed.
"""

from __future__ import annotations

import functools
import hashlib
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from transduce.config import SearchConfig
from transduce.errors import InputError
from transduce.search.beams import Beams, advance, begin
from transduce.search.candidates import EOS, NEVER, UNK, best_tokens
from transduce.search.hypothesis import Hypothesis


class State(Protocol):
    """What a next-token function remembers of its rows."""

    def select(self, rows: Tensor) -> Self:
        """The state of these rows (n,), in this order; a row may come several times or not at all."""


S = TypeVar("S", bound=State)
# Tokens (R,), state -> log-probabilities (R, V), state.
Step = Callable[[Tensor, S], tuple[Tensor, S]]


def search(
    step: Step[S],
    state: S,
    limits: Sequence[int],
    pad: int,
    config: SearchConfig,
    *,
    prefixes: Sequence[Sequence[int]] = (),
    seeds: Sequence[int] = (),
    device: torch.device | str = "cpu",
) -> list[list[Hypothesis]]:
    """The n best hypotheses of each sentence, best first. `state` has one row for each; `pad` starts a target.

    `limits` are tokens before the end (`config.limit`); `prefixes` and `seeds`, where given, have one entry for each.
    """
    if not any(map(len, prefixes)) and _is_greedy(config):
        return _greedy(
            step, state, limits, pad, config, torch.full((len(limits),), pad, device=device)
        )
    found: list[list[Hypothesis]] = [[] for _ in limits]
    beams = begin(limits, pad, config, prefixes=prefixes, seeds=seeds, device=device)
    sentences = torch.arange(len(limits), device=device)  # those still searched
    tokens = torch.full((len(limits) * config.width,), pad, device=device)
    state = state.select(sentences.repeat_interleave(config.width))
    while len(sentences):
        log_probs, state = step(tokens, state)
        beams, rows, tokens = advance(beams, log_probs, config)
        alive = beams.alive()
        if not alive.all():  # finished sentences leave the batch
            for sentence, hypotheses in zip(
                sentences[~alive].tolist(), results(beams, ~alive), strict=True
            ):
                found[sentence] = hypotheses
            beams, sentences = beams.select(alive), sentences[alive]
            rows, tokens = (
                values.view(-1, config.width)[alive].flatten() for values in (rows, tokens)
            )
        if len(sentences):
            state = state.select(rows)
    return found


def _is_greedy(config: SearchConfig) -> bool:
    repetition = config.no_repeat_ngram or config.max_repeats
    return config.width == 1 and config.temperature == 0 and config.patience <= 1 and not repetition


def _greedy(
    step: Step[S], state: S, limits: Sequence[int], pad: int, config: SearchConfig, tokens: Tensor
) -> list[list[Hypothesis]]:
    """What `advance` finds with a beam of one, in a fifth of its operations: the most probable token until the end."""
    paths: list[list[int]] = [[] for _ in limits]
    values: list[list[float]] = [[] for _ in limits]
    margins = [math.inf for _ in limits]
    never_said = {pad, UNK} if config.forbid_unk else {pad}
    sentences = list(range(len(limits)))  # those still searched
    while sentences:
        log_probs, state = step(tokens, state)
        ends = log_probs[:, EOS].tolist()
        # Three of them may be forbidden.
        best = best_tokens(log_probs.float(), min(5, log_probs.size(1)))
        for i, end, *row in zip(sentences, ends, *(each.tolist() for each in best), strict=True):
            forbidden = {*never_said, EOS} if len(paths[i]) < config.min_length else never_said
            ranked = [
                (value, token) for value, token in zip(*row, strict=True) if token not in forbidden
            ]
            if len(paths[i]) == limits[i] or not ranked or ranked[0][0] == NEVER:
                ranked = [(end, EOS)]
            if len(ranked) > 1 and ranked[1][0] > NEVER:
                margins[i] = min(margins[i], ranked[0][0] - ranked[1][0])
            values[i].append(min(ranked[0][0], 0.0))
            paths[i].append(ranked[0][1])
        rows = [row for row, i in enumerate(sentences) if paths[i][-1] != EOS]
        if len(rows) < len(sentences):  # finished sentences leave the batch
            sentences = [sentences[row] for row in rows]
            state = state.select(torch.tensor(rows, device=tokens.device)) if rows else state
        tokens = torch.tensor([paths[i][-1] for i in sentences], device=tokens.device)
    found = []
    for path, each, margin in zip(paths, values, margins, strict=True):
        total = functools.reduce(operator.add, map(np.float32, each))  # rounded as tensors are
        score = float(total / np.float32(((5 + len(path)) / 6) ** config.alpha))
        _check(score)
        found.append(
            [Hypothesis(path[:-1], score, functools.reduce(operator.add, each), each, margin)]
        )
    return found


def results(
    beams: Beams, sentences: Tensor | slice = slice(None), token_scores: bool = True
) -> list[list[Hypothesis]]:
    """What the finished searches of these sentences have found, best first; without scores of tokens in less time."""
    ended, n = beams.ended, beams.ended.score.size(1)
    margin = beams.margin[:, None].expand_as(ended.score)
    found = (
        ended.tokens,
        ended.log_probs,
        ended.score,
        margin,
    )  # (hypotheses, W) twice, (hypotheses,) twice
    copies = [each[sentences].flatten(0, 1).to("cpu", non_blocking=True) for each in found]
    if beams.margin.is_cuda:
        torch.cuda.current_stream(beams.margin.device).synchronize()  # once for all of them
    paths, values, scores, margins = (each.numpy() for each in copies)
    lengths = (paths == EOS).argmax(-1)
    longest = int(lengths.max(initial=0)) + 1
    paths, values = paths[:, :longest], values[:, :longest]
    totals = values.cumsum(-1, dtype=np.float64)[np.arange(len(values)), lengths]
    rows = (paths, lengths, scores, totals, values if token_scores else values[:, :0], margins)
    _check(scores[::n])
    hypotheses = [
        Hypothesis(path[:length], score, total, said[: length + 1], margin)
        for path, length, score, total, said, margin in zip(
            *(row.tolist() for row in rows), strict=True
        )
    ]
    counts = (scores.reshape(-1, n) > NEVER).sum(1).tolist()
    return [hypotheses[i * n : i * n + count] for i, count in enumerate(counts)]


def _check(scores: np.ndarray[Any, Any] | float) -> None:
    """The best of a sentence has to be a number."""
    if not np.isfinite(scores).all():
        raise InputError(
            "the model gave no probability to any output, or not a number; "
            "check its weights and that a forced prefix is possible"
        )


def sentence_seed(seed: int, source: Sequence[int]) -> int:
    """A seed for the samples of one source sentence (ids): the same in whatever batch or place it stands."""
    digest = hashlib.blake2b(repr((seed, list(source))).encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1


@dataclass(frozen=True)
class Ensemble:
    """The states of several next-token functions, as one."""

    states: tuple[State, ...]

    def select(self, rows: Tensor) -> Ensemble:
        """Each state's rows."""
        return Ensemble(tuple(state.select(rows) for state in self.states))


def ensemble(steps: Sequence[Step[Any]]) -> Step[Ensemble]:
    """The next-token function that averages the probabilities of several, over one vocabulary."""

    def step(tokens: Tensor, state: Ensemble) -> tuple[Tensor, Ensemble]:
        moved = [step(tokens, one) for step, one in zip(steps, state.states, strict=True)]
        log_probs = moved[0][0]
        if len(moved) > 1:
            log_probs = (
                torch.stack([each.double().exp() for each, _ in moved]).mean(0).log().float()
            )
        return log_probs, Ensemble(tuple(one for _, one in moved))

    return step
