"""§3.3: the position-wise feed-forward network, max(0, xW_1 + b_1)W_2 + b_2, and its gated variants."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from transduce.config import ModelConfig
from transduce.model.dropout import Dropout
from transduce.model.kernels import product, relu_network

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "swish": F.silu,
    "swiglu": F.silu,
    "geglu": F.gelu,
}


class FeedForward(nn.Module):
    """(B, T, d_model) -> (B, T, d_ff) -> (B, T, d_model), the same at every position."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[config.activation]
        self.dropout = Dropout(config.p_drop_activation)
        self.w_1 = nn.Linear(config.d_model, config.d_ff)
        self.w_2 = nn.Linear(config.d_ff, config.d_model)
        gated = config.activation.endswith("glu")
        self.w_gate = nn.Linear(config.d_model, config.d_ff) if gated else None

    def forward(self, x: Tensor) -> Tensor:
        """activation(xW_1 + b_1)W_2 + b_2, the inner part times xW_gate + b_gate where there is a gate."""
        if self.activation is F.relu and not (self.training and self.dropout.p > 0):
            return relu_network(x, self.w_1, self.w_2)
        inner = self.activation(product(x, self.w_1)[0])
        if self.w_gate is not None:
            inner = inner * self.w_gate(x)
        return product(self.dropout(inner), self.w_2)[0]
