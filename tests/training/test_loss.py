"""§5.4: label smoothing as defined, and padding that neither counts nor learns."""

import pytest
import torch
import torch.nn.functional as F

from tests.model.conftest import SOURCES, TARGETS, build
from transduce.kernels import cpu_loss
from transduce.model import Tokens
from transduce.training.loss import projected_loss, smoothed_loss

PAD = 30


@pytest.fixture
def logits():
    return torch.randn(2, 4, 31, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


LABELS = torch.tensor([[3, 4, 0, PAD], [29, 0, PAD, PAD]])


@pytest.mark.parametrize("eps_ls", [0.0, 0.1, 0.2])
def test_the_loss_is_cross_entropy_with_the_smoothed_distribution(logits, eps_ls):
    smoothed, _ = smoothed_loss(logits, LABELS, eps_ls)
    expected = 0.0
    for row, column in (LABELS != PAD).nonzero().tolist():
        distribution = torch.full((30,), eps_ls / 29, dtype=torch.float64)
        distribution[LABELS[row, column]] = 1 - eps_ls
        expected -= float(distribution @ logits[row, column, :30].log_softmax(-1))
    assert float(smoothed) == pytest.approx(expected, rel=1e-6)


def test_without_smoothing_it_is_the_negative_log_likelihood_which_is_never_smoothed(logits):
    smoothed, _ = smoothed_loss(logits, LABELS, 0.0)
    _, likelihood = smoothed_loss(logits, LABELS, 0.2)
    expected = F.cross_entropy(
        logits[..., :30].flatten(0, 1), LABELS.flatten(), ignore_index=PAD, reduction="sum"
    )
    assert float(smoothed) == pytest.approx(float(expected), rel=1e-6)
    assert float(likelihood) == pytest.approx(float(expected), rel=1e-6)


def test_the_loss_of_half_precision_logits_is_summed_in_float32(logits):
    half = smoothed_loss(logits.bfloat16(), LABELS, 0.1)
    exact = smoothed_loss(logits.bfloat16().double(), LABELS, 0.1)
    assert half[0].dtype == torch.float32
    assert [float(part) for part in half] == pytest.approx(
        [float(part) for part in exact], rel=1e-6
    )


def test_padding_keeps_the_zero_vector_while_the_rest_learns():
    model = build(p_drop=0.0).float()
    torch.nn.init.zeros_(model.target_embedding.weight[PAD:].data)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    source, target = Tokens.padded(SOURCES, PAD), Tokens.padded(TARGETS, PAD)
    before = model.target_embedding.weight.detach().clone()
    for _ in range(3):
        smoothed_loss(model(source, target.shifted_right(PAD)), target.ids, 0.1)[0].backward()
        optimizer.step()
    after = model.target_embedding.weight.detach()
    assert (after[PAD] == 0).all()
    assert (after[:PAD] != before[:PAD]).any(-1).all()


# 31 classes, with padding in a separate block or in one with classes.
@pytest.mark.parametrize("block", [4, 8, 16, 32])
def test_the_fused_loss_is_the_plain_one_with_its_gradients(block, monkeypatch):
    pytest.importorskip("triton")
    from transduce.kernels import loss
    from transduce.kernels.loss import ProjectedLoss

    monkeypatch.setattr(loss, "BLOCK", block)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    inputs = [
        torch.randn(shape, device=device, requires_grad=True) for shape in ((2, 4, 16), (31, 16))
    ]
    labels = LABELS.to(device)
    fused = ProjectedLoss.apply(*inputs, labels, 0.1)
    expected = torch.stack(smoothed_loss(F.linear(*inputs), labels, 0.1))
    assert torch.allclose(fused, expected, rtol=1e-4)
    for ours, oracle in zip(
        torch.autograd.grad(fused[0] / 7, inputs),
        torch.autograd.grad(expected[0] / 7, inputs),
        strict=True,
    ):
        assert torch.allclose(ours, oracle, atol=1e-5)
        assert (oracle != 0).any()


@pytest.mark.parametrize("rows", [1, 3, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_loss_in_chunks_is_the_plain_one_with_its_gradients(dtype, rows, monkeypatch):
    monkeypatch.setattr(cpu_loss, "ROWS", rows)
    torch.manual_seed(0)
    # The decoder's output need not be contiguous.
    hidden = torch.randn(4, 2, 16).transpose(0, 1)
    inputs = [each.to(dtype).requires_grad_() for each in (hidden, torch.randn(PAD + 1, 16))]
    chunked = projected_loss(*inputs, LABELS, 0.1)
    # The oracle multiplies exactly; bf16 keeps 8 bits of a logit or a gradient.
    exact = [each.detach().double().requires_grad_() for each in inputs]
    expected = torch.stack(smoothed_loss(F.linear(*exact), LABELS, 0.1))
    tolerance = 2**-7 if dtype == torch.bfloat16 else 1e-5
    assert torch.allclose(chunked, expected.float(), rtol=tolerance)
    ours = torch.autograd.grad(chunked[0] / 7, inputs)
    oracles = torch.autograd.grad(expected[0] / 7, exact)
    for gradient, oracle in zip(ours, oracles, strict=True):
        assert gradient.dtype == dtype
        assert (gradient.double() - oracle).norm() < tolerance * oracle.norm()

    # Padding: no gradient at a position whose label it is, nor for its row of the matrix.
    assert (ours[0][LABELS == PAD] == 0).all()
    assert (ours[1][PAD] == 0).all()


def test_the_loss_of_padding_alone_is_zero():
    hidden, weight = torch.randn(1, 3, 4, requires_grad=True), torch.randn(6, 4)
    sums = projected_loss(hidden, weight, torch.full((1, 3), 5), 0.1)
    sums[0].backward()
    assert (sums == 0).all()
    assert (hidden.grad == 0).all()
