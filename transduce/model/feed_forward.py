"""§3.3: the position-wise feed-forward network, max(0, xW_1 + b_1)W_2 + b_2, and gated variants."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from transduce.config import ModelConfig

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
        self.kind = config.activation
        self.activation = ACTIVATIONS[config.activation]
        self.dropout = nn.Dropout(config.p_drop_activation)
        self.w_1 = nn.Linear(config.d_model, config.d_ff)
        self.w_2 = nn.Linear(config.d_ff, config.d_model)
        gated = config.activation.endswith("glu")
        self.w_gate = nn.Linear(config.d_model, config.d_ff) if gated else None

    def forward(self, x: Tensor) -> Tensor:
        """Compute activation(xW_1 + b_1)W_2 + b_2; a gate xW_g + b_g multiplies the inner part."""
        inner = self.activation(self.w_1(x))  # (B, T, d_ff)
        if self.w_gate is not None:
            inner = inner * self.w_gate(x)
        return self.w_2(self.dropout(inner))

    def extra_repr(self) -> str:
        """Show the activation in `repr`."""
        return self.kind
