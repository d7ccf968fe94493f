"""What a researcher changes in a model: each must be seen in training, in validation and in every search."""

import torch
from torch import nn
from torch.nn.utils import parametrize

from transduce.config import ModelConfig
from transduce.model import Tokens, Transformer
from transduce.model.layers import Residual
from transduce.model.multi_head import MultiHeadAttention
from transduce.model.positions import Positions

V = 61
CONFIG = {
    "vocab_size": V,
    "N": 1,
    "N_decoder": 2,
    "d_model": 32,
    "d_ff": 48,
    "h": 2,
    "d_k": 16,
    "d_v": 16,
    "p_drop": 0.0,
}
MODERN = {"norm_order": "pre", "norm": "rms", "positions": "rotary", "activation": "swiglu"}


def build(seed=0, **changes):
    """A small model of random weights whose decisions are clear."""
    torch.manual_seed(seed)
    model = Transformer(ModelConfig(**{**CONFIG, "sharing": "none", **changes})).eval()
    model.output.weight.data *= 3
    return model


class Gated(MultiHeadAttention):
    """Attention times a gate."""

    def forward(self, *args, **kwargs):
        return super().forward(*args, **kwargs) * 0.25


class Blurred(MultiHeadAttention):
    """Attention that spreads half of its weight evenly over all keys."""

    def attend(self, q, k, v, mask):
        return 0.5 * super().attend(q, k, v, mask) + 0.5 * super().attend(q * 0, k, v, mask)


class LoRA(nn.Module):
    """A linear layer with a low-rank addition."""

    def __init__(self, linear):
        super().__init__()
        self.linear = linear
        torch.manual_seed(1)
        device = linear.weight.device
        self.a = nn.Linear(linear.in_features, 2, bias=False).to(device)
        self.b = nn.Linear(2, linear.out_features, bias=False).to(device)

    def forward(self, x):
        return self.linear(x) + 9 * self.b(self.a(x))


class Halved(nn.Module):
    """A custom norm."""

    def __init__(self, norm):
        super().__init__()
        self.norm = norm

    def forward(self, x):
        return self.norm(x) * 0.5


class Backwards(Positions):
    """Positions that count down."""

    def forward(self, x, positions):
        return super().forward(x, 50 - positions) + 0.3 * (positions % 3).unsqueeze(-1)


class Swapped(nn.Linear):
    """A subclass of Linear."""

    def forward(self, x):
        return super().forward(x).flip(-1)


class Sine(nn.Module):
    """A weight parametrized by another."""

    def forward(self, weight):
        return weight.sin() * 2


class FirstHalf(Residual):
    """A residual connection that adds only half."""

    def forward(self, x, sublayer):
        return super().forward(x, lambda y: 0.5 * sublayer(y))


def as_type(module, kind):
    module.__class__ = kind


def each(model, kind):
    return [module for module in model.modules() if isinstance(module, kind)]


def wrapped(model, names, wrap):
    for layer in (*model.encoder, *model.decoder):
        for name in names:
            *path, last = name.split(".")
            parent = layer
            for part in path:
                parent = getattr(parent, part)
            setattr(parent, last, wrap(getattr(parent, last)))


def scaled_output(_, __, output):
    return output * 0.25 + output.flip(-1)  # a norm after it would undo a factor


def own_method(model):
    """A method that is set on one module alone."""
    for layer in model.encoder:
        plain = layer.self_attention.attend
        layer.self_attention.attend = lambda q, k, v, mask, plain=plain: 0.25 * plain(q, k, v, mask)


CHANGES = {
    "subclassed attention": lambda model: [
        as_type(part, Gated) for part in each(model, MultiHeadAttention)
    ],
    "own attend": lambda model: [
        as_type(part, Blurred) for part in each(model, MultiHeadAttention)
    ],
    "wrapped linear": lambda model: wrapped(
        model, ["self_attention.w_q", "self_attention.w_v"], LoRA
    ),
    "wrapped linear of the decoder": lambda model: wrapped(model, ["feed_forward.w_2"], LoRA),
    "wrapped output": lambda model: setattr(model, "output", LoRA(model.output)),
    "subclassed linear": lambda model: [
        as_type(part.w_o, Swapped) for part in each(model, MultiHeadAttention)
    ],
    "own norm": lambda model: wrapped(model, ["feed_forward_residual.norm"], Halved),
    "own positions": lambda model: [
        as_type(part, Backwards) for part in (model.source_positions, model.target_positions)
    ],
    "own residual": lambda model: [as_type(part, FirstHalf) for part in each(model, Residual)],
    "replaced feed-forward": lambda model: wrapped(model, ["feed_forward"], lambda _: nn.Tanh()),
    "identity in place of a linear layer": lambda model: [
        setattr(layer.self_attention, "w_q", nn.Identity()) for layer in model.decoder
    ],
    "own activation": lambda model: [
        setattr(layer.feed_forward, "activation", torch.sin) for layer in model.decoder
    ],
    "own method": own_method,
    "own method of a linear layer": lambda model: [
        setattr(
            layer.self_attention.w_q,
            "forward",
            lambda x, inner=layer.self_attention.w_q.forward: inner(x).flip(-1),
        )
        for layer in model.decoder
    ],
    "hook on a joined linear layer": lambda model: [
        layer.self_attention.w_v.register_forward_hook(scaled_output) for layer in model.decoder
    ],
    "parametrized": lambda model: [
        parametrize.register_parametrization(layer.self_attention.w_k, "weight", Sine())
        for layer in model.encoder
    ],
    "hook on attention": lambda model: [
        layer.self_attention.register_forward_hook(scaled_output) for layer in model.decoder
    ],
    "hook on a linear layer": lambda model: [
        layer.cross_attention.w_q.register_forward_hook(scaled_output) for layer in model.decoder
    ],
    "hook on a norm": lambda model: [
        layer.feed_forward_residual.norm.register_forward_hook(scaled_output)
        for layer in model.encoder
    ],
    "hook on a layer": lambda model: [
        layer.register_forward_hook(scaled_output) for layer in model.encoder
    ],
    "hook on an embedding": lambda model: model.target_embedding.register_forward_hook(
        scaled_output
    ),
    "hook before feed-forward": lambda model: [
        layer.feed_forward.register_forward_pre_hook(lambda _, inputs: (inputs[0] * 0.25,))
        for layer in model.decoder
    ],
}

SOURCES = [[5, 6, 7, 8, 9, 10, 0], [9, 3, 4, 8, 0], [*range(20, 34), 0]]
TARGETS = [[15, 4, 9, 31, 7, 0], [*range(40, 52), 0], [33, 34, 0]]


def batch(width=32):
    """Source and target, packed into one row."""
    return Tokens.packed([SOURCES], V - 1, width), Tokens.packed([TARGETS], V - 1, width)
