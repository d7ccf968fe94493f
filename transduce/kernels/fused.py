"""The standard parts of a model with fused forwards: the same formulas by kernels, on a GPU.

Each class takes the place of the one that it is derived from (`accelerate`). It passes over the
`forward` of the parts inside it, so it may only stand where these are standard too. It calls its
base by name, not by `super()`: a method that was taken from it still works once the part has its own
class back.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from transduce.kernels.embedding import Embedded
from transduce.kernels.products import GatedNetwork, ReluNetwork, project, takes_own_product
from transduce.kernels.residual import add_norm, new_seed
from transduce.kernels.varlen import takes, varlen_attention
from transduce.model.attention import Mask
from transduce.model.embedding import Embedding
from transduce.model.feed_forward import FeedForward
from transduce.model.layers import Residual
from transduce.model.multi_head import MultiHeadAttention
from transduce.model.positions import Positions, Rotation
from transduce.model.state import Cache
from transduce.model.tokens import Tokens
from transduce.model.transformer import Transformer


def runs_on(x: Tensor) -> bool:
    """Whether kernels can read this tensor: on a GPU, or anywhere in Triton's interpreter."""
    return x.is_cuda or os.environ.get("TRITON_INTERPRET") == "1"


class FusedAttention(MultiHeadAttention):
    """One product for queries, keys and values; attention in tiles (`varlen`) where rows are long."""

    stands_for = MultiHeadAttention
    label = "attention"

    def forward(
        self,
        queries_from: Tensor,
        keys_from: Tensor,
        mask: Mask,
        rotation: Rotation | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Let a cache attend that can, as those of a search in `engines.cuda`."""
        attend = getattr(cache, "attend", None)
        if attend is not None:
            return self.w_o(attend(self, queries_from, rotation))
        return MultiHeadAttention.forward(self, queries_from, keys_from, mask, rotation, cache)

    def queries(self, queries_from: Tensor, rotation: Rotation | None) -> Tensor:
        """Project by one product with its rotation."""
        if not runs_on(queries_from):
            return MultiHeadAttention.queries(self, queries_from, rotation)
        turning = _flat(rotation, queries_from)
        return self.heads(*project(queries_from, self.w_q, rotation=turning, turned=1))

    def queries_keys_values(
        self, queries_from: Tensor, keys_from: Tensor, rotation: Rotation | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Project by one product, or by two where keys come from elsewhere."""
        if not runs_on(queries_from):
            return MultiHeadAttention.queries_keys_values(self, queries_from, keys_from, rotation)
        turning = _flat(rotation, keys_from)
        if queries_from is keys_from:
            parts = project(queries_from, self.w_q, self.w_k, self.w_v, rotation=turning, turned=2)
            q, k, v = map(self.heads, parts)
        else:
            q = self.queries(queries_from, rotation)
            k, v = map(
                self.heads, project(keys_from, self.w_k, self.w_v, rotation=turning, turned=1)
            )
        return q, k, v

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        """Attend in tiles where that is possible."""
        if runs_on(q) and takes(self, mask, q.size(2)):
            return varlen_attention(q, k, v, mask)
        return MultiHeadAttention.attend(self, q, k, v, mask)

    def join(self, heads: Tensor) -> Tensor:
        """Join the heads by one product."""
        if not runs_on(heads):
            return MultiHeadAttention.join(self, heads)
        return project(heads.transpose(1, 2).flatten(2), self.w_o)[0]


def _flat(rotation: Rotation | None, x: Tensor) -> Rotation | None:
    """Angles for each of the n rows of a product:  (B, 1, T, d_k / 2) -> (n, d_k / 2) twice."""
    if rotation is None:
        return None
    cosines, sines = (each.expand(x.size(0), 1, -1, -1).flatten(0, 2) for each in rotation)
    return cosines, sines


class Handover:
    """What one residual connection hands to the next besides its result (see `AddNorm`).

    In post-norm order that is the result once more, for the next sum; in pre-norm order it is the
    next norm of the result.
    """

    def __init__(self, norm: Any = None) -> None:
        self.norm = norm  # the next one, in pre-norm order
        self._kept: tuple[Tensor, int, Tensor] | None = None

    def give(self, result: Tensor, extra: Tensor) -> None:
        """Keep the extra for whoever gets this very result next."""
        self._kept = result, _version(result), extra

    def take(self, x: Tensor) -> Tensor | None:
        """Return the extra that belongs to x; None where x was changed or its gradient is watched."""
        kept, self._kept = self._kept, None
        if kept is None or kept[0] is not x or kept[1] != _version(x):
            return None
        return None if x._backward_hooks or x.retains_grad else kept[2]

    def __deepcopy__(self, memo: dict[int, Any]) -> Handover:
        """Copy the way, not what is on it."""
        memo[id(self)] = new = Handover()
        new.norm = copy.deepcopy(self.norm, memo)
        return new


def _version(x: Tensor) -> int:
    return 0 if x.is_inference() else x._version


class FusedResidual(Residual):
    """Sum, dropout and norm in one kernel; in pre-norm order the norm is the next residual's."""

    stands_for = Residual
    label = "residual"
    takes: Handover
    gives: Handover | None

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """(B, T, d_model) -> (B, T, d_model)."""
        if not runs_on(x):
            return Residual.forward(self, x, sublayer)
        p_drop = self.dropout.p if self.training else 0.0
        handed = self.takes.take(x)
        if self.norm_order == "post":
            once_more = x if handed is None else handed
            result, extra = add_norm(once_more, sublayer(x), self.norm, p_drop, post=True)
        else:
            if handed is None:
                x, handed = add_norm(x, None, self.norm, 0.0, post=False)
            output = sublayer(handed)
            if self.gives is None:
                return x + self.dropout(output)
            result, extra = add_norm(x, output, self.gives.norm, p_drop, post=False)
        if self.gives is not None:
            self.gives.give(result, extra)
        return result


class _FusedNorm:
    """The norm at the end of a pre-norm stack, which the last residual may have computed."""

    takes: Handover

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, d_model) -> (B, T, d_model)."""
        if not runs_on(x):
            return super().forward(x)  # type: ignore[misc]
        handed = self.takes.take(x)
        return add_norm(x, None, self, 0.0, post=False)[1] if handed is None else handed


class FusedLayerNorm(_FusedNorm, nn.LayerNorm):
    """LayerNorm by a kernel."""

    stands_for = nn.LayerNorm


class FusedRMSNorm(_FusedNorm, nn.RMSNorm):
    """RMSNorm by a kernel."""

    stands_for = nn.RMSNorm


class FusedFeedForward(FeedForward):
    """Both products with what stands between them, forward and backward."""

    stands_for = FeedForward
    label = "feed-forward"

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, d_model) -> (B, T, d_model)."""
        if not runs_on(x) or (self.training and self.dropout.p > 0):
            return FeedForward.forward(self, x)
        outer = (self.w_2.weight, self.w_2.bias)
        if self.w_gate is not None:
            inner = (self.w_1.weight, self.w_1.bias, self.w_gate.weight, self.w_gate.bias)
            return GatedNetwork.apply(x, *inner, *outer, self.kind == "swiglu")
        if self.kind == "relu" and takes_own_product(self.w_1.weight):
            return ReluNetwork.apply(x, self.w_1.weight, self.w_1.bias, *outer)
        return project(self.activation(project(x, self.w_1)[0]), self.w_2)[0]


class FusedTransformer(Transformer):
    """Embedding, sinusoids and dropout in one kernel."""

    stands_for = Transformer
    label = "embedding"

    def embed(self, tokens: Tokens, embedding: Embedding, positions: Positions) -> Tensor:
        """(B, T) -> (B, T, d_model)."""
        if not runs_on(tokens.ids) or positions.kind == "learned":
            return Transformer.embed(self, tokens, embedding, positions)
        p_drop = self.dropout.p if self.training else 0.0
        seed, added = new_seed(tokens.ids.device, p_drop), positions.kind == "sinusoidal"
        places = tokens.positions, seed, embedding.scale, p_drop, added
        return Embedded.apply(embedding.weight, tokens.ids, *places)
