"""The Triton kernels equal the plain formulas and their gradients.

Without a GPU, Triton's interpreter runs them.
"""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from transduce.config import ModelConfig
from transduce.errors import ConfigError, InputError
from transduce.kernels.accelerate import accelerate
from transduce.kernels.tiles import whole_rows
from transduce.model import Mask, Tokens, Transformer, written_out_attention

pytest.importorskip("triton")

from transduce.kernels import feed_forward, products, varlen
from transduce.kernels.varlen import varlen_attention

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

LENGTHS = [28, 3, 70, 5, 1]
PACKED = Tokens.packed(
    [[[1] * n for n in LENGTHS], [[1] * n for n in LENGTHS[::-1]]], pad=9, width=130
)
OTHER = Tokens.packed(
    [[[1] * (n + 2) for n in LENGTHS], [[1] * (n + 1) for n in LENGTHS[::-1]]], pad=9, width=140
)
PADDED = Tokens.padded([[1] * n for n in LENGTHS], pad=9)
SHORT = Tokens.padded([[1] * n for n in (28, 3)], pad=9)
LONG_ROWS, SHORT_ROWS = (replace(rows, prepared=whole_rows(rows.ids)) for rows in (PADDED, SHORT))


def assert_close(ours, expected, bound=1e-5):
    assert torch.allclose(ours, expected, atol=bound, rtol=10 * bound), (
        (ours - expected).abs().max()
    )


def assert_same_gradients(ours, expected, inputs, *, keep=False):
    gradients = [torch.randn_like(output) for output in expected]
    fused = torch.autograd.grad(ours, inputs, gradients, retain_graph=keep)
    plain = torch.autograd.grad(expected, inputs, gradients, retain_graph=keep)
    for gradient, oracle in zip(fused, plain, strict=True):
        assert_close(gradient, oracle)


@pytest.mark.parametrize(
    ("queries", "keys", "causal", "r", "sizes"),
    [
        (PACKED, PACKED, False, None, (16, 32)),
        (PACKED, PACKED, True, None, (16, 32)),
        (PACKED, PACKED, True, 8, (16, 32)),
        (OTHER, PACKED, False, None, (16, 32)),
        (PADDED, PADDED, True, None, (16, 32)),
        (LONG_ROWS, LONG_ROWS, False, None, (16, 32)),
        (SHORT_ROWS, SHORT_ROWS, False, None, (16, 32)),
        (OTHER, PACKED, False, None, (256, 256)),
    ],
    ids=[
        "packed",
        "packed causal",
        "packed causal neighbourhood",
        "packed cross",
        "padded causal",
        "rows",
        "short rows",
        "large heads, in slices",
    ],
)
def test_varlen_attention_is_equation_1(queries, keys, causal, r, sizes):
    queries, keys = queries.to(DEVICE), keys.to(DEVICE)
    generator = torch.Generator(DEVICE).manual_seed(0)

    def heads(tokens, size):
        shape = (tokens.ids.size(0), tokens.ids.size(1), 2, size)
        return (
            torch.randn(shape, generator=generator, device=DEVICE).transpose(1, 2).requires_grad_()
        )

    d_k, d_v = sizes
    inputs = heads(queries, d_k), heads(keys, d_k), heads(keys, d_v)
    mask = Mask(queries, keys, causal=causal, r=r)
    output, expected = varlen_attention(*inputs, mask), written_out_attention(*inputs, mask.allowed)
    real = (queries.segments != 2**31 - 1)[:, None, :, None]
    assert_close(output * real, expected * real)
    gradient = torch.randn(output.shape, generator=generator, device=DEVICE) * real
    for ours, oracle in zip(
        torch.autograd.grad(output, inputs, gradient),
        torch.autograd.grad(expected, inputs, gradient),
        strict=True,
    ):
        assert_close(ours, oracle)


@pytest.mark.parametrize(("causal", "size"), [(False, 16), (True, 16), (True, 256)])
def test_varlen_attention_in_half_precision_is_equation_1_for_sentences_of_any_number_of_tiles(
    causal, size
):
    lengths = [70, 150, 64, 128, 5]
    # With three tiles of padding.
    tokens = Tokens.packed([[[1] * n for n in lengths]], pad=9, width=570).to(DEVICE)
    generator, mask = torch.Generator(DEVICE).manual_seed(0), Mask(tokens, tokens, causal=causal)
    inputs = [
        torch.randn(1, 1, 570, size, generator=generator, device=DEVICE).half().requires_grad_()
        for _ in range(3)
    ]
    exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
    output, expected = varlen_attention(*inputs, mask), written_out_attention(*exact, mask.allowed)
    real = (tokens.segments != 2**31 - 1)[:, None, :, None]
    gradient = torch.randn(output.shape, generator=generator, device=DEVICE) * real
    found = torch.autograd.grad(output, inputs, gradient.half())
    for ours, oracle in zip(
        found, torch.autograd.grad(expected, exact, gradient.double()), strict=True
    ):
        assert_close(ours.double(), oracle, 1e-2)
    assert_close(output.double() * real, expected * real, 5e-3)


def test_no_kernel_reads_beyond_the_last_token(tmp_path):
    """Segments end at the last readable page of memory: reading further would end the process."""
    script = tmp_path / "script.py"
    script.write_text("""
import ctypes, mmap, torch
from dataclasses import replace
from transduce.kernels.varlen import varlen_attention
from transduce.model import Mask, Tokens

def at_the_edge(segments, page=mmap.PAGESIZE):
    pages = -(-segments.nbytes // page)
    memory = mmap.mmap(-1, (pages + 1) * page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    end = ctypes.c_void_p(address + pages * page)
    assert ctypes.CDLL(None).mprotect(end, ctypes.c_size_t(page), 0) == 0
    last = torch.frombuffer(memory, dtype=torch.int32)[: pages * page // 4][-segments.numel() :]
    return last.view_as(segments).copy_(segments)

long, short = (Tokens.packed([[[1] * 30, [1] * n]], 9, 230) for n in (200, 10))
for queries, keys in ((long, short), (short, long)):
    sides = [replace(side, segments=at_the_edge(side.segments)) for side in (queries, keys)]
    inputs = [torch.randn(1, 1, 230, 16, requires_grad=True) for _ in range(3)]
    varlen_attention(*inputs, Mask(*sides)).sum().backward()
""")
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "TRITON_INTERPRET": "1",
    }
    assert subprocess.run([sys.executable, script], env=environment).returncode == 0


def test_a_row_too_long_for_varlen_attention_is_refused(monkeypatch):
    heads = torch.randn(2, 130, 2, 16).transpose(1, 2)
    monkeypatch.setattr(varlen, "MOST", 130 * 2 * 16 - 1)
    with pytest.raises(InputError, match="a row has 130 tokens"):
        varlen_attention(heads, heads, heads, Mask(PACKED, PACKED))


def test_varlen_attention_gives_padding_nothing_where_nobody_shares_its_segment():
    source, target = (
        Tokens.padded([[1] * 5], 9).to(DEVICE),
        Tokens.packed([[[1] * 3]], 9, width=5).to(DEVICE),
    )
    inputs = [torch.randn(1, 1, 5, 16, device=DEVICE, requires_grad=True) for _ in range(3)]
    output = varlen_attention(*inputs, Mask(target, source))
    assert (output[:, :, 3:] == 0).all()
    for gradient in torch.autograd.grad(output.sum(), inputs):
        assert torch.isfinite(gradient).all()


def test_a_gradient_that_is_one_number_everywhere_is_read_as_such():
    tokens = PACKED.to(DEVICE)
    inputs = [
        torch.randn(
            *PACKED.ids.shape[:1], 1, PACKED.ids.size(1), 16, device=DEVICE, requires_grad=True
        )
    ] * 3
    output = varlen_attention(*inputs, Mask(tokens, tokens, causal=True))
    (seen,) = torch.autograd.grad(output.sum(), inputs[:1], retain_graph=True)
    (written,) = torch.autograd.grad(output, inputs[:1], torch.ones_like(output))
    assert torch.equal(seen, written)


def test_a_model_that_names_the_varlen_kernel_decodes_in_chunks_too():
    torch.manual_seed(0)
    config = ModelConfig(
        vocab_size=31, N=1, d_model=32, d_ff=32, h=2, d_k=16, d_v=16, p_drop=0.0, kernel="varlen"
    )
    model = Transformer(config).eval().to(DEVICE)
    accelerate(model, "cuda")
    source = Tokens.padded([[5, 6, 0]], 30).to(DEVICE)
    target = Tokens.padded([[*range(1, 30)] * 3], 30).to(DEVICE)
    whole = model(source, target)
    state, parts = model.encode(source), []
    for chunk in (slice(0, 70), slice(70, 71), slice(71, None)):
        logits, state = model.decode(target[chunk], state)
        parts.append(logits)
    assert_close(torch.cat(parts, dim=1), whole)


def test_varlen_attention_reads_beyond_the_first_2_to_the_31_numbers():
    tokens = Tokens.packed([[[1] * 66]] * 3, pad=9).to(DEVICE)
    near = torch.randn(3, 1, 66, 16, device=DEVICE, dtype=torch.float16)
    # Of which little is ever touched.
    far = torch.empty(2**31 + 66 * 16, device=DEVICE, dtype=torch.float16)
    far = far.as_strided(near.shape, (2**30, 1, 16, 1)).copy_(near)
    mask = Mask(tokens, tokens)
    assert torch.equal(
        varlen_attention(far, far, far, mask), varlen_attention(near, near, near, mask)
    )


@pytest.mark.parametrize(("size", "p_drop"), [(24, 0.0), (24, 0.3), (64, 0.1)])
def test_the_fused_residual_is_dropout_then_sum_then_norm(size, p_drop):
    from transduce.kernels.residual import AddNorm

    torch.manual_seed(0)
    x, output = torch.randn(2, 3, 37, size, device=DEVICE).unbind(0)
    weight, bias = torch.randn(2, size, device=DEVICE).unbind(0)
    inputs = [tensor.clone().requires_grad_() for tensor in (x, output, weight, bias)]
    seed = torch.tensor(123_456_789_012_345, device=DEVICE)
    fused, again = AddNorm.apply(*inputs, seed, p_drop, 1e-5, True, True)
    plain = [
        torch.zeros_like(x),
        torch.ones_like(x),
        torch.ones_like(weight),
        torch.zeros_like(bias),
    ]
    kept = (
        (AddNorm.apply(*plain, seed, p_drop, 1e-5, True, True)[0] > 0).float()
        if p_drop
        else torch.ones_like(x)
    )
    expected = F.layer_norm(
        inputs[0] + inputs[1] * kept / (1 - p_drop), (size,), inputs[2], inputs[3]
    )
    assert_close(fused, expected)
    assert torch.equal(fused, again)
    assert_same_gradients([fused], [expected], inputs, keep=True)
    assert_same_gradients([again], [expected], inputs, keep=True)
    assert_same_gradients([fused, again], [expected, expected], inputs)


def test_fused_dropout_keeps_the_share_it_should_and_depends_on_seed_and_place():
    from transduce.kernels.residual import AddNorm

    ones, zeros = torch.ones(1, 200, 64, device=DEVICE), torch.zeros(1, 200, 64, device=DEVICE)

    def kept(seed):
        norm = (torch.ones(64, device=DEVICE), torch.zeros(64, device=DEVICE))
        return (
            AddNorm.apply(
                zeros, ones, *norm, torch.tensor(seed, device=DEVICE), 0.3, 1e-5, True, True
            )[0]
            > 0
        )

    first, other, high = kept(1), kept(2), kept(1 + 2**40)
    for mask in (first, other, high):
        assert float(mask.float().mean()) == pytest.approx(0.7, abs=0.02)
        assert float(mask.float().mean(1).std()) < 0.05  # no column is favoured
    assert torch.equal(first, kept(1))
    for mask in (other, high):  # independent: agree by chance alone
        assert float((first == mask).float().mean()) == pytest.approx(0.7**2 + 0.3**2, abs=0.02)


@pytest.mark.parametrize(("bias", "parts"), [(False, 3), (False, 1), (True, 1)])
def test_a_product_is_each_of_its_products_with_a_bias(bias, parts):
    from transduce.kernels.products import Product

    torch.manual_seed(0)
    x = torch.randn(2, 30, 16, device=DEVICE, requires_grad=True)
    weights = [torch.randn(24 + 8 * i, 16, device=DEVICE, requires_grad=True) for i in range(parts)]
    biases = [torch.randn(24, device=DEVICE, requires_grad=True)] if bias else []
    ours = Product.apply(x, biases[0] if bias else None, None, 0, *weights)
    expected = [F.linear(x, weight, *biases) for weight in weights]
    for output, oracle in zip(ours, expected, strict=True):
        assert_close(output, oracle)
    assert_same_gradients(ours, expected, [x, *biases, *weights])


def test_weights_that_lie_one_below_the_other_are_not_copied():
    from transduce.kernels.products import _stack

    first, second, third = torch.randn(3, 8, 16, device=DEVICE)
    for parts, copied in (
        ([first, second, third], False),
        ([third, second], True),
        ([first, third], True),
    ):
        whole = _stack(parts)
        assert torch.equal(whole, torch.cat(parts))
        assert (whole.data_ptr() != parts[0].data_ptr()) == copied


@pytest.mark.parametrize(("count", "d_model", "d_ff"), [(3, 16, 24), (150, 72, 136)])
def test_a_network_of_two_products_with_a_relu_between_has_its_gradients(count, d_model, d_ff):
    from transduce.kernels.feed_forward import ReluNetwork

    torch.manual_seed(0)
    shapes = [(2, count, d_model), (d_ff, d_model), (d_ff,), (d_model, d_ff), (d_model,)]
    inputs = [(torch.randn(shape, device=DEVICE) / 4).half().requires_grad_() for shape in shapes]
    exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
    x, w_1, b_1, w_2, b_2 = exact
    ours = ReluNetwork.apply(*inputs)
    expected = F.linear(F.relu(F.linear(x, w_1, b_1)), w_2, b_2)
    gradient = torch.randn_like(ours)
    fused = [*torch.autograd.grad(ours, inputs, gradient), ours]
    plain = [*torch.autograd.grad(expected, exact, gradient.double()), expected]
    for tensor, oracle in zip(fused, plain, strict=True):
        assert (tensor.double() - oracle).norm() < 2e-3 * oracle.norm()


@pytest.mark.parametrize(("count", "d_model", "d_ff"), [(3, 16, 24), (150, 72, 136)])
@pytest.mark.parametrize("silu", [True, False])
def test_a_gated_network_has_its_gradients(count, d_model, d_ff, silu):
    torch.manual_seed(0)
    shapes = [
        (2, count, d_model),
        (d_ff, d_model),
        (d_ff,),
        (d_ff, d_model),
        (d_ff,),
        (d_model, d_ff),
        (d_model,),
    ]
    inputs = [(torch.randn(shape, device=DEVICE) / 4).half().requires_grad_() for shape in shapes]
    exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
    x, w_1, b_1, w_gate, b_gate, w_2, b_2 = exact
    ours = feed_forward.GatedNetwork.apply(*inputs, silu)
    inner = (F.silu if silu else F.gelu)(F.linear(x, w_1, b_1)) * F.linear(x, w_gate, b_gate)
    expected = F.linear(inner, w_2, b_2)
    gradient = torch.randn_like(ours)
    fused = [*torch.autograd.grad(ours, inputs, gradient), ours]
    plain = [*torch.autograd.grad(expected, exact, gradient.double()), expected]
    for tensor, oracle in zip(fused, plain, strict=True):
        assert (tensor.double() - oracle).norm() < 2e-3 * oracle.norm()


@pytest.mark.parametrize(
    ("dtype", "shape", "major", "room", "expected"),
    [
        (torch.bfloat16, (2048, 512), 9, 232_448, True),
        (torch.float32, (2048, 512), 9, 232_448, False),
        (torch.bfloat16, (2044, 512), 9, 232_448, False),
        (torch.bfloat16, (2048, 512), 8, 166_912, False),
        (torch.bfloat16, (2048, 512), 12, 101_376, False),  # a later chip, but a small one
    ],
)
def test_a_product_of_our_own_is_taken_where_it_runs(
    dtype, shape, major, room, expected, monkeypatch
):
    chip = SimpleNamespace(major=major, shared_memory_per_block_optin=room)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: chip)
    weight = SimpleNamespace(
        is_cuda=True, device=None, shape=shape, element_size=dtype.itemsize.__int__
    )
    assert feed_forward.takes_own_product(weight) == expected


def test_a_bias_sums_gradients_beyond_the_first_2_to_the_31_numbers():
    from transduce.kernels.products import _bias_backward

    D = 2**27
    dy = torch.empty(17, D, device=DEVICE, dtype=torch.int8)  # of which little is ever touched
    dy[:, :16] = 1
    sums = torch.empty(1, 1, 16, device=DEVICE)
    _bias_backward[(1, 1)](dy, sums, 17, D=D, WIDTH=16, ROWS=16)
    assert (sums == 17).all()


def test_gradients_of_attention_lie_side_by_side_where_its_inputs_do(monkeypatch):

    torch.manual_seed(0)
    x = torch.randn(1, 130, 32, device=DEVICE, requires_grad=True)
    weights = [torch.randn(32, 32, device=DEVICE, requires_grad=True) for _ in range(3)]
    tokens = PACKED.select(torch.tensor([0])).to(DEVICE)

    def attended(parts):
        q, k, v = (part.view(1, 130, 2, 16).transpose(1, 2) for part in parts)
        return varlen_attention(q, k, v, Mask(tokens, tokens, causal=True))

    together = attended(products.Product.apply(x, None, None, 0, *weights))
    apart = attended([F.linear(x, weight) for weight in weights])
    joined = []
    original = products._join
    monkeypatch.setattr(
        products, "_join", lambda parts: joined.append((parts, original(parts))) or joined[-1][1]
    )
    assert_same_gradients([together], [apart], [x, *weights])
    ((parts, whole),) = joined
    assert whole.data_ptr() == parts[0].data_ptr()  # nothing was copied


@pytest.mark.parametrize("p_drop", [0.0, 0.3])
def test_embedded_is_the_sum_of_embedding_and_sinusoid_with_dropout(p_drop):
    from transduce.kernels.embedding import Embedded
    from transduce.model.positions import sinusoids

    torch.manual_seed(0)
    weight = torch.randn(10, 24, device=DEVICE, requires_grad=True)
    tokens = PACKED.to(DEVICE)
    ids = torch.randint(0, 10, tokens.ids.shape, device=DEVICE, dtype=torch.int32)
    seed = torch.tensor(5, device=DEVICE)
    ours = Embedded.apply(weight, ids, tokens.positions, seed, 24**0.5, p_drop, True)
    whole = F.embedding(ids, weight, padding_idx=9) * 24**0.5 + sinusoids(tokens.positions, 24)
    kept = (ours != 0) / (1 - p_drop)
    assert abs(float((ours == 0).float().mean()) - p_drop) < 0.02
    assert_close(ours, whole * kept)
    assert_same_gradients([ours], [whole * kept], [weight])


def test_attention_dropout_and_the_varlen_kernel_exclude_each_other():
    with pytest.raises(ConfigError):
        ModelConfig(kernel="varlen", p_drop_attention=0.1)


@pytest.mark.parametrize(
    ("count", "size", "seldom"),
    [(1, 24, 1.0), (64, 24, 1.0), (200, 24, 1.0), (200, 24, 0.02), (64 * 40 + 3, 160, 0.02)],
)
def test_gradients_of_a_token_are_added_up_however_often_it_comes(count, size, seldom):
    from transduce.kernels.embedding import Embedded

    torch.manual_seed(0)
    weight = torch.zeros(300, size, device=DEVICE, requires_grad=True)
    ids = torch.randint(0, 300, (1, count), device=DEVICE, dtype=torch.int32)
    ids = ids.where(torch.rand(1, count, device=DEVICE) < seldom, 7)  # one that takes many chunks
    ours = Embedded.apply(
        weight, ids, torch.zeros_like(ids), torch.tensor(5, device=DEVICE), 3.0, 0.0, False
    )
    oracle = F.embedding(ids, weight, padding_idx=299) * 3.0
    assert_close(ours, oracle)
    assert_same_gradients([ours], [oracle], [weight])
