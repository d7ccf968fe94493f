"""The numbers that each step of the walkthrough shows, and the variants that a reader can try."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.inspection.walkthrough.recording import Recording

# The temperatures that a reader can choose. The page knows the logits of the best tokens only, so
# the total of all others is computed here, for each temperature.
TEMPERATURES = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0)
CANDIDATES = 12  # tokens that are shown of a distribution
Data = dict[str, Tensor]


def embedding(recording: Recording) -> Data:
    """Return the scaled embeddings, and their norms beside those of the added positions."""
    vectors = recording.calls["embedding"].output[0]
    added = recording.calls["positions"].output[0] - vectors
    return {
        "embedding": vectors,
        "norms": vectors.norm(dim=-1),
        "position_norms": added.norm(dim=-1),
        "scale": torch.tensor(recording.model.config.d_model**0.5),
    }


def position(recording: Recording) -> Data:
    """Return what the position adds to the embedding; for rotary positions, cosines and sines."""
    call = recording.calls["positions"]
    vectors, positions = call.inputs
    encoding = call.output - vectors
    rotation = recording.model.source_positions.rotation(positions)
    if rotation is not None:
        encoding = torch.cat(rotation, dim=-1)[:, 0]
    return {"encoding": encoding[0], "sum": call.output[0]}


def queries_keys_values(recording: Recording, name: str, head: int) -> Data:
    """Return q, k and v of a head of an attention."""
    attention = recording.attention(name)
    return {"q": attention.q[head], "k": attention.k[head], "v": attention.v[head]}


def scores(recording: Recording, head: int) -> Data:
    """Return the dot products of all queries and keys."""
    attention = recording.attention("self_attention")
    return {"scores": attention.q[head] @ attention.k[head].T}


def scale(recording: Recording, head: int) -> Data:
    """Return the divisor and the scaled scores."""
    divisor = torch.tensor(recording.model.config.d_k**0.5)
    return {"divisor": divisor, "scaled": scores(recording, head)["scores"] / divisor}


def softmax(recording: Recording, head: int) -> Data:
    """Return the attention weights and the entropy of each row, in nats."""
    attention = recording.attention("self_attention")
    weights = attention.weights[head]
    return {"weights": weights, "entropy": entropy(weights), "allowed": attention.allowed.int()}


def weighted_sum(recording: Recording, head: int) -> Data:
    """Return the result of a head."""
    return {"output": recording.attention("self_attention").heads[head]}


def heads(recording: Recording) -> Data:
    """Return the weights of all heads, their joined result, and the share of each head in it.

    The share is the distance between the results with and without a head, relative to the size of
    the result, as a mean over tokens.
    """
    attention = recording.attention("self_attention")
    module = recording.modules["self_attention"]
    shares = []
    for head in range(len(attention.heads)):
        without = attention.heads.clone()
        without[head] = 0
        shares.append(_distance(module.join(without[None])[0], attention.output))
    return {"weights": attention.weights, "output": attention.output, "share": torch.stack(shares)}


def residual_norm(recording: Recording) -> Data:
    """Return the vectors around the residual connection and the norm.

    `kept` is the cosine of what goes in and what comes out; `kept_without` the same if the residual
    connection were missing.
    """
    x = recording.calls["residual"].inputs[0][0]
    output = recording.calls["residual"].output[0]
    sublayer = recording.attention("self_attention").output
    norm = recording.calls["norm"]
    post = recording.model.config.norm_order == "post"
    without = recording.modules["norm"](sublayer) if post else sublayer
    return {
        "input": x,
        "sublayer": sublayer,
        "output": output,
        "mean_before": norm.inputs[0][0].mean(dim=-1),
        "size_before": _root_mean_square(norm.inputs[0][0]),
        "mean_after": norm.output[0].mean(dim=-1),
        "size_after": _root_mean_square(norm.output[0]),
        "kept": F.cosine_similarity(x, output, dim=-1),
        "kept_without": F.cosine_similarity(x, without, dim=-1),
    }


def feed_forward(recording: Recording) -> Data:
    """Return the inner and the outer vectors, and the error if only few neurons were kept.

    A neuron counts as active if its value is more than a twentieth of the largest; with ReLU, if it
    is not zero.
    """
    inner = recording.calls["w_2"].inputs[0][0]  # (S, d_ff)
    sizes = inner.abs()
    is_relu = recording.model.config.activation == "relu"
    threshold = torch.zeros(1) if is_relu else sizes.amax(dim=-1, keepdim=True) / 20

    # The result without bias, from all neurons and from the strongest ones of each token.
    matrix = recording.modules["w_2"].weight
    whole = F.linear(inner, matrix)
    counts = _powers_of_four(inner.size(-1))
    errors = []
    for count in counts:
        weakest = sizes.topk(count, dim=-1).values[:, -1:]
        kept = inner.masked_fill(sizes < weakest, 0.0)
        errors.append(_distance(F.linear(kept, matrix), whole))
    return {
        "inner": inner,
        "output": recording.calls["feed_forward"].output[0],
        "active": (sizes > threshold).float().mean(dim=-1),
        "neurons": torch.tensor(counts),
        "error": torch.stack(errors),
    }


def mask(recording: Recording, head: int) -> Data:
    """Return a head of the decoder's self-attention."""
    attention = recording.attention("masked_attention")
    return {
        **queries_keys_values(recording, "masked_attention", head),
        "allowed": attention.allowed.int(),
        "weights": attention.weights[head],
    }


def cross_attention(recording: Recording, head: int) -> Data:
    """Return a head of the attention to the encoder's output."""
    weights = recording.attention("cross_attention").weights[head]
    return {**queries_keys_values(recording, "cross_attention", head), "weights": weights}


def distribution(recording: Recording) -> Data:
    """Return the logits of the best tokens, (T, C), and the total of the others, (T, temperatures).

    The total is the logarithm of the sum of exp(logit / temperature).
    """
    best = recording.logits.topk(min(CANDIDATES, recording.logits.size(-1)), dim=-1)
    others = recording.logits.scatter(-1, best.indices, -torch.inf)
    totals = [torch.logsumexp(others / temperature, dim=-1) for temperature in TEMPERATURES]
    return {
        "logits": best.values,
        "candidates": best.indices,
        "temperatures": torch.tensor(TEMPERATURES),
        "rest": torch.stack(totals, dim=-1),
        "entropy": entropy(recording.logits.softmax(dim=-1)),
    }


def entropy(probabilities: Tensor) -> Tensor:
    """Return the entropy of each row, in nats."""
    return -torch.xlogy(probabilities, probabilities).sum(dim=-1)


def _distance(vectors: Tensor, others: Tensor) -> Tensor:
    """Return the distance of vectors relative to the size of the others, as a mean over rows."""
    sizes = others.norm(dim=-1).clamp(min=1e-12)
    return ((vectors - others).norm(dim=-1) / sizes).mean()


def _root_mean_square(vectors: Tensor) -> Tensor:
    return vectors.square().mean(dim=-1).sqrt()


def _powers_of_four(largest: int) -> list[int]:
    """Return 1, 4, 16, ... and the largest."""
    powers = [1]
    while powers[-1] * 4 < largest:
        powers.append(powers[-1] * 4)
    return [*powers, largest] if largest > 1 else powers
