"""On CUDA: every kernel equals Equation 1 with its gradients, packed and padded, also in bf16."""

import pytest
import torch

from transduce.config import ModelConfig
from transduce.kernels.accelerate import accelerate
from transduce.model import Mask, Tokens, Transformer, attention, written_out_attention

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

LENGTHS = [28, 3, 130, 61, 1, 90, 300, 17, 44]
PACKED = Tokens.packed(
    [[[1] * n for n in LENGTHS], [[1] * n for n in LENGTHS[::-1]]], pad=30, width=768
)
PADDED = Tokens.padded([[1] * n for n in LENGTHS], pad=30)


def relative_error(ours, expected):
    return float((ours.detach().double() - expected.detach()).norm() / expected.detach().norm())


@pytest.mark.parametrize("kernel", ["sdpa", "varlen"])
@pytest.mark.parametrize("tokens", [PACKED, PADDED], ids=["packed", "padded"])
@pytest.mark.parametrize(("causal", "r"), [(False, None), (True, None), (True, 8)])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-3), (torch.bfloat16, 1e-2)])
def test_every_kernel_equals_equation_1(kernel, tokens, causal, r, dtype, bound):
    tokens = tokens.to("cuda")
    real = (tokens.segments != 2**31 - 1)[:, None, :, None]
    from transduce.kernels.varlen import varlen_attention

    mask = Mask(tokens, tokens, causal=causal, r=r)
    shape = (tokens.ids.size(0), 4, tokens.ids.size(1), 64)
    inputs = [torch.randn(shape, device="cuda", dtype=dtype, requires_grad=True) for _ in range(3)]
    exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
    gradient = torch.randn(shape, device="cuda", dtype=dtype) * real
    output = (
        varlen_attention(*inputs, mask) if kernel == "varlen" else attention(*inputs, mask.allowed)
    )
    expected = written_out_attention(*exact, mask.allowed)
    output.backward(gradient)
    expected.backward(gradient.double())
    assert relative_error(output * real, expected * real) < bound
    for ours, oracle in zip(inputs, exact, strict=True):
        assert relative_error(ours.grad * real, oracle.grad * real) < bound


def test_an_accelerated_model_gives_the_logits_of_the_cpu():
    config = ModelConfig(vocab_size=31, N=2, d_model=64, d_ff=128, h=4, d_k=16, d_v=16, p_drop=0.0)
    torch.manual_seed(0)
    model = Transformer(config).eval()
    expected = model(PACKED, PACKED.shifted_right(30))
    there = PACKED.to("cuda")
    model.cuda()
    assert accelerate(model).packs
    logits = model(there, there.shifted_right(30)).cpu()
    real = PACKED.segments != 2**31 - 1
    assert relative_error(logits[real], expected[real].double()) < 1e-3
