"""The words of the walkthrough, for a reader who meets the Transformer for the first time.

Each text fits the model at hand: where it departs from the paper, the text says what it does.
"""

# ruff: noqa: RUF001
from __future__ import annotations

import math

from transduce.inspection.walkthrough.formulas import ACTIVATION_NAMES, Scene

NO_ORDER = (
    "Attention does not know the order of the tokens: shuffle them, and every token still gets "
    "the same result. "
)


def tokens(scene: Scene) -> str:
    """Explain how text becomes numbers."""
    vocabulary = scene.config.source_vocab_size or scene.config.vocab_size
    return (
        "A network computes with numbers, not with letters. So the sentence is cut into pieces "
        f"from a vocabulary of {vocabulary:,}, which was learned from the training text: a "
        "frequent word is one piece, a rare word is several. Each piece has a number. These "
        f"{scene.source_tokens} numbers, the last for the end of the sentence, are all that the "
        "model sees."
    )


def embedding(scene: Scene) -> str:
    """Explain the lookup of vectors."""
    config = scene.config
    explanation = (
        f"Each token owns one row of a matrix E: {config.d_model} numbers that were learned in "
        f"training. Looking up the rows turns {scene.source_tokens} tokens into "
        f"{scene.source_tokens} vectors. They are multiplied by √d_model = "
        f"{math.sqrt(config.d_model):.2f}"
    )
    if config.adds_positions:
        explanation += "; otherwise the positions, which come next, would drown them."
    else:
        explanation += ", as in the paper, which adds positions to them; this model does not."
    if config.sharing == "three-way":
        explanation += " The decoder and the last step use the same matrix."
    return explanation


def position(scene: Scene) -> str:
    """Explain how the model learns the order of the tokens."""
    if scene.config.positions == "sinusoidal":
        return NO_ORDER + (
            "So each position has a vector of sines and cosines, which is added to the embedding. "
            "The first columns are fast waves that tell neighbours apart; the last are so slow "
            "that they hardly change within a sentence."
        )
    if scene.config.positions == "learned":
        return NO_ORDER + (
            "So each position has a vector, which is added to the embedding. This model has "
            f"learned a table of {scene.config.max_positions:,} such vectors; the paper computes "
            "them from sines and cosines, and found both nearly equal (Table 3, row E)."
        )
    if scene.config.positions == "rotary":
        return NO_ORDER + (
            "The paper adds sines and cosines to the embedding. This model adds nothing: its "
            "self-attention rotates each query and key by an angle that grows with the position "
            "(Su et al., 2021). The product of a query and a key then depends on their distance "
            "alone."
        )
    return NO_ORDER + (
        "The paper adds sines and cosines to the embedding. This model has no positions at all: "
        "only the mask of the decoder tells it anything about the order."
    )


def queries_keys_values(scene: Scene) -> str:
    """Explain the three projections of a head."""
    config = scene.config
    explanation = (
        "Three learned matrices make three vectors of each token: a query (what it looks for), a "
        "key (what it can be found by) and a value (what it passes on). "
        f"Head {scene.head} of encoder layer {scene.layer} has its own matrices, from "
        f"{config.d_model} numbers to {config.d_k}."
    )
    if scene.layer > 1:
        explanation += f" Its input X is the output of layer {scene.layer - 1}."
    if config.norm_order == "pre":
        explanation += " In this model X is normalized first (pre-norm)."
    if config.positions == "rotary":
        explanation += " Queries and keys are then rotated by their position."
    return explanation


def scores(scene: Scene) -> str:
    """Explain the dot products."""
    return (
        "How well does a query match a key? Multiply their numbers pair by pair and add up: that "
        "is the dot product. Each row of the table is the query of one token, each column the key "
        "of another; a large number means a good match."
    )


def scale(scene: Scene) -> str:
    """Explain the division by sqrt(d_k)."""
    d_k = scene.config.d_k
    return (
        f"A dot product is a sum of d_k = {d_k} products, so scores grow with d_k. With scores "
        "too large, the next step (the softmax) would choose one token and ignore all others, "
        "and its gradients would vanish. So each score is divided by "
        f"√d_k = {math.sqrt(d_k):.2f}."
    )


def softmax(scene: Scene) -> str:
    """Explain how scores become weights."""
    count = scene.source_tokens
    explanation = (
        "The softmax turns each row of scores into weights: all positive, and 1 in sum. "
        "Exponentials make the largest score stand out. The entropy says how spread out a row is: "
        f"0 when all weight is on one token, ln {count} = {math.log(count):.2f} when all {count} "
        "share equally."
    )
    if scene.config.r is not None:
        explanation += (
            f" This model sees only a neighbourhood of {scene.config.r} tokens (§4); all others "
            "have weight 0."
        )
    return explanation


def weighted_sum(scene: Scene) -> str:
    """Explain the mean of the values."""
    return (
        "Now each token collects what the others pass on: the mean of all values, weighted by its "
        "row of attention. This completes Equation 1, and one head is done. In practice torch "
        "computes it without ever storing the weights; a test compares the two."
    )


def heads(scene: Scene) -> str:
    """Explain how the heads are joined."""
    return (
        f"One head can look for one thing at a time. This layer has {scene.config.h}, each with "
        "matrices of its own, and they look at different places. Their results are put side by "
        f"side, and one more matrix mixes them into {scene.config.d_model} numbers for each token."
    )


def residual_norm(scene: Scene) -> str:
    """Explain the residual connection and the norm."""
    layer_norm = scene.config.norm == "layer"
    name = "LayerNorm" if layer_norm else "RMSNorm"
    effect = f"{'shifted to mean 0 and ' if layer_norm else ''}scaled to a common size by {name}"
    explanation = (
        "The result of attention is added to the vector that went in: each token keeps what it "
        "was and gains what it has read, and gradients have a direct way back through the sum. "
    )
    if scene.config.norm_order == "pre":
        return explanation + (
            "The paper normalizes after the sum. This model normalizes before attention: each "
            f"vector is {effect}, and the sum stays as it is."
        )
    if not layer_norm:
        effect += ", where the paper uses LayerNorm"
    return explanation + f"Then each vector is {effect}."


def feed_forward(scene: Scene) -> str:
    """Explain the feed-forward network."""
    config = scene.config
    name = ACTIVATION_NAMES[config.activation]
    explanation = (
        f"Each token now thinks for itself: {config.d_model} numbers are widened to "
        f"{config.d_ff:,}, passed through an activation, and narrowed to {config.d_model} again. "
    )
    if config.activation == "relu":
        explanation += (
            f"{name} sets all negative numbers to 0, so each token uses only some of the "
            f"{config.d_ff:,} neurons. "
        )
    elif config.activation.endswith("glu"):
        explanation += (
            f"The paper uses ReLU; this model uses {name} times a gate, a second projection that "
            "decides how much of each neuron passes. "
        )
    else:
        explanation += f"The paper uses ReLU; this model uses {name}, which is smooth. "
    return explanation + "A residual connection and a norm belong to it too."


def mask(scene: Scene) -> str:
    """Explain the causal mask of the decoder."""
    return (
        "The decoder writes the translation from left to right, and each position may look only at "
        "what is already written. In training the whole translation is given at once, so without "
        "a mask the model could copy the answer. The mask sets the scores of all later positions "
        f"to −∞, and the softmax makes them 0. Here: decoder layer {scene.decoder_layer}, head "
        f"{scene.head}."
    )


def cross_attention(scene: Scene) -> str:
    """Explain the attention of the decoder to the source."""
    return (
        "Here the two languages meet. The queries come from the decoder, one for each token that "
        "it writes; keys and values come from the output of the encoder. A row shows where the "
        "model reads in the source while it writes that token. The formula is Equation 1 again, "
        f"now in decoder layer {scene.decoder_layer}."
    )


def distribution(scene: Scene) -> str:
    """Explain the output distribution."""
    config = scene.config
    matrix = "an output matrix" if config.sharing == "none" else "the embedding matrix again"
    layers = "one decoder layer" if config.decoder_layers == 1 else "the last decoder layer"
    return (
        f"After {layers}, {matrix} compares each vector with the whole vocabulary: "
        f"{config.vocab_size:,} scores, called logits. A softmax turns them into probabilities of "
        "the next token. A temperature τ below 1 makes the model surer of itself, one above 1 more "
        "adventurous; translation uses τ = 1."
    )


def next_token(scene: Scene) -> str:
    """Explain how the translation grows."""
    return (
        "One token is chosen and appended, and the decoder runs again, until it chooses the end "
        "of the sentence. Taking the most probable token each time is greedy search. Beam search "
        "(§6.1) follows several beginnings at once: now and then it takes a token that is not the "
        "most probable, because the whole sentence is better."
    )
