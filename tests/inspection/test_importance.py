"""The importance of heads is the change that their removal makes, written out."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests import trained
from transduce.engines.torch import load_model
from transduce.errors import InputError
from transduce.evaluation.scores import score
from transduce.inspection.heads import Head, all_heads, switched_off
from transduce.inspection.importance import head_importance
from transduce.inspection.inspect import ablate
from transduce.translation.translator import Translator


@pytest.fixture(scope="module")
def test_set():
    pairs = trained.splits()["test"][:12]
    return [source for source, _ in pairs], [target for _, target in pairs]


def loss_of(model, tokenizers, sources, references):
    """The mean negative log-probability of a reference's token, one sentence at a time."""
    total, count = 0.0, 0
    for source, reference in zip(sources, references, strict=True):
        ids = tokenizers[1].encode(reference)
        decoder_input = torch.tensor([[model.config.pad, *ids[:-1]]])
        with torch.no_grad():
            logits = model(torch.tensor([tokenizers[0].encode(source)]), decoder_input)
        logits[..., model.config.pad] = -math.inf
        total -= float(logits[0].log_softmax(-1)[range(len(ids)), ids].sum())
        count += len(ids)
    return total / count


def test_the_loss_rises_as_written_out_without_each_head(bundle, translator, test_set, monkeypatch):
    monkeypatch.setattr("transduce.inspection.importance.BATCH_TOKENS", 200)  # several batches
    calls = []
    found = head_importance(translator, *test_set, advance=calls.append)
    model = load_model(bundle)
    full = loss_of(model, translator.tokenizers, *test_set)
    assert found.full == pytest.approx(full, rel=1e-4)
    assert (found.sentences, found.by, sum(calls)) == (12, "loss", 12 * 25)
    for head in [Head("encoder", 1, 2), Head("decoder", 2, 4), Head("cross", 1, 3)]:
        with switched_off(model, [head]):
            expected = loss_of(model, translator.tokenizers, *test_set) - full
        change = found.changes[head.kind][head.layer - 1, head.index - 1]
        assert change == pytest.approx(expected, abs=1e-4)
        assert abs(expected) > 1e-3
    ranked = found.ranked()
    assert {head for head, _ in ranked} == {*all_heads(model)}
    assert [change for _, change in ranked] == sorted((c for _, c in ranked), reverse=True)


def test_bleu_falls_as_that_of_the_ablated_translations(bundle, test_set):
    short = replace(bundle.recipe.search, max_length=12, beam_size=1)
    translator = Translator(bundle, engine="torch", device="cpu", search=short)
    sources, references = test_set[0][:4], test_set[1][:4]
    found = head_importance(translator, sources, references, by="bleu")
    full = score([each.text for each in translator.translate(sources)], references).bleu.value
    assert found.full == pytest.approx(full)
    without = [ablate(translator, source, heads=["cross.2.3"]).text for source in sources]
    expected = full - score(without, references).bleu.value
    assert found.changes["cross"][1, 2] == pytest.approx(expected, abs=1e-3)


def test_json_has_all_numbers(translator, test_set):
    found = head_importance(translator, test_set[0][:2], test_set[1][:2])
    data = found.to_dict()
    assert set(data) == {"by", "full", "sentences", "changes"}
    assert np.array(data["changes"]["decoder"]).shape == (2, 4)


def test_what_cannot_be_measured_is_refused(bundle, translator, test_set):
    with pytest.raises(InputError, match="0 sources and 0 references; expected at least one"):
        head_importance(translator, [], [])
    with pytest.raises(InputError, match="12 sources and 11 references"):
        head_importance(translator, test_set[0], test_set[1][1:])
    both = Translator([bundle, bundle], engine="torch", device="cpu")
    with pytest.raises(InputError, match="the loss of an ensemble of 2 models is not defined"):
        head_importance(both, *test_set)


def test_a_layer_that_runs_twice_is_not_taken_from_memory(bundle, translator, test_set):
    model = load_model(bundle)
    model.decoder[1] = model.decoder[0]
    own = Translator.from_model(model, *translator.tokenizers, translator.recipe)
    sources, references = test_set[0][:3], test_set[1][:3]
    found = head_importance(own, sources, references)
    with switched_off(model, [Head("decoder", 2, 1)]):
        expected = loss_of(model, translator.tokenizers, sources, references)
    assert found.full + found.changes["decoder"][1, 0] == pytest.approx(expected, abs=1e-4)
