"""The four layer types of Table 1 in their plainest form, from (B, n, d) to (B, n, d)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.model.attention import written_out_attention


class SelfAttention(nn.Module):
    """Equation 1 with queries, keys and values that are the input itself: no projections.

    Table 1 compares what happens between positions; projections cost n d² in every layer type.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(B, n, d) -> (B, n, d)."""
        return written_out_attention(x, x, x)


class RestrictedAttention(nn.Module):
    """Self-attention in a neighbourhood of r positions (§4), computed in O(r n d).

    Blocks of r/2 queries meet the keys of their own block and of the two beside it.
    """

    def __init__(self, r: int) -> None:
        super().__init__()
        self.reach = max(1, r // 2)

    def forward(self, x: Tensor) -> Tensor:
        """(B, n, d) -> (B, n, d)."""
        n = x.size(1)
        w = self.reach
        blocks = -(-n // w)
        queries = F.pad(x, (0, 0, 0, blocks * w - n)).unflatten(1, (blocks, w))  # (B, n/w, w, d)
        padded = F.pad(x, (0, 0, w, blocks * w - n + w))
        keys = padded.unfold(1, 3 * w, w).transpose(-2, -1)  # (B, n/w, 3w, d)
        allowed = self._allowed(n, blocks, x.device)
        scores = queries @ keys.transpose(-2, -1) / math.sqrt(x.size(-1))  # (B, n/w, w, 3w)
        weights = scores.masked_fill(~allowed, torch.finfo(x.dtype).min).softmax(dim=-1)
        return (weights @ keys).flatten(1, 2)[:, :n]

    def _allowed(self, n: int, blocks: int, device: torch.device) -> Tensor:
        """Return which key is near each query, and inside the sequence: (n/w, w, 3w)."""
        w = self.reach
        query = torch.arange(blocks * w, device=device).view(blocks, w, 1)
        first_key = (torch.arange(blocks, device=device) - 1).view(blocks, 1, 1) * w
        key = first_key + torch.arange(3 * w, device=device)
        return ((query - key).abs() <= w) & (key >= 0) & (key < n)


class Recurrent(nn.Module):
    """h_t = tanh(x_t W + h_{t-1} U): each step waits for the one before."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.empty(d, d))
        self.u = nn.Parameter(torch.empty(d, d))
        for weight in (self.w, self.u):
            if not weight.is_meta:
                nn.init.orthogonal_(weight)

    def forward(self, x: Tensor, memory: int | None = None) -> Tensor:
        """(B, n, d) -> (B, n, d); with `memory`, a state is forgotten after that many steps."""
        if memory is not None:
            return self._forgetful(x, memory)
        state = x.new_zeros(x.size(0), x.size(2))
        states = []
        for step in (x @ self.w.T).unbind(1):
            state = torch.tanh(step + state @ self.u.T)
            states.append(state)
        return torch.stack(states, dim=1)

    def fused(self, x: Tensor) -> Tensor:
        """Compute the same by torch's own loop, which is fast."""
        state = x.new_zeros(1, x.size(0), x.size(2))
        outputs: Tensor = torch.rnn_tanh(
            x, state, [self.w, self.u], False, 1, 0.0, False, False, True
        )[0]
        return outputs

    def _forgetful(self, x: Tensor, memory: int) -> Tensor:
        """Compute every output from its last `memory` inputs alone."""
        inputs = F.pad(x @ self.w.T, (0, 0, memory - 1, 0))
        windows = inputs.unfold(1, memory, 1)  # (B, n, d, memory)
        state = torch.zeros_like(x)
        for step in windows.unbind(-1):
            state = torch.tanh(step + state @ self.u.T)
        return state


class Convolutional(nn.Module):
    """A convolution over k positions up to its own, as in a decoder.

    In a stack, the dilations 1, k, k², ... let k^depth positions reach an output.
    """

    def __init__(self, d: int, k: int, dilation: int = 1) -> None:
        super().__init__()
        self.before = dilation * (k - 1)
        self.conv = nn.Conv1d(d, d, k, dilation=dilation, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, n, d) -> (B, n, d)."""
        inputs = F.pad(x.transpose(1, 2), (self.before, 0))  # (B, d, n + before)
        outputs: Tensor = self.conv(inputs).transpose(1, 2)
        return outputs
