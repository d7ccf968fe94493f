"""The lines of `model/` that compute each step of the walkthrough, read from the source."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transduce.model
from transduce.config import ModelConfig
from transduce.model.attention import Mask, attention_weights, written_out_attention
from transduce.model.embedding import Embedding
from transduce.model.feed_forward import FeedForward
from transduce.model.layers import DecoderLayer, Residual
from transduce.model.multi_head import MultiHeadAttention
from transduce.model.positions import Positions, rotate, sinusoids
from transduce.model.tokens import Tokens
from transduce.model.transformer import Transformer

PACKAGE = Path(transduce.model.__file__).parent.parent


@dataclass(frozen=True)
class Code:
    """A function of the model, and which of its lines compute a step."""

    file: str  # below the package
    function: str
    first_line: int  # its number in the file
    lines: str
    highlight: tuple[int, ...]  # the lines that matter, from 0


def code_of(step: str, config: ModelConfig) -> Code:
    """Return the function that computes a step in a model with these settings."""
    function, markers = _functions(config)[step]
    source, first_line = inspect.getsourcelines(function)
    path = inspect.getsourcefile(function)
    assert path is not None

    highlight = []
    for marker in markers:
        found = [number for number, line in enumerate(source) if marker in line]
        assert found, f"the source of {step} has no line with {marker!r}"
        highlight.append(found[-1])
    return Code(
        file=Path(path).relative_to(PACKAGE).as_posix(),
        function=function.__qualname__,
        first_line=first_line,
        lines=textwrap.dedent("".join(source)).rstrip(),
        highlight=tuple(sorted(highlight)),
    )


def _functions(config: ModelConfig) -> dict[str, tuple[Callable[..., Any], tuple[str, ...]]]:
    """Return the function of each step, and words of the lines that matter most in it."""
    positions: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
        "sinusoidal": (sinusoids, ("angles =", "torch.stack")),
        "learned": (Positions.forward, ("F.embedding",)),
        "rotary": (rotate, ("turned =",)),
        "none": (Positions.forward, ("return x\n",)),
    }
    gated = config.activation.endswith("glu")
    product = "self.output(x)" if config.sharing == "none" else "F.linear"
    residual = "self.dropout(sublayer(self.norm(x)))"
    if config.norm_order == "post":
        residual = "self.norm(x + self.dropout(sublayer(x)))"
    return {
        "tokens": (Tokens.rows, ("positions = torch.arange", "return Tokens")),
        "embedding": (Embedding.forward, ("F.embedding",)),
        "position": positions[config.positions],
        "queries-keys-values": (MultiHeadAttention.queries_keys_values, ("q =", "k =", "v =")),
        "scores": (attention_weights, ("q @ k.transpose",)),
        "scale": (attention_weights, ("math.sqrt",)),
        "softmax": (attention_weights, ("scores.softmax",)),
        "weighted-sum": (written_out_attention, ("@ v",)),
        "heads": (MultiHeadAttention.join, ("self.w_o",)),
        "residual-norm": (Residual.forward, (residual,)),
        "feed-forward": (
            FeedForward.forward,
            ("self.activation", "self.w_2", *(("self.w_gate(x)",) if gated else ())),
        ),
        "mask": (vars(Mask)["allowed"].func, ("k_positions <= q_positions",)),
        "cross-attention": (DecoderLayer.forward, ("self.cross_attention(",)),
        "distribution": (Transformer.logits, (product,)),
        "next-token": (Transformer.decode, ("self.decode_hidden", "self.logits")),
    }
