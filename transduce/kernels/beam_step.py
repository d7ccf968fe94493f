"""A step of beam search on a GPU, in Triton: `candidates.enforce` and `beams.settle` in one kernel and in place.

One program for each sentence. Orders come from counting who is ahead: of a higher score, or of the same and earlier.
"""

from __future__ import annotations

import math
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from transduce.config import SearchConfig
from transduce.kernels.topk import Picks

WIDEST = 8  # beam; the matrix that ranks its candidates grows with the fourth power
COLUMNS = 64  # positions of the hypotheses that are moved at once
NEVER: tl.constexpr = tl.constexpr(float("-inf"))


@triton.jit
def _ahead(scores, order, others, others_order):
    """How many of the others (m,) are ahead of each (n,)."""
    higher = others[None, :] > scores[:, None]
    earlier = (others[None, :] == scores[:, None]) & (others_order[None, :] < order[:, None])
    return tl.sum((higher | earlier).to(tl.int32), 1)


@triton.jit
def _at(places, values, wanted):
    """The value in each wanted place (n,), of values (m,) and their places; never, where there is none."""
    return tl.max(tl.where(places[None, :] == wanted[:, None], values[None, :], NEVER), 1)


@triton.jit
def _index_at(places, values, wanted):
    """The same for numbers from 0 on."""
    return tl.sum(tl.where(places[None, :] == wanted[:, None], values[None, :], 0), 1)


@triton.jit
def _gap(scores, others, counted):
    """The least distance of two scores, each (n,), of those that count; infinite where one of them is no score."""
    both = (scores > NEVER) & (others > NEVER) & counted
    distance = tl.abs(tl.where(both, scores, 0.0) - tl.where(both, others, 0.0))
    return tl.min(tl.where(both, distance, float("inf")), 0)


@triton.jit
def _enforce(
    values, ids, ends, forced, wanted, t, least, most, b, k, flat, K: tl.constexpr, C: tl.constexpr
):
    """Log-probabilities and ids of what may be said (K * C,), and log-probabilities of the end (K,)."""
    row, first = flat // C, flat % C == 0
    value = tl.load(values + b * K * C + flat, mask=row < K, other=NEVER)
    token = tl.load(ids + b * K * C + flat, mask=row < K, other=0)
    only = tl.load(forced + b * K + row, mask=(row < K) & first, other=NEVER)
    # Nothing but the end can be said.
    stuck = tl.load(values + (b * K + k) * C, mask=k < K, other=NEVER) == NEVER
    may_end = ((t >= least) | (t >= most) | stuck) & (wanted < 0)
    end = tl.where(may_end, tl.load(ends + b * K + k, mask=k < K, other=NEVER), NEVER)
    value = tl.where(wanted >= 0, only, tl.where(t >= most, NEVER, value))
    return value, tl.where((wanted >= 0) & first, wanted, token), end


@triton.jit
def _settle(
    values, ids, ends, forced, live_tokens, live_values, live_scores, ended_tokens, ended_values, ended_scores,
    endings, length, limit, prefix, penalty, margin, tokens, ancestors, W, pad, least, enough,
    K: tl.constexpr, K2: tl.constexpr, C: tl.constexpr, N: tl.constexpr, N2: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    b, k, n, flat = tl.program_id(0), tl.arange(0, K2), tl.arange(0, N2), tl.arange(0, K2 * C)
    score = tl.load(live_scores + b * K + k, mask=k < K, other=NEVER)
    if tl.max(score, 0) == NEVER:  # the sentence is done
        return
    t, most = tl.load(length + b).to(tl.int32), tl.load(limit + b).to(tl.int32)
    wanted = tl.load(prefix + b * W + t).to(tl.int32)
    value, token, end = _enforce(
        values, ids, ends, forced, wanted, t, least, most, b, k, flat, K, C
    )

    # `beams._rank`: a hypothesis ends if that is among the K best candidates; the K best others live on.
    row = flat // C
    total = tl.load(live_scores + b * K + row, mask=row < K, other=NEVER) + value
    end_total = score + end
    order, end_order = flat + row + 1, k * (C + 1)  # hypothesis by hypothesis, its end first
    place = _ahead(total, order, total, order)
    overall = place + _ahead(total, order, end_total, end_order)
    end_place = _ahead(end_total, end_order, total, order) + _ahead(
        end_total, end_order, end_total, end_order
    )
    closes = (end_place < K) & (end_total > NEVER)
    new_score, parent = _at(place, total, k), _index_at(place, row, k)
    new_value, new_token = _at(place, value, k), _index_at(place, token, k)
    ranked = tl.maximum(_at(overall, total, k), _at(end_place, end_total, k))
    next_ranked = tl.maximum(_at(overall, total, k + 1), _at(end_place, end_total, k + 1))
    closest = tl.minimum(
        _gap(ranked, next_ranked, k == K - 1), _gap(new_score, _at(place, total, k + 1), k == K - 1)
    )

    # The n best that have ended; of equal scores the earlier.
    closed = tl.where(closes, tl.div_rn(end_total, tl.load(penalty + b * (W + 1) + t + 1)), NEVER)
    before = tl.load(ended_scores + b * N + n, mask=n < N, other=NEVER)
    before_place = n + _ahead(before, n, closed, N2 + k)
    closed_place = _ahead(closed, N2 + k, before, n) + _ahead(closed, N2 + k, closed, N2 + k)
    ended = tl.maximum(_at(before_place, before, n), _at(closed_place, closed, n))
    next_ended = tl.maximum(_at(before_place, before, n + 1), _at(closed_place, closed, n + 1))
    count = tl.load(endings + b) + tl.sum(closes.to(tl.int32), 0)

    # Is it over, and how closely was all of this decided? See `beams.settle`.
    worst = tl.max(tl.where(n == N - 1, ended, NEVER), 0)
    best = tl.max(tl.where(k < K, new_score, NEVER), 0)
    attainable = tl.div_rn(best, tl.load(penalty + b * (W + 1) + most + 1))
    over = (attainable <= worst) | (count >= enough)
    closest = tl.minimum(closest, tl.minimum(tl.load(margin + b), _gap(ended, next_ended, n < N)))
    closest = tl.minimum(
        closest, _gap(tl.where(n == 0, attainable, NEVER), tl.where(n == 0, worst, NEVER), n == 0)
    )
    new_score = tl.where(over, NEVER, new_score)
    new_token = tl.where(new_score > NEVER, new_token, pad).to(tl.int64)

    _move_ended(
        live_tokens, live_values, ended_tokens, ended_values, b, t, W, tl.sum(closes.to(tl.int32), 0),
        _index_at(before_place, n, n), _index_at(closed_place, k, n), _index_at(closed_place, k * 0 + 1, n) > 0,
        _at(closed_place, end, n), n, K, N, COLUMNS,
    )  # fmt: skip
    tl.debug_barrier()
    _move_live(
        live_tokens, live_values, ancestors, b, t, W, parent, new_token, new_value, k, K, COLUMNS
    )
    tl.store(live_scores + b * K + k, new_score, mask=k < K)
    tl.store(tokens + b * K + k, new_token, mask=k < K)
    tl.store(ended_scores + b * N + n, ended, mask=n < N)
    tl.store(endings + b, count)
    tl.store(length + b, tl.minimum(t + 1, most).to(tl.int64))
    tl.store(margin + b, closest)


@triton.jit
def _move_ended(
    live_tokens, live_values, ended_tokens, ended_values, b, t, W, closes, old, new, is_new, end_value, n,
    K: tl.constexpr, N: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Each hypothesis (n,) that has ended in its place: an old one, or a new one with its end, which has the id 0."""
    old, new, to = (b * N + old)[:, None] * W, (b * K + new)[:, None] * W, (b * N + n)[:, None] * W
    for start in range(0, tl.where(closes > 0, t + 1, 0), COLUMNS):
        column = (start + tl.arange(0, COLUMNS))[None, :]
        inside = (n < N)[:, None] & (column <= t)
        come, stay = inside & is_new[:, None] & (column < t), inside & (is_new == 0)[:, None]
        said = tl.load(live_tokens + new + column, mask=come, other=0)
        value = tl.load(live_values + new + column, mask=come, other=0.0)
        said_before = tl.load(ended_tokens + old + column, mask=stay, other=0)
        value_before = tl.load(ended_values + old + column, mask=stay, other=0.0)
        tl.debug_barrier()  # a part is read by all before anyone writes it
        value = tl.where(column == t, end_value[:, None], value)
        tl.store(
            ended_tokens + to + column, tl.where(is_new[:, None], said, said_before), mask=inside
        )
        tl.store(
            ended_values + to + column, tl.where(is_new[:, None], value, value_before), mask=inside
        )


@triton.jit
def _move_live(
    live_tokens, live_values, ancestors, b, t, W, parent, new_token, new_value, k, K: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """Each hypothesis (k,) that lives on in its place, with its new token; this position lies in its parent's row."""
    rows = (b * K + parent)[:, None]
    to = (b * K + k)[:, None] * W
    for start in range(0, t + 1, COLUMNS):
        column = (start + tl.arange(0, COLUMNS))[None, :]
        inside = (k < K)[:, None] & (column <= t)
        said = tl.load(live_tokens + rows * W + column, mask=inside, other=0)
        value = tl.load(live_values + rows * W + column, mask=inside, other=0.0)
        ancestor = tl.load(ancestors + rows * W + column, mask=inside, other=0)
        tl.debug_barrier()
        tl.store(
            live_tokens + to + column, tl.where(column == t, new_token[:, None], said), mask=inside
        )
        tl.store(
            live_values + to + column, tl.where(column == t, new_value[:, None], value), mask=inside
        )
        tl.store(ancestors + to + column, tl.where(column == t, rows, ancestor), mask=inside)


def fits(config: SearchConfig) -> bool:
    """Whether this is a search that `settle` can do."""
    guards = config.no_repeat_ngram or config.max_repeats
    return config.temperature == 0 and config.width <= WIDEST and not guards


def settle(
    beams: Any, picks: Picks, tokens: Tensor, ancestors: Tensor, config: SearchConfig, *, pad: int
) -> None:
    """Move the beams one token further, and with them each row's next token (R,) and its ancestors (R, W).

    In place; sentences that are done stay as they are.
    """
    (B, K, W), C, enough = (
        beams.live.tokens.shape,
        picks.values.size(1),
        config.patience * config.width,
    )
    _settle[(B,)](
        *picks, beams.live.tokens, beams.live.log_probs, beams.live.score,
        beams.ended.tokens, beams.ended.log_probs, beams.ended.score, beams.endings, beams.length, beams.limit,
        beams.prefix, beams.penalty, beams.margin, tokens, ancestors, W, pad, config.min_length,
        math.ceil(min(enough, 2**31 - 1)), K=K, K2=triton.next_power_of_2(K), C=C,
        N=config.n_best, N2=triton.next_power_of_2(config.n_best), COLUMNS=COLUMNS, num_warps=1 if K <= 4 else 4,
    )  # fmt: skip
