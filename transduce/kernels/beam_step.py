"""One step of beam search (§6.1) on a GPU, in one Triton kernel and in place.

It equals `search.candidates.enforce` and `search.beam_step.settle`, which take dozens of small
torch kernels for each token. One program handles each sentence.

A beam is small, so nothing is sorted: the place of a candidate is the number of candidates ahead of
it, those with a higher score or with the same score and an earlier place in the order (`_ahead`).
The candidate in a given place is then found by comparing places (`_at`, `_index_at`).

In this module: B sentences, K hypotheses each, C candidates for each hypothesis, N results per
sentence, W positions in a row. K2 and N2 are the powers of two from K and N on. t is the number of
tokens of the hypotheses so far.
"""

from __future__ import annotations

import math
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from transduce.config import SearchConfig
from transduce.kernels.topk import Picks

WIDEST = 8  # widest beam; the matrix that ranks its candidates grows with the fourth power
COLUMNS = 64  # positions of the hypotheses that are copied at a time
NEVER: tl.constexpr = tl.constexpr(float("-inf"))  # the score of what does not exist


@triton.jit
def _ahead(scores, order, others, others_order):
    """Count how many of the others (m,) are ahead of each candidate (n,)."""
    higher = others[None, :] > scores[:, None]
    earlier = (others[None, :] == scores[:, None]) & (others_order[None, :] < order[:, None])
    return tl.sum((higher | earlier).to(tl.int32), 1)


@triton.jit
def _at(places, values, wanted):
    """Return the value in each wanted place (n,) of values (m,) with these places; else NEVER."""
    return tl.max(tl.where(places[None, :] == wanted[:, None], values[None, :], NEVER), 1)


@triton.jit
def _index_at(places, values, wanted):
    """Return the integer in each wanted place (n,), as `_at`; 0 where there is none."""
    return tl.sum(tl.where(places[None, :] == wanted[:, None], values[None, :], 0), 1)


@triton.jit
def _gap(scores, others, counted):
    """Return the smallest distance between scores and others, both (n,), where `counted`.

    It is infinite where one of them is NEVER.
    """
    both = (scores > NEVER) & (others > NEVER) & counted
    distance = tl.abs(tl.where(both, scores, 0.0) - tl.where(both, others, 0.0))
    return tl.min(tl.where(both, distance, float("inf")), 0)


@triton.jit
def _enforce(
    values, ids, ends, forced, wanted, t, least, most, b, k, flat, K: tl.constexpr, C: tl.constexpr
):
    """Apply prefix, minimum length and limit, as `candidates.enforce`.

    values, ids, ends and forced are those of `topk.Picks`. Returns the log-probabilities and ids of
    the allowed candidates (K2 * C,), and the log-probabilities of the end (K2,).
    """
    row = flat // C
    first = flat % C == 0
    value = tl.load(values + b * K * C + flat, mask=row < K, other=NEVER)
    token = tl.load(ids + b * K * C + flat, mask=row < K, other=0)
    only = tl.load(forced + b * K + row, mask=(row < K) & first, other=NEVER)

    # A hypothesis may end from the minimum length on, at the limit, and if no other token is
    # possible.
    stuck = tl.load(values + (b * K + k) * C, mask=k < K, other=NEVER) == NEVER
    may_end = ((t >= least) | (t >= most) | stuck) & (wanted < 0)
    end = tl.where(may_end, tl.load(ends + b * K + k, mask=k < K, other=NEVER), NEVER)

    # A prefix allows one token; at the limit only the end is left.
    value = tl.where(wanted >= 0, only, tl.where(t >= most, NEVER, value))
    token = tl.where((wanted >= 0) & first, wanted, token)
    return value, token, end


@triton.jit
def _settle(
    values, ids, ends, forced,
    live_tokens, live_values, live_scores, ended_tokens, ended_values, ended_scores,
    endings, length, limit, prefix, penalty, margin, tokens, ancestors, W, pad, least, enough,
    K: tl.constexpr, K2: tl.constexpr, C: tl.constexpr, N: tl.constexpr, N2: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """Move the beam of one sentence, number b, one token further.

    values, ids (B * K, C), ends and forced (B * K,) are those of `topk.Picks`. The others are those
    of `search.beams.Beams`: tokens and log-probabilities (`*_values`) of live hypotheses (B, K, W)
    and of ended ones (B, N, W), their scores (B, K) and (B, N), endings, length, limit and margin
    (B,), prefix (B, W) and penalty (B, W + 1). tokens (B * K,) and ancestors (B * K, W) are the
    search state's.
    """
    b = tl.program_id(0)
    k = tl.arange(0, K2)
    n = tl.arange(0, N2)
    flat = tl.arange(0, K2 * C)  # candidates of all hypotheses

    # Load the state of the sentence and its candidates.
    score = tl.load(live_scores + b * K + k, mask=k < K, other=NEVER)
    if tl.max(score, 0) == NEVER:  # the sentence is done
        return
    t = tl.load(length + b).to(tl.int32)
    most = tl.load(limit + b).to(tl.int32)
    wanted = tl.load(prefix + b * W + t).to(tl.int32)
    value, token, end = _enforce(
        values, ids, ends, forced, wanted, t, least, most, b, k, flat, K, C
    )

    # Rank the candidates, as `search.beam_step` does: a hypothesis ends if its end is among the K
    # best of all candidates, and the K best others live on.
    row = flat // C
    total = tl.load(live_scores + b * K + row, mask=row < K, other=NEVER) + value
    end_total = score + end
    order = flat + row + 1  # hypothesis by hypothesis, its end first
    end_order = k * (C + 1)
    place = _ahead(total, order, total, order)
    overall = place + _ahead(total, order, end_total, end_order)
    end_place = _ahead(end_total, end_order, total, order) + _ahead(
        end_total, end_order, end_total, end_order
    )
    closes = (end_place < K) & (end_total > NEVER)
    new_score = _at(place, total, k)
    parent = _index_at(place, row, k)
    new_value = _at(place, value, k)
    new_token = _index_at(place, token, k)

    # How close these decisions were: the K-th candidate and the next one.
    ranked = tl.maximum(_at(overall, total, k), _at(end_place, end_total, k))
    next_ranked = tl.maximum(_at(overall, total, k + 1), _at(end_place, end_total, k + 1))
    closest = tl.minimum(
        _gap(ranked, next_ranked, k == K - 1), _gap(new_score, _at(place, total, k + 1), k == K - 1)
    )

    # The N best hypotheses that have ended, old ones and new ones; of equal scores, the earlier.
    closed = tl.where(closes, tl.div_rn(end_total, tl.load(penalty + b * (W + 1) + t + 1)), NEVER)
    before = tl.load(ended_scores + b * N + n, mask=n < N, other=NEVER)
    before_place = n + _ahead(before, n, closed, N2 + k)
    closed_place = _ahead(closed, N2 + k, before, n) + _ahead(closed, N2 + k, closed, N2 + k)
    ended = tl.maximum(_at(before_place, before, n), _at(closed_place, closed, n))
    next_ended = tl.maximum(_at(before_place, before, n + 1), _at(closed_place, closed, n + 1))
    count = tl.load(endings + b) + tl.sum(closes.to(tl.int32), 0)

    # Whether the search is over, and how close all decisions were (see `settle`).
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

    # Store everything. The live hypotheses are read by `_move_ended` before `_move_live` changes
    # them.
    _move_ended(
        live_tokens, live_values, ended_tokens, ended_values, b, t, W,
        tl.sum(closes.to(tl.int32), 0), _index_at(before_place, n, n),
        _index_at(closed_place, k, n), _index_at(closed_place, k * 0 + 1, n) > 0,
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
    live_tokens, live_values, ended_tokens, ended_values, b, t, W,
    closes, old, new, is_new, end_value, n,
    K: tl.constexpr, N: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Copy the ended hypotheses into their new places (n,), if `closes` hypotheses have just ended.

    In place i comes number `new[i]` of the live ones with its end, which has the id 0, where
    `is_new[i]`; else number `old[i]` of those that had ended before.
    """
    old = (b * N + old)[:, None] * W
    new = (b * K + new)[:, None] * W
    to = (b * N + n)[:, None] * W
    for start in range(0, tl.where(closes > 0, t + 1, 0), COLUMNS):
        column = (start + tl.arange(0, COLUMNS))[None, :]
        inside = (n < N)[:, None] & (column <= t)
        from_live = inside & is_new[:, None] & (column < t)
        from_ended = inside & (is_new == 0)[:, None]
        token = tl.load(live_tokens + new + column, mask=from_live, other=0)
        value = tl.load(live_values + new + column, mask=from_live, other=0.0)
        old_token = tl.load(ended_tokens + old + column, mask=from_ended, other=0)
        old_value = tl.load(ended_values + old + column, mask=from_ended, other=0.0)
        tl.debug_barrier()  # all threads have read these columns before any writes to them
        value = tl.where(column == t, end_value[:, None], value)
        tl.store(
            ended_tokens + to + column, tl.where(is_new[:, None], token, old_token), mask=inside
        )
        tl.store(
            ended_values + to + column, tl.where(is_new[:, None], value, old_value), mask=inside
        )


@triton.jit
def _move_live(
    live_tokens, live_values, ancestors, b, t, W, parent, new_token, new_value, k,
    K: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Copy each parent's tokens and ancestors into the place (k,) of its child; add the new token.

    Keys and values of position t were written to the parent's row, so that row is its ancestor.
    """
    rows = (b * K + parent)[:, None]
    to = (b * K + k)[:, None] * W
    for start in range(0, t + 1, COLUMNS):
        column = (start + tl.arange(0, COLUMNS))[None, :]
        inside = (k < K)[:, None] & (column <= t)
        token = tl.load(live_tokens + rows * W + column, mask=inside, other=0)
        value = tl.load(live_values + rows * W + column, mask=inside, other=0.0)
        ancestor = tl.load(ancestors + rows * W + column, mask=inside, other=0)
        tl.debug_barrier()
        tl.store(
            live_tokens + to + column, tl.where(column == t, new_token[:, None], token), mask=inside
        )
        tl.store(
            live_values + to + column, tl.where(column == t, new_value[:, None], value), mask=inside
        )
        tl.store(ancestors + to + column, tl.where(column == t, rows, ancestor), mask=inside)


def fits(config: SearchConfig) -> bool:
    """Whether `settle` supports this search: a narrow beam without guards against repetition."""
    guards = config.no_repeat_ngram or config.max_repeats
    return config.temperature == 0 and config.width <= WIDEST and not guards


def settle(
    beams: Any, picks: Picks, tokens: Tensor, ancestors: Tensor, config: SearchConfig, *, pad: int
) -> None:
    """Move the beams one token further, in place. Sentences that are done stay as they are.

    Args:
        beams: The hypotheses, a `search.beams.Beams`.
        picks: The best next tokens of each of the R rows.
        tokens: Each row's next token, (R,); it is written.
        ancestors: In which row of the cache each position of a row is, (R, W); it is updated.
        config: The settings of the search.
        pad: The id of padding, the next token of rows that are done.
    """
    B, K, W = beams.live.tokens.shape
    live = beams.live
    ended = beams.ended
    enough = math.ceil(min(config.patience * config.width, 2**31 - 1))
    _settle[(B,)](
        *picks, live.tokens, live.log_probs, live.score, ended.tokens, ended.log_probs, ended.score,
        beams.endings, beams.length, beams.limit, beams.prefix, beams.penalty, beams.margin,
        tokens, ancestors, W, pad, config.min_length, enough,
        K=K, K2=triton.next_power_of_2(K), C=picks.values.size(1),
        N=config.n_best, N2=triton.next_power_of_2(config.n_best), COLUMNS=COLUMNS,
        num_warps=1 if K <= 4 else 4,
    )  # fmt: skip
