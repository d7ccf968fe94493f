"""The Transformer (§3): token ids to logits. It knows nothing of text, files, devices or losses."""

from transduce.model.attention import Mask, attention, attention_weights, written_out_attention
from transduce.model.state import State
from transduce.model.tokens import PADDING_SEGMENT, Tokens
from transduce.model.transformer import Transformer

__all__ = [
    "PADDING_SEGMENT",
    "Mask",
    "State",
    "Tokens",
    "Transformer",
    "attention",
    "attention_weights",
    "written_out_attention",
]
