"""Greedy search, beam search and sampling over any next-token function (§6.1).

A next-token function is `step(tokens, state) -> (log_probs, state)`. A search with beam size K goes
on until K hypotheses have ended; with K = 1 it is greedy. A hypothesis ends when its end of
sentence is among the K best candidates of a step, or at its length limit, where no other token is
allowed.
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
from transduce.search.beam_step import advance
from transduce.search.beams import Beams, begin
from transduce.search.candidates import EOS, NEVER, UNK, best_tokens
from transduce.search.hypothesis import Hypothesis


class State(Protocol):
    """The decoder state of several rows, such as a cache of keys and values."""

    def select(self, rows: Tensor) -> Self:
        """Return the state of these rows (n,), in this order; a row may be repeated or left out."""


Array = np.ndarray[Any, Any]
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
    """Return the n best hypotheses of each sentence, best first.

    Args:
        step: The next-token function.
        state: Its state, with one row per sentence.
        limits: The largest number of tokens before the end, per sentence (`config.limit`).
        pad: The padding id, which starts every target.
        config: The settings of the search.
        prefixes: Forced first tokens; empty, or one sequence per sentence.
        seeds: Seeds for sampling; empty, or one per sentence.
        device: Where `step` runs.
    """
    has_prefix = any(map(len, prefixes))
    if not has_prefix and _is_greedy(config):
        tokens = torch.full((len(limits),), pad, device=device)
        return _greedy(step, state, limits, pad, config, tokens)

    found: list[list[Hypothesis]] = [[] for _ in limits]
    beams = begin(limits, pad, config, prefixes=prefixes, seeds=seeds, device=device)
    tokens = torch.full((len(limits) * config.width,), pad, device=device)
    sentences = torch.arange(len(limits), device=device)  # the unfinished sentences
    state = state.select(sentences.repeat_interleave(config.width))
    while len(sentences):
        log_probs, state = step(tokens, state)
        beams, rows, tokens = advance(beams, log_probs, config)

        # Finished sentences leave the batch.
        alive = beams.alive()
        if not alive.all():
            finished = sentences[~alive].tolist()
            for sentence, hypotheses in zip(finished, results(beams, ~alive), strict=True):
                found[sentence] = hypotheses
            beams = beams.select(alive)
            sentences = sentences[alive]
            rows = rows.view(-1, config.width)[alive].flatten()
            tokens = tokens.view(-1, config.width)[alive].flatten()

        if len(sentences):
            state = state.select(rows)
    return found


def _is_greedy(config: SearchConfig) -> bool:
    """Return whether `_greedy` can do this search."""
    forbids_repetition = config.no_repeat_ngram or config.max_repeats
    one_path = config.width == 1 and config.temperature == 0 and config.patience <= 1
    return one_path and not forbids_repetition


def _greedy(
    step: Step[S], state: S, limits: Sequence[int], pad: int, config: SearchConfig, tokens: Tensor
) -> list[list[Hypothesis]]:
    """Search greedily: take the most probable token until the end.

    The result equals that of `advance` with a beam of one, with a fifth of its operations.
    """
    paths: list[list[int]] = [[] for _ in limits]
    path_log_probs: list[list[float]] = [[] for _ in limits]
    margins = [math.inf for _ in limits]
    never_generated = {pad, UNK} if config.forbid_unk else {pad}
    sentences = list(range(len(limits)))  # the unfinished sentences
    while sentences:
        log_probs, state = step(tokens, state)
        ends = log_probs[:, EOS].tolist()
        # Three of the best tokens may be forbidden, and the margin needs two.
        best_values, best_ids = best_tokens(log_probs.float(), min(5, log_probs.size(1)))
        rows_of_best = zip(best_values.tolist(), best_ids.tolist(), strict=True)

        for i, end, (values, ids) in zip(sentences, ends, rows_of_best, strict=True):
            path = paths[i]
            too_short = len(path) < config.min_length
            forbidden = {*never_generated, EOS} if too_short else never_generated
            ranked = [
                (value, token)
                for value, token in zip(values, ids, strict=True)
                if token not in forbidden
            ]
            # Only the end remains at the limit, or where every other token is forbidden.
            if len(path) == limits[i] or not ranked or ranked[0][0] == NEVER:
                ranked = [(end, EOS)]
            if len(ranked) > 1 and ranked[1][0] > NEVER:
                margins[i] = min(margins[i], ranked[0][0] - ranked[1][0])
            value, token = ranked[0]
            path_log_probs[i].append(min(value, 0.0))
            path.append(token)

        # Finished sentences leave the batch.
        rows = [row for row, i in enumerate(sentences) if paths[i][-1] != EOS]
        if len(rows) < len(sentences):
            sentences = [sentences[row] for row in rows]
            state = state.select(torch.tensor(rows, device=tokens.device)) if rows else state
        tokens = torch.tensor([paths[i][-1] for i in sentences], device=tokens.device)

    finished = zip(paths, path_log_probs, margins, strict=True)
    return [[_score(path, values, margin, config)] for path, values, margin in finished]


def _score(path: list[int], values: list[float], margin: float, config: SearchConfig) -> Hypothesis:
    """Return the hypothesis of a path that includes the end, with its score (§6.1)."""
    log_prob = functools.reduce(operator.add, values)
    # The score is rounded to float32 at every step, as the tensors of `advance` are.
    float32_log_prob = functools.reduce(operator.add, map(np.float32, values))
    penalty = np.float32(((5 + len(path)) / 6) ** config.alpha)
    score = float(float32_log_prob / penalty)
    _check_scores(score)
    return Hypothesis(path[:-1], score, log_prob, values, margin)


def results(
    beams: Beams, sentences: Tensor | slice = slice(None), token_scores: bool = True
) -> list[list[Hypothesis]]:
    """Return the hypotheses that the finished searches of these sentences found, best first.

    Without `token_scores` this is faster, and hypotheses have no `token_log_probs`.
    """
    ended = beams.ended
    # Copy everything to the CPU, and wait for the GPU only once.
    margin = beams.margin[:, None].expand_as(ended.score)
    on_device = (ended.tokens, ended.log_probs, ended.score, margin)
    copies = [tensor[sentences].to("cpu", non_blocking=True) for tensor in on_device]
    if beams.margin.is_cuda:
        torch.cuda.current_stream(beams.margin.device).synchronize()
    tokens, log_probs, scores, margins = (tensor.numpy() for tensor in copies)
    return as_hypotheses(tokens, log_probs, scores, margins, token_scores)


def as_hypotheses(
    tokens: Array, log_probs: Array, scores: Array, margins: Array, token_scores: bool
) -> list[list[Hypothesis]]:
    """Return the finished hypotheses of each sentence as values.

    Args:
        tokens: Each hypothesis with its end, and anything after that, (B, n, W).
        log_probs: That of each token, (B, n, W).
        scores: Those of the hypotheses, (B, n); -inf marks an unused place.
        margins: The smallest score difference that decided anything, (B, n).
        token_scores: Whether hypotheses have `token_log_probs`.
    """
    n = scores.shape[1]
    paths = tokens.reshape(-1, tokens.shape[-1])  # (B * n, W)
    values = log_probs.reshape(paths.shape)
    _check_scores(scores[:, 0])

    # Cut each hypothesis at its end, and sum its log-probabilities.
    lengths = (paths == EOS).argmax(-1)
    longest = int(lengths.max(initial=0)) + 1
    paths = paths[:, :longest]
    values = values[:, :longest]
    sums = values.cumsum(-1, dtype=np.float64)[np.arange(len(values)), lengths]
    token_values = values if token_scores else values[:, :0]
    columns = (paths, lengths, scores.ravel(), sums, token_values, margins.ravel())
    rows = zip(*(column.tolist() for column in columns), strict=True)
    hypotheses = [
        Hypothesis(path[:length], score, log_prob, token_log_probs[: length + 1], margin)
        for path, length, score, log_prob, token_log_probs, margin in rows
    ]

    # A sentence may have fewer than n; the places of the others are at its end.
    counts = (scores > NEVER).sum(1).tolist()
    return [hypotheses[i * n : i * n + count] for i, count in enumerate(counts)]


def _check_scores(scores: Array | float) -> None:
    """Raise an InputError unless the best score of every sentence is finite."""
    if not np.isfinite(scores).all():
        raise InputError(
            "the model gave every output the probability zero or NaN; check the model's weights, "
            "and that the forced prefix is possible if there is one"
        )


def sentence_seed(seed: int, source: Sequence[int]) -> int:
    """Return a seed for sampling from one source sentence (ids), whatever batch it is in."""
    digest = hashlib.blake2b(repr((seed, list(source))).encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1


@dataclass(frozen=True)
class Ensemble:
    """The states of several next-token functions."""

    states: tuple[State, ...]

    def select(self, rows: Tensor) -> Ensemble:
        """Return the rows of each state."""
        return Ensemble(tuple(state.select(rows) for state in self.states))


def ensemble(steps: Sequence[Step[Any]]) -> Step[Ensemble]:
    """Return a next-token function that averages the probabilities of several ones.

    They must share a vocabulary.
    """

    def step(tokens: Tensor, state: Ensemble) -> tuple[Tensor, Ensemble]:
        outputs = []
        states = []
        for member, member_state in zip(steps, state.states, strict=True):
            log_probs, next_state = member(tokens, member_state)
            outputs.append(log_probs)
            states.append(next_state)
        if len(outputs) == 1:
            return outputs[0], Ensemble(tuple(states))
        probabilities = torch.stack([log_probs.double().exp() for log_probs in outputs])
        return probabilities.mean(0).log().float(), Ensemble(tuple(states))

    return step
