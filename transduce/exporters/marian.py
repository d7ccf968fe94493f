"""The Marian layout of Hugging Face: which weight is which, and the paper's sinusoids in another order of dimensions.

Ours alternate sines and cosines (§3.5); Marian has all sines, then all cosines. The residual stream's dimensions have
no order of their own, so permuting every weight that reads or writes it gives exactly the same model.
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
from transduce.errors import ExportError, require
from transduce.exporters.pieces import is_code
from transduce.exporters.verification import sample_ids

NEVER = -1e9  # a bias that leaves no probability, and stays finite in any sum
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish"}
NORM_EPS = 1e-5  # built into Marian
_ATTENTIONS = {"self_attention": "self_attn", "cross_attention": "encoder_attn"}
_PROJECTIONS = {"w_q": "q_proj", "w_k": "k_proj", "w_v": "v_proj", "w_o": "out_proj"}


class Place(NamedTuple):
    """Where Marian keeps a weight of ours, and which of its axes runs along the residual stream."""

    name: str
    axis: int | None


def places(config: ModelConfig) -> dict[str, Place]:
    """Every weight by our name. Ours may lack biases, and matrices that Marian shares have several names there."""
    found = {
        "target_embedding.weight": Place("model.decoder.embed_tokens.weight", 1),
        "source_embedding.weight": Place("model.encoder.embed_tokens.weight", 1),
        "output.weight": Place("lm_head.weight", 1),
        "output_bias": Place("final_logits_bias", None),
    }
    for stack, depth in (("encoder", config.N), ("decoder", config.decoder_layers)):
        for index in range(depth):
            ours, theirs = f"{stack}.{index}", f"model.{stack}.layers.{index}"
            for attention, other in list(_ATTENTIONS.items())[: 1 if stack == "encoder" else 2]:
                for part, projection in _PROJECTIONS.items():
                    _linear(
                        found,
                        f"{ours}.{attention}.{part}",
                        f"{theirs}.{other}.{projection}",
                        part == "w_o",
                    )
                _norm(found, f"{ours}.{attention}_residual.norm", f"{theirs}.{other}_layer_norm")
            _linear(found, f"{ours}.feed_forward.w_1", f"{theirs}.fc1", False)
            _linear(found, f"{ours}.feed_forward.w_2", f"{theirs}.fc2", True)
            _norm(found, f"{ours}.feed_forward_residual.norm", f"{theirs}.final_layer_norm")
    return found


def _linear(found: dict[str, Place], ours: str, theirs: str, writes: bool) -> None:
    found[f"{ours}.weight"] = Place(f"{theirs}.weight", 0 if writes else 1)
    found[f"{ours}.bias"] = Place(f"{theirs}.bias", 0 if writes else None)


def _norm(found: dict[str, Place], ours: str, theirs: str) -> None:
    found[f"{ours}.weight"] = Place(f"{theirs}.weight", 0)
    found[f"{ours}.bias"] = Place(f"{theirs}.bias", 0)


def halves(d_model: int) -> Tensor:
    """Our dimensions in Marian's order; its inverse (argsort) is the way back."""
    return torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)])


class Ids(NamedTuple):
    """What a folder calls each of our ids."""

    source: Sequence[int]
    target: Sequence[int]


class MarianRuntime:
    """A folder in `transformers`, with its ids for ours where they are not the same."""

    name = "transformers"

    def __init__(self, model: Any, ids: Ids | None = None) -> None:
        self._model, self._ids = model, ids

    @torch.inference_mode()
    def log_probs(self, source: Sequence[int], target: Sequence[int]) -> Sequence[float]:
        written = torch.tensor(
            [self._ids.target[token] for token in target] if self._ids else list(target)
        )
        start = torch.tensor([self._model.config.decoder_start_token_id])
        logits = self._model(
            input_ids=self._written(source),
            decoder_input_ids=torch.cat([start, written[:-1]])[None],
        ).logits[0]
        found: list[float] = (
            F.log_softmax(logits, dim=-1).gather(-1, written[:, None])[:, 0].tolist()
        )
        return found

    def greedy(self, source: Sequence[int], length: int) -> Sequence[int]:
        ids = self._model.generate(
            input_ids=self._written(source),
            num_beams=1,
            do_sample=False,
            max_new_tokens=length + 1,
            max_length=None,
        )[0, 1:].tolist()
        ours = [self._ids.target.index(token) for token in ids] if self._ids else ids
        return ours[: ours.index(0)] if 0 in ours else ours[:length]

    def _written(self, source: Sequence[int]) -> Tensor:
        return torch.tensor(
            [[self._ids.source[token] for token in source] if self._ids else list(source)]
        )


def load_marian(folder: Path) -> Any:
    """The model of a folder on this machine, read from safetensors, or of a pickle the tensors and nothing else."""
    model, told = transformers().MarianMTModel.from_pretrained(
        folder, local_files_only=True, dtype=torch.float32, output_loading_info=True
    )
    # What is not there would be made up: another model each time, which agrees with itself.
    if lacking := [*told["missing_keys"], *(key for key, *_ in told["mismatched_keys"])]:
        raise ExportError(
            f"{folder} has no weights for {sorted(lacking)[0]}, or of another shape than config.json says"
        )
    return model.eval()


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer of a folder."""
    with warnings.catch_warnings():
        # Which it would load and never call.
        warnings.filterwarnings("ignore", "Recommended: pip install sacremoses")
        return transformers().MarianTokenizer.from_pretrained(folder, local_files_only=True)


def verify_tokenizer(
    theirs: Any,
    source: Tokenizer,
    target: Tokenizer,
    ids: Ids | None = None,
    said: range | None = None,
) -> None:
    """A sample of texts becomes the same ids in both, and a sample of ids the same text."""
    chance = random.Random(2)
    codes, plain = _pieces(source, range(2, source.pad))
    texts = [text.strip() for text in source.decode_batch(sample_ids(plain, chance))]
    for text in [
        *texts,
        *(f"{code} {text}" for code, text in zip(codes, itertools.cycle(texts), strict=False)),
    ]:
        here = [ids.source[token] if ids else token for token in source.encode(text)]
        if here != (there := theirs(text).input_ids):
            raise ExportError(
                f"transformers makes the tokens {there} of {text!r}, but transduce {here}"
            )
    for tokens in sample_ids(_pieces(target, said or range(2, target.pad))[1], chance):
        written = target.decode(tokens).strip()
        if written != (
            other := theirs.decode(
                [ids.target[token] if ids else token for token in tokens]
            ).strip()
        ):
            raise ExportError(
                f"transformers makes {other!r} of the tokens {tokens}, but transduce {written!r}"
            )


def _pieces(tokenizer: Tokenizer, ids: range) -> tuple[list[str], list[int]]:
    """Codes of target languages, and the ids of all other pieces."""
    pieces = dict(zip(ids, tokenizer.pieces(ids), strict=True))
    codes = [piece[1:] for piece in pieces.values() if is_code(piece)]
    return codes, [token for token, piece in pieces.items() if not is_code(piece)]


def transformers() -> ModuleType:
    """The library, without its progress bars: loading takes a second."""
    library = require("transformers", extra="export")
    library.logging.disable_progress_bar()
    return library
