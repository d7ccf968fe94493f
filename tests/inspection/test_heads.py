"""Heads switched off: what is left is what the model computes without them."""

import itertools

import numpy as np
import pytest
import torch

from tests import changes
from transduce.engines.torch import load_model
from transduce.errors import InputError
from transduce.inspection.heads import Head, all_heads, find_heads, switched_off
from transduce.inspection.inspect import ablate, inspect
from transduce.model.multi_head import MultiHeadAttention
from transduce.translation.translator import Translator


def logits_of(model):
    source, target = changes.batch()
    with torch.inference_mode():
        return model(source, target.shifted_right(changes.V - 1))


class WithoutHeads(MultiHeadAttention):
    """Attention with the values of some heads zeroed, written out."""

    def queries_keys_values(self, *inputs):
        q, k, v = super().queries_keys_values(*inputs)
        keep = torch.ones(self.h)
        keep[self.off] = 0
        return q, k, v * keep[:, None, None]


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
@pytest.mark.parametrize("off", [[0], [1], [0, 1]])
def test_a_head_that_is_off_has_no_values(kind, off):
    model, oracle = changes.build(), changes.build()
    layer = (oracle.encoder if kind == "encoder" else oracle.decoder)[-1]
    attention = layer.cross_attention if kind == "cross" else layer.self_attention
    attention.__class__ = WithoutHeads
    attention.off = off
    number = 1 if kind == "encoder" else 2
    with switched_off(model, [Head(kind, number, index + 1) for index in off]):
        torch.testing.assert_close(logits_of(model), logits_of(oracle))
    assert not torch.allclose(logits_of(model), logits_of(oracle), atol=1e-3)


def test_removing_none_changes_no_bit(translator, text, sentences):
    model = changes.build()
    before = logits_of(model)
    with switched_off(model, []):
        assert torch.equal(logits_of(model), before)
    with switched_off(model, all_heads(model)):
        assert not torch.equal(logits_of(model), before)
    assert torch.equal(logits_of(model), before)
    for sentence in sentences[:5]:
        assert ablate(translator, sentence, heads=[]) == translator.translate(sentence)


def test_ablation_reaches_the_search_and_leaves_the_translator_as_it_was(translator, text):
    before = translator.translate(text)
    every_cross = [
        f"cross.{layer}.{head}" for layer, head in itertools.product((1, 2), range(1, 5))
    ]
    without = ablate(translator, text, heads=every_cross)
    assert without.text != before.text
    # Without any attention to the source, all sources have the same translation.
    other = ablate(translator, text.replace("3", "4"), heads=every_cross)
    assert other.text == without.text
    assert translator.translate(text) == before


def test_ablation_works_with_every_engine(bundle, translator, text):
    pytest.importorskip("ctranslate2")
    heads = ["cross.1.1", "cross.1.2", "cross.1.3", "cross.1.4"]
    fast = Translator(bundle, engine="ctranslate2", device="cpu")
    assert ablate(fast, text, heads=heads).text == ablate(translator, text, heads=heads).text
    half = Translator(bundle, engine="torch", device="cpu", precision="bf16")
    assert ablate(half, text, heads=heads).text == ablate(translator, text, heads=heads).text


def test_inspection_without_heads_shows_both_translations(translator, text):
    heads = ["cross.2.1", "cross.2.2", "cross.2.3", "cross.2.4"]
    shown = inspect(translator, text, without=heads)
    assert shown.without == tuple(heads)
    assert shown.translation == ablate(translator, text, heads=heads).text
    assert shown.full_translation == translator.translate(text).text != shown.translation
    full = inspect(translator, text)
    assert full.full_translation is None
    # The encoder does not know of it.
    assert np.array_equal(shown.attention["encoder"], full.attention["encoder"])


@pytest.mark.parametrize(
    "name", ["cross.9.1", "cross.1.0", "cross.1.9", "cross.1", "head", "cross.01.1", "CROSS.1.1"]
)
def test_a_head_that_does_not_exist_is_one_clear_line(translator, text, name):
    expected = (
        f"the head '{name}' does not exist; expected KIND.LAYER.HEAD, such as cross.1.1: this model "
        "has encoder layers 1 to 2, decoder layers 1 to 2, cross layers 1 to 2, each with heads 1 to 4"
    )
    with pytest.raises(InputError) as caught:
        ablate(translator, text, heads=[name])
    assert str(caught.value) == expected
    with pytest.raises(InputError):
        inspect(translator, text, without=[name])


def test_one_name_is_not_a_list(translator, text):
    with pytest.raises(InputError, match=r"heads is 'cross.1.1'; expected a list"):
        ablate(translator, text, heads="cross.1.1")


def test_heads_are_named_once(bundle):
    model = load_model(bundle)
    assert find_heads(model, ["cross.1.1", "cross.1.1"]) == (Head("cross", 1, 1),)
    assert len(all_heads(model)) == 24
