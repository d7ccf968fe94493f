"""Fused forms of the model's parts: the same formulas, computed by kernels on a GPU.

Each class here replaces the standard class that it is derived from; `accelerate` decides where.

- `FusedAttention` (§3.2): one product projects queries, keys and values; Equation 1 is one kernel.
- `FusedResidual` (§3.1, §5.4): dropout, sum and norm are one kernel.
- `FusedFeedForward` (§3.3): the gradient of the activation is computed where its product ends.
- `FusedTransformer` (§3.4, §3.5): embedding, sinusoids and dropout are one kernel.

Between two products a GPU mostly waits for memory: every separate operation reads and writes the
whole tensor again. A fused kernel reads and writes it once.

A fused form does not call the `forward` of the modules inside it, so `accelerate` uses it only
where those are standard as well. It calls its base class by name, not by `super()`: if a user has
stored a bound method of a fused form, that method still works after the module got its standard
class back.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from transduce.kernels.embedding import Embedded
from transduce.kernels.feed_forward import GatedNetwork, ReluNetwork, takes_own_product
from transduce.kernels.products import project
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
    """Multi-head attention with one product for queries, keys and values.

    Attention itself is computed in tiles (`varlen`) where rows are long enough.
    """

    replaces = MultiHeadAttention
    label = "attention"

    def forward(
        self,
        queries_from: Tensor,
        keys_from: Tensor,
        mask: Mask,
        rotation: Rotation | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """(B, Q, d_model), (B, K, d_model) -> (B, Q, d_model).

        A cache with a method `attend`, such as that of `engines.cuda`, computes the attention
        itself.
        """
        attend = getattr(cache, "attend", None)
        if attend is not None:
            return self.w_o(attend(self, queries_from, rotation))
        return MultiHeadAttention.forward(self, queries_from, keys_from, mask, rotation, cache)

    def queries(self, queries_from: Tensor, rotation: Rotation | None) -> Tensor:
        """Project and rotate the queries:  (B, Q, d_model) -> (B, h, Q, d_k)."""
        if not runs_on(queries_from):
            return MultiHeadAttention.queries(self, queries_from, rotation)
        angles = _angles_of_rows(rotation, queries_from)
        (q,) = project(queries_from, self.w_q, rotation=angles, rotated=1)
        return self.heads(q)

    def queries_keys_values(
        self, queries_from: Tensor, keys_from: Tensor, rotation: Rotation | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Project by one product, or by two if the keys come from another tensor.

        (B, Q, d_model), (B, K, d_model) -> (B, h, Q, d_k), (B, h, K, d_k), (B, h, K, d_v).
        """
        if not runs_on(queries_from):
            return MultiHeadAttention.queries_keys_values(self, queries_from, keys_from, rotation)
        angles = _angles_of_rows(rotation, keys_from)
        if queries_from is keys_from:
            linears = (self.w_q, self.w_k, self.w_v)
            q, k, v = project(keys_from, *linears, rotation=angles, rotated=2)
            return self.heads(q), self.heads(k), self.heads(v)
        q = self.queries(queries_from, rotation)
        k, v = project(keys_from, self.w_k, self.w_v, rotation=angles, rotated=1)
        return q, self.heads(k), self.heads(v)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        """Apply Equation 1, in tiles where that is possible and faster.

        (B, h, Q, d_k), (B, h, K, d_k), (B, h, K, d_v) -> (B, h, Q, d_v).
        """
        if runs_on(q) and takes(self, mask, q.size(2)):
            return varlen_attention(q, k, v, mask)
        return MultiHeadAttention.attend(self, q, k, v, mask)

    def join(self, heads: Tensor) -> Tensor:
        """Join the heads:  (B, h, Q, d_v) -> (B, Q, d_model)."""
        if not runs_on(heads):
            return MultiHeadAttention.join(self, heads)
        joined = heads.transpose(1, 2).flatten(2)  # (B, Q, h * d_v)
        return project(joined, self.w_o)[0]


def _angles_of_rows(rotation: Rotation | None, x: Tensor) -> Rotation | None:
    """Repeat cosines and sines for each of the n = B * T rows of a product.

    (B or 1, 1, T, d_k / 2) -> (n, d_k / 2), both.
    """
    if rotation is None:
        return None
    cosines, sines = rotation
    B = x.size(0)
    return cosines.expand(B, 1, -1, -1).flatten(0, 2), sines.expand(B, 1, -1, -1).flatten(0, 2)


class Handover:
    """A way to pass a second tensor from one residual connection to the next (see `AddNorm`).

    A residual connection returns one tensor, but its kernel can compute two. In post-norm order the
    second is the same result again, for the next sum: the result is then used once by the next
    sub-layer and once by the next sum, and the kernel of the backward pass adds the two gradients,
    where autograd would launch another kernel. In pre-norm order the second is the next norm of the
    result, so that sum and norm are one pass over memory.

    The model in between does not know of it: the next residual connection takes the second tensor
    only if its input is the very tensor that the previous one returned, unchanged.
    """

    def __init__(self, norm: Any = None) -> None:
        self.norm = norm  # the next norm, which pre-norm order needs
        self._given: tuple[Tensor, int, Tensor] | None = None  # result, its version, second tensor

    def give(self, result: Tensor, second: Tensor) -> None:
        """Keep the second tensor for the module that gets this result as its input."""
        self._given = (result, _version(result), second)

    def take(self, x: Tensor) -> Tensor | None:
        """Return the tensor that was given with x, if it can be used.

        It cannot if x is another tensor or was changed in place, or if the user looks at the
        gradient of x, which would lack the part that flows through the second tensor.
        """
        given = self._given
        self._given = None
        if given is None:
            return None
        result, version, second = given
        if result is not x or version != _version(x):
            return None
        gradient_is_watched = x._backward_hooks or x.retains_grad
        return None if gradient_is_watched else second

    def __deepcopy__(self, memo: dict[int, Any]) -> Handover:
        """Copy the connection to the next norm, but no tensors that are on their way."""
        new = Handover()
        memo[id(self)] = new
        new.norm = copy.deepcopy(self.norm, memo)
        return new


def _version(x: Tensor) -> int:
    """Return a number that grows with every change of x in place, where torch counts them."""
    return 0 if x.is_inference() else x._version


class FusedResidual(Residual):
    """A residual connection with sum, dropout and norm in one kernel.

    In pre-norm order the norm in that kernel is the one of the next residual connection.
    """

    replaces = Residual
    label = "residual"
    from_previous: Handover
    to_next: Handover | None

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """(B, T, d_model) -> (B, T, d_model)."""
        # A user may call this method after `restore` has given the residual its own class back.
        if not runs_on(x) or not isinstance(self, FusedResidual):
            return Residual.forward(self, x, sublayer)
        if self.norm_order == "post":
            return self._post_norm(x, sublayer)
        return self._pre_norm(x, sublayer)

    def _post_norm(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """LayerNorm(x + Dropout(Sublayer(x)))."""
        x_again = self.from_previous.take(x)
        if x_again is None:
            x_again = x
        output = sublayer(x)
        result, result_again = add_norm(x_again, output, self.norm, self._p_drop, post=True)
        if self.to_next is not None:
            self.to_next.give(result, result_again)
        return result

    def _pre_norm(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """x + Dropout(Sublayer(LayerNorm(x)))."""
        normed = self.from_previous.take(x)
        if normed is None:
            x, normed = add_norm(x, None, self.norm, 0.0, post=False)
        output = sublayer(normed)
        if self.to_next is None:
            return x + self.dropout(output)
        next_norm = self.to_next.norm
        result, next_normed = add_norm(x, output, next_norm, self._p_drop, post=False)
        self.to_next.give(result, next_normed)
        return result

    @property
    def _p_drop(self) -> float:
        return self.dropout.p if self.training else 0.0


class _FusedNorm:
    """The norm at the end of a pre-norm stack, which the last residual may have computed."""

    from_previous: Handover

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, d_model) -> (B, T, d_model)."""
        # As in `FusedResidual`, the class of `self` may be the plain one again.
        if not runs_on(x) or not isinstance(self, _FusedNorm):
            plain: Any = nn.LayerNorm if isinstance(self, nn.LayerNorm) else nn.RMSNorm
            return plain.forward(self, x)
        normed = self.from_previous.take(x)
        if normed is None:
            _, normed = add_norm(x, None, self, 0.0, post=False)
        return normed


class FusedLayerNorm(_FusedNorm, nn.LayerNorm):
    """LayerNorm by a kernel."""

    replaces = nn.LayerNorm


class FusedRMSNorm(_FusedNorm, nn.RMSNorm):
    """RMSNorm by a kernel."""

    replaces = nn.RMSNorm


class FusedFeedForward(FeedForward):
    """The feed-forward network with its activation fused into the products where possible."""

    replaces = FeedForward
    label = "feed-forward"

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, d_model) -> (B, T, d_model)."""
        drops = self.training and self.dropout.p > 0
        if not runs_on(x) or drops:
            return FeedForward.forward(self, x)
        inner = (self.w_1.weight, self.w_1.bias)
        outer = (self.w_2.weight, self.w_2.bias)
        if self.w_gate is not None:
            gate = (self.w_gate.weight, self.w_gate.bias)
            return GatedNetwork.apply(x, *inner, *gate, *outer, self.kind == "swiglu")
        if self.kind == "relu" and takes_own_product(self.w_1.weight):
            return ReluNetwork.apply(x, *inner, *outer)

        # Two products with the gradients of `Product`, and the activation as torch computes it.
        (hidden,) = project(x, self.w_1)
        hidden = self.activation(hidden)
        (output,) = project(hidden, self.w_2)
        return output


class FusedTransformer(Transformer):
    """A Transformer with embedding, sinusoids and dropout in one kernel."""

    replaces = Transformer
    label = "embedding"

    def embed(self, tokens: Tokens, embedding: Embedding, positions: Positions) -> Tensor:
        """(B, T) -> (B, T, d_model)."""
        if not runs_on(tokens.ids) or positions.kind == "learned":
            return Transformer.embed(self, tokens, embedding, positions)
        p_drop = self.dropout.p if self.training else 0.0
        return Embedded.apply(
            embedding.weight,
            tokens.ids,
            tokens.positions,
            new_seed(tokens.ids.device, p_drop),
            embedding.scale,
            p_drop,
            positions.kind == "sinusoidal",
        )
