"""The formulas of the walkthrough, as this model computes them: the paper's, or its variation's."""

# ruff: noqa: RUF001
from __future__ import annotations

from dataclasses import dataclass

from transduce.config import ModelConfig
from transduce.inspection.walkthrough.mathml import (
    Markup,
    call,
    formula,
    fraction,
    root,
    row,
    sub,
    subsup,
    sup,
    words,
)

Parts = tuple[str | Markup, ...]

D_MODEL = sub("d", words("model"))
SCALED_SCORES = fraction(row("Q", sup("K", "T")), root(sub("d", "k")))
ACTIVATION_NAMES = {
    "relu": "ReLU",
    "gelu": "GELU",
    "swish": "Swish",
    "swiglu": "Swish",
    "geglu": "GELU",
}


@dataclass(frozen=True)
class Scene:
    """What texts and formulas depend on: the model, the sentence, and the layer and head shown."""

    config: ModelConfig
    source_tokens: int
    layer: int  # of the encoder, from 1
    decoder_layer: int  # from 1
    head: int  # from 1


def tokens(scene: Scene) -> str:
    """Return the sequence of token numbers."""
    return formula(
        (words("text"), "→", "(", sub("t", "1"), ",", "…", ",", sub("t", "S"), ")"),
        (sub("t", "i"), "∈", "{", "0", ",", "…", ",", "V", "−", "1", "}"),
    )


def embedding(scene: Scene) -> str:
    """Return the lookup of vectors, §3.4."""
    return formula((sub("e", "i"), "=", root(D_MODEL), sub("E", sub("t", "i"))))


def position(scene: Scene) -> str:
    """Return how a position enters the model, §3.5."""
    if scene.config.positions == "sinusoidal":
        angle = fraction("pos", sup("10000", row("2", "i", "/", D_MODEL)))
        return formula(
            (sub("PE", row("pos", ",", "2", "i")), "=", call("sin", angle)),
            (sub("PE", row("pos", ",", "2", "i", "+", "1")), "=", call("cos", angle)),
            (sub("x", "pos"), "=", sub("e", "pos"), "+", sub("PE", "pos")),
        )
    if scene.config.positions == "learned":
        return formula((sub("x", "pos"), "=", sub("e", "pos"), "+", sub("P", "pos")))
    if scene.config.positions == "rotary":
        power = sup("10000", row("−", "2", "i", "/", sub("d", "k")))
        return formula(
            (sub("θ", row("pos", ",", "i")), "=", "pos", "·", power),
            (sup("q", "′"), "=", call("R", sub("θ", "pos")), "q"),
            (sup("k", "′"), "=", call("R", sub("θ", "pos")), "k"),
        )
    return formula((sub("x", "pos"), "=", sub("e", "pos")))


def queries_keys_values(scene: Scene) -> str:
    """Return the three projections of a head, §3.2.2."""
    return formula(*(_projection(scene, name) for name in "QKV"))


def _projection(scene: Scene, name: str) -> Parts:
    product: Parts = ("X", subsup("W", str(scene.head), name))
    if scene.config.attention_bias:
        product = (*product, "+", subsup("b", str(scene.head), name))
    if scene.config.positions == "rotary" and name != "V":
        product = (call("R", row(*product)),)
    return (name, "=", *product)


def scores(scene: Scene) -> str:
    """Return a dot product, §3.2.1."""
    return formula((sub("s", row("i", "j")), "=", sub("q", "i"), "·", sub("k", "j")))


def scale(scene: Scene) -> str:
    """Return the scaled scores, §3.2.1."""
    return formula((sup("S", "′"), "=", SCALED_SCORES))


def softmax(scene: Scene) -> str:
    """Return one attention weight, §3.2.1."""
    exponential = sup("e", subsup("s", row("i", "j"), "′"))
    total = row(sub("∑", "m"), sup("e", subsup("s", row("i", "m"), "′")))
    return formula((sub("a", row("i", "j")), "=", fraction(exponential, total)))


def weighted_sum(scene: Scene) -> str:
    """Return Equation 1, §3.2.1."""
    return formula((sub("head", str(scene.head)), "=", call("softmax", SCALED_SCORES), "V"))


def heads(scene: Scene) -> str:
    """Return multi-head attention, §3.2.2."""
    joined = call("Concat", sub("head", "1"), "…", sub("head", str(scene.config.h)))
    product: Parts = (joined, sup("W", "O"))
    if scene.config.attention_bias:
        product = (*product, "+", sup("b", "O"))
    return formula((call("MultiHead", "X"), "=", *product))


def residual_norm(scene: Scene) -> str:
    """Return the residual connection, §3.1, and the definition of its norm."""
    name = "LayerNorm" if scene.config.norm == "layer" else "RMSNorm"
    if scene.config.norm_order == "post":
        connection = call(name, row("x", "+", call("Attention", "x")))
    else:
        connection = row("x", "+", call("Attention", call(name, "x")))
    if scene.config.norm == "layer":
        spread = root(row(sup("σ", "2"), "+", "ε"))
        definition: Parts = (fraction(row("y", "−", "μ"), spread), "⊙", "γ", "+", "β")
    else:
        size = root(row(call("mean", sup("y", "2")), "+", "ε"))
        definition = (fraction("y", size), "⊙", "γ")
    return formula(connection, (call(name, "y"), "=", *definition))


def feed_forward(scene: Scene) -> str:
    """Return the feed-forward network, §3.3."""
    inner = row("x", sub("W", "1"), "+", sub("b", "1"))
    name = ACTIVATION_NAMES[scene.config.activation]
    end = (sub("W", "2"), "+", sub("b", "2"))
    if scene.config.activation == "relu":
        return formula((call("FFN", "x"), "=", call("max", "0", inner), *end))
    if scene.config.activation.endswith("glu"):
        gate = row("(", "x", sub("W", "g"), "+", sub("b", "g"), ")")
        gated = ("h", "=", call(name, inner), "⊙", gate)
        return formula(gated, (call("FFN", "x"), "=", "h", *end))
    return formula((call("FFN", "x"), "=", call(name, inner), *end))


def mask(scene: Scene) -> str:
    """Return the causal mask, §3.2.3."""
    condition = (words("\u00a0if\u00a0"), "j", "≤", "i", words(", else\u00a0"))
    return formula(
        (sub("M", row("i", "j")), "=", "0", *condition, "−∞"),
        (call("softmax", row(SCALED_SCORES, "+", "M")), "V"),
    )


def cross_attention(scene: Scene) -> str:
    """Return the attention of the decoder to the encoder's output, §3.2.3."""
    memory = call("Encoder", "X")

    def bias(name: str) -> Parts:
        return ("+", sup("b", name)) if scene.config.attention_bias else ()

    return formula(
        ("Q", "=", "Y", sup("W", "Q"), *bias("Q")),
        ("K", "=", memory, sup("W", "K"), *bias("K")),
        ("V", "=", memory, sup("W", "V"), *bias("V")),
        (call("softmax", SCALED_SCORES), "V"),
    )


def distribution(scene: Scene) -> str:
    """Return the probabilities of the next token, §3.4."""
    weights = sub("W", words("out")) if scene.config.sharing == "none" else sup("E", "T")
    product: Parts = ("y", weights)
    if scene.config.output_bias:
        product = (*product, "+", "b")
    condition = row("(", sub("y", "t"), "|", sub("y", row("<", "t")), ",", "x", ")")
    return formula(("P", condition, "=", call("softmax", fraction(row(*product), "τ"))))


def next_token(scene: Scene) -> str:
    """Return the probability of a translation, a product over its tokens."""
    condition = row("(", sub("y", "t"), "|", sub("y", row("<", "t")), ",", "x", ")")
    return formula(("P", "(", "y", "|", "x", ")", "=", sub("∏", "t"), "P", condition))
