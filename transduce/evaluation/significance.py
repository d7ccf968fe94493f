"""Confidence intervals of scores, and paired significance tests, as sacreBLEU computes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from transduce.errors import InputError
from transduce.evaluation.scores import NAMES, Score

PairedTest = Literal["bootstrap", "randomization"]
RESAMPLES = 1000  # of the test set, for an interval and for the paired bootstrap
TRIALS = 10_000  # of approximate randomization
LEVEL = 0.05  # a difference with a smaller p-value is significant


@dataclass(frozen=True)
class EstimatedScore(Score):
    """A score with what chance could have done to it; None where that was not computed.

    In 95% of the resamples of the test set, the score is in `mean` ± `margin`. `p_value` is the
    probability of a difference from the first system as large as this one, if neither were better.
    """

    mean: float | None = None
    margin: float | None = None
    p_value: float | None = None


def estimate_scores(
    key: str,
    metric: Any,
    systems: Mapping[str, Sequence[str]],
    references: Sequence[str],
    *,
    test: PairedTest = "randomization",
    resamples: int = RESAMPLES,
) -> list[EstimatedScore]:
    """Return the score of each system; the first one is the baseline of the others.

    Args:
        key: The name of the score in `NAMES`.
        metric: A metric of sacreBLEU.
        systems: The translations of each system by its name.
        references: The reference translations.
        test: "randomization" for approximate randomization, "bootstrap" for paired bootstrap
            resampling. sacreBLEU's bootstrap subtracts the mean from absolute differences, so that
            it calls two equal systems different in 10% of cases at a level of 5%.
        resamples: The number of resamples of the test set; 0 computes neither intervals nor tests.
    """
    if resamples < 0:
        raise InputError(
            f"resamples is {resamples}; expected the number of resamples of the test set, or 0 for "
            "scores without intervals and tests"
        )
    name = NAMES[key]
    if resamples == 0:
        plain = []
        for hypotheses in systems.values():
            value = float(metric.corpus_score(list(hypotheses), [list(references)]).score)
            plain.append(EstimatedScore(name, value, str(metric.get_signature())))
        return plain

    from sacrebleu import significance

    by_bootstrap = test == "bootstrap"
    paired = significance.PairedTest(
        [(system, list(hypotheses)) for system, hypotheses in systems.items()],
        {key: metric},
        [list(references)],
        test_type="bs" if by_bootstrap else "ar",
        n_samples=resamples if by_bootstrap else TRIALS,
        n_ar_confidence=-1 if by_bootstrap else resamples,
    )
    _, columns = paired()
    (results,) = [column for title, column in columns.items() if title != "System"]
    signature = str(metric.get_signature())
    baseline, *_ = systems.values()
    scores = []
    for result, hypotheses in zip(results, systems.values(), strict=True):
        scores.append(_convert(name, signature, result, _smallest_p(baseline, hypotheses)))
    return scores


def _smallest_p(baseline: Sequence[str], hypotheses: Sequence[str]) -> float:
    """Return the smallest p-value that the number of different translations allows.

    If k translations differ, there are 2^k ways to swap them between the systems, and two of them
    give the difference that was found. sacreBLEU does not count these two: it would call a
    difference in one sentence, or none, significant.
    """
    pairs = zip(baseline, hypotheses, strict=True)
    differing = sum(first != second for first, second in pairs)
    return min(1.0, 2.0 ** (1 - differing))


def _convert(name: str, signature: str, result: Any, smallest_p: float) -> EstimatedScore:
    """Return a result of sacreBLEU as a score; the baseline has no p-value."""
    p_value = result.p_value
    return EstimatedScore(
        name,
        float(result.score),
        signature,
        mean=float(result.mean),
        margin=float(result.ci),
        p_value=None if p_value is None else max(float(p_value), smallest_p),
    )
