"""The same weights in other people's implementations give the same numbers."""

import pytest
import torch
from torch import nn

from tests.model.conftest import SOURCES, TARGETS, build
from transduce.model import Mask, Tokens

ORDERS = pytest.mark.parametrize("norm_order", ["post", "pre"])
TORCH_LIKE = {"attention_bias": True, "d_v": 8}


def give_attention(theirs, ours):
    theirs.in_proj_weight.data = torch.cat([ours.w_q.weight, ours.w_k.weight, ours.w_v.weight]).data
    theirs.in_proj_bias.data = torch.cat([ours.w_q.bias, ours.w_k.bias, ours.w_v.bias]).data
    theirs.out_proj.load_state_dict(ours.w_o.state_dict())


def give_feed_forward(theirs, ours):
    theirs.linear1.load_state_dict(ours.w_1.state_dict())
    theirs.linear2.load_state_dict(ours.w_2.state_dict())


@ORDERS
def test_the_encoder_layer_equals_torch(norm_order):
    ours = build(norm_order=norm_order, **TORCH_LIKE).encoder[0]
    theirs = (
        nn.TransformerEncoderLayer(24, 3, 40, batch_first=True, norm_first=norm_order == "pre")
        .double()
        .eval()
    )
    give_attention(theirs.self_attn, ours.self_attention)
    give_feed_forward(theirs, ours.feed_forward)
    theirs.norm1.load_state_dict(ours.self_attention_residual.norm.state_dict())
    theirs.norm2.load_state_dict(ours.feed_forward_residual.norm.state_dict())
    x = torch.randn(2, 5, 24, dtype=torch.float64)
    places = Tokens(*[torch.tensor([[0, 0, 0, 0, 0], [0, 0, 0, 9, 9]])] * 3)
    expected = theirs(x, src_key_padding_mask=places.segments == 9)
    real = places.segments == 0
    assert torch.allclose(ours(x, Mask(places, places))[real], expected[real])


@ORDERS
def test_the_decoder_layer_equals_torch(norm_order):
    ours = build(norm_order=norm_order, **TORCH_LIKE).decoder[0]
    theirs = (
        nn.TransformerDecoderLayer(24, 3, 40, batch_first=True, norm_first=norm_order == "pre")
        .double()
        .eval()
    )
    give_attention(theirs.self_attn, ours.self_attention)
    give_attention(theirs.multihead_attn, ours.cross_attention)
    give_feed_forward(theirs, ours.feed_forward)
    for number, residual in enumerate(
        ("self_attention", "cross_attention", "feed_forward"), start=1
    ):
        getattr(theirs, f"norm{number}").load_state_dict(
            getattr(ours, f"{residual}_residual").norm.state_dict()
        )
    x, memory = (
        torch.randn(2, 6, 24, dtype=torch.float64),
        torch.randn(2, 4, 24, dtype=torch.float64),
    )
    target, source = (
        Tokens.rows(torch.zeros(2, 6, dtype=torch.int32)),
        Tokens.rows(torch.zeros(2, 4, dtype=torch.int32)),
    )
    output = ours(x, memory, Mask(target, target, causal=True), Mask(target, source))
    causal = nn.Transformer.generate_square_subsequent_mask(6, dtype=torch.float64)
    assert torch.allclose(output, theirs(x, memory, tgt_mask=causal, tgt_is_causal=True))


def marian(model):
    """A MarianMTModel with the weights of ours, its residual dimensions in Marian's order of sines and cosines."""
    transformers = pytest.importorskip("transformers")
    config = model.config
    theirs = transformers.MarianMTModel(
        transformers.MarianConfig(
            vocab_size=config.vocab_size, d_model=config.d_model, encoder_layers=config.N, decoder_layers=config.N,
            encoder_attention_heads=config.h, decoder_attention_heads=config.h, encoder_ffn_dim=config.d_ff,
            decoder_ffn_dim=config.d_ff, activation_function="relu", scale_embedding=True, max_position_embeddings=64,
            pad_token_id=config.pad, eos_token_id=0, decoder_start_token_id=config.pad, dropout=0.0,
        )
    ).double().eval()  # fmt: skip
    halves = torch.cat([torch.arange(0, config.d_model, 2), torch.arange(1, config.d_model, 2)])
    weights = {
        "model.shared.weight": model.target_embedding.weight[:, halves],
        "final_logits_bias": model.output_bias[None],
    }
    for stack in ("encoder", "decoder"):
        for index, layer in enumerate(getattr(model, stack)):
            name = f"model.{stack}.layers.{index}"
            for ours, others in (
                ("self_attention", "self_attn"),
                ("cross_attention", "encoder_attn"),
            ):
                if not hasattr(layer, ours):
                    continue
                for part, projection in (("w_q", "q_proj"), ("w_k", "k_proj"), ("w_v", "v_proj")):
                    linear = getattr(getattr(layer, ours), part)
                    weights[f"{name}.{others}.{projection}.weight"] = linear.weight[:, halves]
                    weights[f"{name}.{others}.{projection}.bias"] = linear.bias
                output = getattr(layer, ours).w_o
                weights[f"{name}.{others}.out_proj.weight"] = output.weight[halves]
                weights[f"{name}.{others}.out_proj.bias"] = output.bias[halves]
                norm = getattr(layer, f"{ours}_residual").norm
                weights[f"{name}.{others}_layer_norm.weight"] = norm.weight[halves]
                weights[f"{name}.{others}_layer_norm.bias"] = norm.bias[halves]
            weights[f"{name}.fc1.weight"] = layer.feed_forward.w_1.weight[:, halves]
            weights[f"{name}.fc1.bias"] = layer.feed_forward.w_1.bias
            weights[f"{name}.fc2.weight"] = layer.feed_forward.w_2.weight[halves]
            weights[f"{name}.fc2.bias"] = layer.feed_forward.w_2.bias[halves]
            weights[f"{name}.final_layer_norm.weight"] = layer.feed_forward_residual.norm.weight[
                halves
            ]
            weights[f"{name}.final_layer_norm.bias"] = layer.feed_forward_residual.norm.bias[halves]
    unexpected = theirs.load_state_dict(weights, strict=False).unexpected_keys
    assert unexpected == []
    theirs.tie_weights()
    return theirs


def test_the_whole_model_equals_marian_of_hugging_face():
    ours = build(attention_bias=True, output_bias=True, d_v=8)
    theirs = marian(ours)
    pad = ours.config.pad
    source, target = Tokens.padded(SOURCES, pad), Tokens.padded(TARGETS, pad)
    expected = theirs(
        input_ids=source.ids.long(),
        attention_mask=(source.ids != pad).long(),
        decoder_input_ids=target.shifted_right(pad).ids.long(),
    ).logits
    real = target.ids != pad
    assert torch.allclose(ours(source, target.shifted_right(pad))[real], expected[real], atol=1e-5)
