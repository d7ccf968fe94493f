"""The Transformer (§3): token ids to logits. It knows nothing of text, files, devices or losses."""

from transduce.model.attention import attention, attention_weights
from transduce.model.tokens import PADDING_SEGMENT, Tokens, tiled
from transduce.model.transformer import State, Transformer

__all__ = ["PADDING_SEGMENT", "State", "Tokens", "Transformer", "attention", "attention_weights", "tiled"]
