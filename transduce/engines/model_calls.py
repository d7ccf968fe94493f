"""How a model is called, be it a user's own: with whole targets, or token by token."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.engines.buffers import buffered
from transduce.errors import ConfigError, InputError
from transduce.model import State, Tokens, Transformer


def refuse_other_protocol(model: Any) -> None:
    """Raise an InputError unless the model has `config`, `encode` and `decode`."""
    missing = [name for name in ("encode", "decode", "config") if not hasattr(model, name)]
    if missing or not isinstance(model, nn.Module):
        found = f"has no {missing[0]}" if missing else "is not a torch.nn.Module"
        raise InputError(
            f"the model {type(model).__name__} {found}; expected a module with config (a "
            "ModelConfig), encode(source) -> state and decode(target, state) -> (logits, state), "
            "as Transformer has"
        )


def teacher_forced(model: Any, source: Tokens, inputs: Tokens) -> Tensor:
    """Return the logits of every target position, (B, T, V).

    A model with a `forward` of its own is called; otherwise its `encode` and `decode` are.
    """
    if type(model).forward is not nn.Module.forward:
        logits: Tensor = model(source, inputs)
    else:
        logits = model.decode(inputs, model.encode(source))[0]

    # A wrong shape would otherwise surface as a confusing error inside the loss.
    expected = (*inputs.ids.shape, model.config.vocab_size)
    if logits.shape != expected:
        raise ConfigError(
            f"the model {type(model).__name__} returned logits of shape {tuple(logits.shape)}; "
            f"expected {expected}: rows, tokens, vocabulary"
        )
    return logits


def start(model: Any, source: Tokens) -> Any:
    """Return the state before the first token."""
    state = model.encode(source)
    return buffered(state) if type(state) is State else state


def next_token(model: Any, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
    """Return the log-probabilities of the next token:  (R,) -> (R, V)."""
    logits, state = model.decode(tokens[:, None], state)
    expected = (tokens.size(0), 1, model.config.vocab_size)
    if logits.shape != expected:
        raise InputError(
            f"{type(model).__name__}.decode returned logits of shape {tuple(logits.shape)}; "
            f"expected {expected}: rows, tokens, vocabulary"
        )
    # `log_probabilities` overwrites the logits, which a user's own model may still need.
    logits = logits[:, 0] if isinstance(model, Transformer) else logits[:, 0].clone()
    return log_probabilities(logits), state


def log_probabilities(logits: Tensor) -> Tensor:
    """Return log-probabilities over all tokens but padding, the last:  (R, V) -> (R, V).

    The logits are overwritten.
    """
    logits[:, -1] = -torch.inf
    return F.log_softmax(logits.float(), dim=-1)
