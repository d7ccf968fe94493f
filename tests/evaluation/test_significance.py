"""Confidence intervals and significance tests are sacreBLEU's, and mean what they say."""

import itertools

import pytest
from sacrebleu.metrics.bleu import BLEU

from tests.evaluation.systems import damaged, parallel_texts
from transduce.errors import InputError
from transduce.evaluation.significance import estimate_scores

SOURCES, REFERENCES = parallel_texts()
GOOD = damaged(REFERENCES, 0.1)
BAD = damaged(REFERENCES, 0.4)


def estimate(systems, **options):
    return estimate_scores("bleu", BLEU(), systems, REFERENCES, **options)


def test_the_interval_is_that_of_sacrebleus_bootstrap():
    metric = BLEU()
    expected = metric.corpus_score(GOOD, [REFERENCES], n_bootstrap=300)
    (found,) = estimate({"good": GOOD}, resamples=300)
    assert found.value == expected.score
    assert found.mean == pytest.approx(expected._mean)
    assert found.margin == pytest.approx(expected._ci)
    assert found.p_value is None


def test_the_signature_does_not_depend_on_the_resamples():
    (plain,) = estimate({"good": GOOD}, resamples=0)
    (sampled,) = estimate({"good": GOOD}, resamples=50)
    assert plain.signature == sampled.signature == str(BLEU_SIGNATURE)
    assert (plain.value, plain.margin) == (sampled.value, None)


@pytest.mark.parametrize("kind", ["bootstrap", "randomization"])
def test_a_clear_difference_is_significant_and_a_small_one_is_not(kind):
    systems = {"good": GOOD, "bad": BAD, "close": damaged(REFERENCES, 0.1, seed=2)}
    good, bad, close = estimate(systems, test=kind, resamples=200)
    assert good.p_value is None
    assert bad.p_value < 0.01
    assert close.p_value > 0.2
    assert None not in (good.margin, bad.margin, close.margin)


@pytest.mark.parametrize(
    ("kind", "differing", "smallest"),
    [
        ("bootstrap", 0, 1),
        ("bootstrap", 2, 0.5),
        ("randomization", 1, 1),
        ("randomization", 4, 0.125),
    ],
)
def test_a_few_sentences_cannot_make_a_difference_significant(kind, differing, smallest):
    few = [*[""] * differing, *GOOD[differing:]]
    _, other = estimate({"good": GOOD, "few": few}, test=kind, resamples=50)
    assert other.p_value >= smallest


def test_the_p_value_is_the_share_of_exchanges_with_a_larger_difference():
    differing = 8
    better = [*damaged(REFERENCES, 0.2)[:differing], *GOOD[differing:]]
    worse = [*damaged(REFERENCES, 0.2, seed=3)[:differing], *GOOD[differing:]]

    def difference(exchanged):
        pairs = [*zip(better, worse, strict=True)]
        for index, swap in enumerate(exchanged):
            pairs[index] = pairs[index][::-1] if swap else pairs[index]
        one, other = ([pair[side] for pair in pairs] for side in (0, 1))
        return abs(bleu(one) - bleu(other))

    def bleu(hypotheses):
        return BLEU().corpus_score(hypotheses, [REFERENCES]).score

    found = difference([False] * differing)
    all_exchanges = itertools.product((False, True), repeat=differing)
    exact = [difference(exchanged) > found + 1e-9 for exchanged in all_exchanges]
    _, other = estimate({"better": better, "worse": worse}, resamples=50)
    assert other.p_value == pytest.approx(sum(exact) / len(exact), abs=0.03)


def test_a_negative_number_of_resamples_is_refused():
    with pytest.raises(InputError, match="resamples is -1; expected"):
        estimate({"good": GOOD}, resamples=-1)


def _signature():
    metric = BLEU()
    metric.corpus_score(GOOD, [REFERENCES])
    return metric.get_signature()


BLEU_SIGNATURE = _signature()
