"""The layout of Marian models in transformers: names of weights and order of dimensions.

Our sinusoids alternate sines and cosines (§3.5); Marian has all sines first, then all cosines. The
dimensions of the residual stream have no order of their own. So permuting every weight that reads
or writes it gives exactly the same model.
"""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.config import ModelConfig
from transduce.data.tokenizer import Tokenizer
from transduce.engines.self_check import sample_ids
from transduce.errors import ExportError, require
from transduce.exporters.pieces import is_code

NEVER = -1e9  # a bias that makes a probability zero and stays finite in any sum
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish"}
NORM_EPS = 1e-5  # built into Marian
_ATTENTIONS = {"self_attention": "self_attn", "cross_attention": "encoder_attn"}
_PROJECTIONS = {"w_q": "q_proj", "w_k": "k_proj", "w_v": "v_proj", "w_o": "out_proj"}


class Place(NamedTuple):
    """The name of a weight in Marian, and which of its axes is the residual stream."""

    name: str
    axis: int | None


def places(config: ModelConfig) -> dict[str, Place]:
    """Return the place of every weight by our name.

    Our model may lack some biases. Matrices that are shared in Marian have several names there.
    """
    found = {
        "target_embedding.weight": Place("model.decoder.embed_tokens.weight", 1),
        "source_embedding.weight": Place("model.encoder.embed_tokens.weight", 1),
        "output.weight": Place("lm_head.weight", 1),
        "output_bias": Place("final_logits_bias", None),
    }
    for stack, depth in (("encoder", config.N), ("decoder", config.decoder_layers)):
        for index in range(depth):
            layer = f"{stack}.{index}"
            marian = f"model.{stack}.layers.{index}"
            for attention, marian_attention in _ATTENTIONS.items():
                if stack == "encoder" and attention == "cross_attention":
                    continue
                name = f"{layer}.{attention}"
                marian_name = f"{marian}.{marian_attention}"
                for part, projection in _PROJECTIONS.items():
                    writes = part == "w_o"
                    _linear(found, f"{name}.{part}", f"{marian_name}.{projection}", writes)
                _norm(found, f"{name}_residual.norm", f"{marian_name}_layer_norm")
            _linear(found, f"{layer}.feed_forward.w_1", f"{marian}.fc1", False)
            _linear(found, f"{layer}.feed_forward.w_2", f"{marian}.fc2", True)
            _norm(found, f"{layer}.feed_forward_residual.norm", f"{marian}.final_layer_norm")
    return found


def _linear(found: dict[str, Place], name: str, marian_name: str, writes: bool) -> None:
    """Add a linear layer, which writes into the residual stream or reads from it."""
    found[f"{name}.weight"] = Place(f"{marian_name}.weight", 0 if writes else 1)
    found[f"{name}.bias"] = Place(f"{marian_name}.bias", 0 if writes else None)


def _norm(found: dict[str, Place], name: str, marian_name: str) -> None:
    found[f"{name}.weight"] = Place(f"{marian_name}.weight", 0)
    found[f"{name}.bias"] = Place(f"{marian_name}.bias", 0)


def halves(d_model: int) -> Tensor:
    """Return our dimensions in Marian's order; argsort gives the inverse permutation."""
    return torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)])


class Ids(NamedTuple):
    """The ids of a Marian folder for each of our ids."""

    source: Sequence[int]
    target: Sequence[int]


class MarianRuntime:
    """A model in `transformers`; `ids` translates between its ids and ours if they differ."""

    name = "transformers"

    def __init__(self, model: Any, ids: Ids | None = None) -> None:
        self._model = model
        self._ids = ids

    @torch.inference_mode()
    def log_probs(self, source: Sequence[int], target: Sequence[int]) -> Sequence[float]:
        ids = [self._ids.target[token] for token in target] if self._ids else list(target)
        target_ids = torch.tensor(ids)
        start = torch.tensor([self._model.config.decoder_start_token_id])
        shifted = torch.cat([start, target_ids[:-1]])[None]
        output = self._model(input_ids=self._source_ids(source), decoder_input_ids=shifted)
        all_log_probs = F.log_softmax(output.logits[0], dim=-1)  # (T, V)
        log_probs: list[float] = all_log_probs.gather(-1, target_ids[:, None])[:, 0].tolist()
        return log_probs

    def greedy(self, source: Sequence[int], length: int) -> Sequence[int]:
        output = self._model.generate(
            input_ids=self._source_ids(source),
            num_beams=1,
            do_sample=False,
            min_new_tokens=0,
            max_new_tokens=length + 1,
            max_length=None,
        )
        ids = output[0, 1:].tolist()
        ours = [self._ids.target.index(token) for token in ids] if self._ids else ids
        return ours[: ours.index(0)] if 0 in ours else ours[:length]

    def _source_ids(self, source: Sequence[int]) -> Tensor:
        ids = [self._ids.source[token] for token in source] if self._ids else list(source)
        return torch.tensor([ids])


def load_marian(folder: Path) -> Any:
    """Load the model of a local folder, from safetensors or from the tensors of a pickle."""
    model, info = transformers().MarianMTModel.from_pretrained(
        folder, local_files_only=True, dtype=torch.float32, output_loading_info=True
    )
    # The library would initialize missing weights with random numbers.
    mismatched = [key for key, *_ in info["mismatched_keys"]]
    lacking = [*info["missing_keys"], *mismatched]
    if lacking:
        raise ExportError(
            f"{folder} has no weights for {sorted(lacking)[0]}, or weights of another shape than "
            "config.json says; download the folder again"
        )
    return model.eval()


def load_tokenizer(folder: Path) -> Any:
    """Load the tokenizer of a local folder."""
    with warnings.catch_warnings():
        # The library would import sacremoses but never call it.
        warnings.filterwarnings("ignore", "Recommended: pip install sacremoses")
        return transformers().MarianTokenizer.from_pretrained(folder, local_files_only=True)


def verify_tokenizer(
    marian: Any,
    source: Tokenizer,
    target: Tokenizer,
    ids: Ids | None = None,
    target_ids: range | None = None,
) -> None:
    """Raise an ExportError unless Marian's tokenizer encodes and decodes samples like ours."""
    chance = random.Random(2)
    codes, plain_sources = _pieces(source, range(2, source.pad))
    texts = [text.strip() for text in source.decode_batch(sample_ids(plain_sources, chance))]
    with_codes = [
        f"{code} {text}" for code, text in zip(codes, itertools.cycle(texts), strict=False)
    ]
    for text in [*texts, *with_codes]:
        expected = [ids.source[token] if ids else token for token in source.encode(text)]
        found = marian(text).input_ids
        if found != expected:
            raise ExportError(
                f"transformers encodes {text!r} as the tokens {found}, but transduce as {expected}"
            )

    _, plain_targets = _pieces(target, target_ids or range(2, target.pad))
    for tokens in sample_ids(plain_targets, chance):
        expected_text = target.decode(tokens).strip()
        marian_tokens = [ids.target[token] if ids else token for token in tokens]
        found_text = marian.decode(marian_tokens).strip()
        if found_text != expected_text:
            raise ExportError(
                f"transformers decodes the tokens {tokens} as {found_text!r}, but transduce as "
                f"{expected_text!r}"
            )


def _pieces(tokenizer: Tokenizer, ids: range) -> tuple[list[str], list[int]]:
    """Return the codes of target languages, and the ids of all other pieces."""
    pieces = dict(zip(ids, tokenizer.pieces(ids), strict=True))
    codes = [piece[1:] for piece in pieces.values() if is_code(piece)]
    return codes, [token for token, piece in pieces.items() if not is_code(piece)]


def transformers() -> ModuleType:
    """Return the library, with its progress bars switched off."""
    library = require("transformers", extra="export")
    library.logging.disable_progress_bar()
    return library
