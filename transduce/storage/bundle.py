"""Bundles: a trained model in one folder, with its recipe, tokenizer, scores and provenance.

The parts are checked against each other when a bundle is saved and against the manifest when it is
loaded, so the vocabulary always fits the weights. The rules of text normalization are stored in the
tokenizer's file.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transduce.config import ModelConfig, Recipe
from transduce.data.tokenizer import is_own
from transduce.errors import BundleError, ConfigError
from transduce.recipe import read_recipe, to_toml
from transduce.storage.model_card import model_card
from transduce.storage.sealed_folder import (
    MANIFEST,
    Content,
    Kind,
    current_folder,
    verify_folder,
    write_folder,
)
from transduce.storage.tensors import Precision, pack, unpack

if TYPE_CHECKING:  # importing torch takes seconds, and not every reader of a bundle needs it
    import torch
    from torch import Tensor

BUNDLE = Kind(
    name="bundle",
    version=1,
    error=BundleError,
    remedy="copy it again, or train with: transduce train",
)
CONFIG = "config.toml"
WEIGHTS = "model.safetensors"
SCORES = "scores.json"
PROVENANCE = "provenance.json"
CARD = "README.md"
SHORTLIST = "shortlist.txt"  # one target token per line
# One tokenizer for both languages, or one for each.
TOKENIZERS = ({"tokenizer.model"}, {"source.model", "target.model"})
OWN_MODEL = "own_model"  # in the provenance: the class of a model that is not `Transformer`
OWN_CARD = "own_card"  # in the provenance: whether a person wrote the model card
MOST_BYTES = 1 << 24  # of a file that is read as text


@dataclass(frozen=True)
class Bundle:
    """A verified bundle. `weights` reads the weights, which stay on the disk until then."""

    path: Path
    recipe: Recipe
    tokenizer_files: dict[str, bytes]
    scores: dict[str, Any]
    provenance: dict[str, Any]
    fingerprint: str  # a hash of all files: two bundles with the same one translate alike

    @property
    def name(self) -> str:
        """The name of the folder, or that of the run whose best or last model the bundle is."""
        path = self.path.resolve()
        folder = path.parent if path.name in ("best", "last") else path
        # The run of a student is in the folder `run` of its distillation.
        name = f"{folder.parent.name}/run" if folder.name == "run" else folder.name
        return os.fsencode(name).decode("utf-8", "replace")

    @property
    def own_model(self) -> str | None:
        """The class name of the user's own model, or None if the model is a `Transformer`."""
        name = self.provenance.get(OWN_MODEL)
        return None if name is None else str(name)

    @property
    def own_tokenizer(self) -> bool:
        """Whether the user's own tokenizer is needed, whose code is not in the bundle."""
        return any(is_own(content) for content in self.tokenizer_files.values())

    @property
    def shortlist(self) -> list[str]:
        """The only target tokens that fast searches consider; empty if they consider all."""
        try:
            lines = self.tokenizer_files.get(SHORTLIST, b"").decode().split("\n")
        except UnicodeDecodeError:
            raise BundleError(f"{self.path / SHORTLIST} is not UTF-8; {BUNDLE.remedy}") from None
        return [line for line in lines if line]

    @property
    def tokenizer_names(self) -> tuple[str, str]:
        """The tokenizer files of the source and the target language, which may be the same."""
        if "tokenizer.model" in self.tokenizer_files:
            return "tokenizer.model", "tokenizer.model"
        return "source.model", "target.model"

    @property
    def own_card(self) -> str | None:
        """The model card if a person wrote it, or None if it is made from the other files."""
        return self.card if self.provenance.get(OWN_CARD) else None

    @property
    def card(self) -> str:
        """The model card as Markdown."""
        return (self.path / CARD).read_text(encoding="utf-8", errors="replace")

    def refuse_own_model(self) -> None:
        """Raise a BundleError if the code of the user's own model is needed."""
        if self.own_model is not None:
            raise BundleError(
                f"{self.path} holds the weights of your own model {self.own_model}, whose code is "
                "not in it; pass the model from Python: "
                f"Translator({str(self.path)!r}, model={self.own_model})"
            )

    def count_parameters(self) -> int:
        """Return the number of weights in the file, without the scales of int8."""
        from safetensors import safe_open

        with safe_open(self.path / WEIGHTS, framework="numpy") as file:
            names = [name for name in file.keys() if not name.endswith(".scale")]  # noqa: SIM118
            return sum(math.prod(file.get_slice(name).get_shape()) for name in names)

    def weights(
        self, device: str | torch.device = "cpu", dtype: torch.dtype | None = None
    ) -> dict[str, Tensor]:
        """Return the weights by parameter name, by default in float32.

        They are mapped into memory where nothing has to be converted.
        """
        import torch
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            stored = load_file(self.path / WEIGHTS, device=str(device))
            weights = unpack(stored, dtype or torch.float32)
        except (OSError, SafetensorError, ValueError) as error:
            raise BundleError(
                f"{self.path / WEIGHTS} cannot be read ({error}); {BUNDLE.remedy}"
            ) from None
        if self.own_model is None:
            _check_weights(self.path, self.recipe.model, weights)
        return weights


def save_bundle(
    path: str | Path,
    recipe: Recipe,
    weights: Mapping[str, Tensor],
    tokenizer_files: Mapping[str, bytes],
    scores: Mapping[str, Any],
    provenance: Mapping[str, Any],
    *,
    precision: Precision = "float32",
    card: str | None = None,
    replace: bool = False,
) -> Path:
    """Write a bundle completely or not at all.

    Args:
        path: The folder to write.
        recipe: All settings of the training run.
        weights: The model's state by parameter name.
        tokenizer_files: `tokenizer.model`, or `source.model` and `target.model`; perhaps
            `shortlist.txt`; other files are stored as they are.
        scores: Names and values of what was measured.
        provenance: Where the model comes from: data fingerprint, steps, commit, hardware.
        precision: The precision of the stored weights; int8 has a scale per matrix row.
        card: A model card that a person wrote; by default it is made from the rest.
        replace: Whether to replace an existing bundle.
    """
    path = Path(path)
    _check_vocabulary(path, recipe.model, tokenizer_files)
    if OWN_MODEL not in provenance:
        _check_weights(path, recipe.model, weights)
    if card is None:
        parameters = sum(tensor.numel() for tensor in weights.values())
        card = model_card(recipe, scores, provenance, parameters, precision)
    else:
        provenance = {**provenance, OWN_CARD: True}
    files = {
        CONFIG: to_toml(recipe).encode(),
        SCORES: _json(scores),
        PROVENANCE: _json(provenance),
        CARD: card.encode(),
    }
    taken = {*tokenizer_files} & {*files, WEIGHTS, MANIFEST}
    if taken:
        raise BundleError(
            f"a tokenizer file has the name {taken.pop()}, which the bundle needs itself; rename it"
        )
    contents: dict[str, Content] = {**files, **tokenizer_files, WEIGHTS: pack(weights, precision)}
    return write_folder(path, BUNDLE, contents, replace=replace)


def replace_card(bundle: Bundle, card: str) -> Path:
    """Give a bundle a model card that a person wrote; all else stays as it is."""
    if not card.strip():
        raise BundleError("the new model card has no text; expected Markdown")
    names = verify_folder(bundle.path, BUNDLE)
    files: dict[str, Content] = {name: (bundle.path / name).read_bytes() for name in names}
    files[PROVENANCE] = _json({**bundle.provenance, OWN_CARD: True})
    files[CARD] = card.encode()
    return write_folder(bundle.path, BUNDLE, files, replace=True)


def load_bundle(path: str | Path) -> Bundle:
    """Verify every file of a bundle and read all but the weights."""
    path = current_folder(Path(path))
    for name in (SCORES, PROVENANCE, CARD):
        if (path / name).is_file() and (path / name).stat().st_size > MOST_BYTES:
            raise BundleError(f"{path / name} has more than {MOST_BYTES:,} bytes; {BUNDLE.remedy}")
    digests = verify_folder(path, BUNDLE)
    required = {CONFIG, SCORES, PROVENANCE, CARD, WEIGHTS}
    missing = required - {*digests}
    if missing:
        raise BundleError(f"{path / MANIFEST} names no file {min(missing)}; {BUNDLE.remedy}")
    try:
        recipe = read_recipe(path / CONFIG)
    except (ConfigError, RecursionError) as error:
        raise BundleError(
            f"{path / CONFIG} does not fit this version of transduce ({error}); use the version "
            "that wrote the bundle"
        ) from None

    # All other files belong to the tokenizer, the shortlist too.
    tokenizer_files = {name: (path / name).read_bytes() for name in digests if name not in required}
    _check_vocabulary(path, recipe.model, tokenizer_files)
    return Bundle(
        path=path,
        recipe=recipe,
        tokenizer_files=tokenizer_files,
        scores=_read_json(path / SCORES),
        provenance=_read_json(path / PROVENANCE),
        fingerprint=hashlib.sha256(_json(dict(sorted(digests.items())))).hexdigest(),
    )


def _check_vocabulary(path: Path, model: ModelConfig, files: Mapping[str, bytes]) -> None:
    """Raise a BundleError unless the tokenizer has as many pieces as the model has rows."""
    names = next((names for names in TOKENIZERS if names <= {*files}), None)
    if names is None:
        raise BundleError(
            f"{path} has no tokenizer.model, nor a source.model and a target.model; expected one "
            "tokenizer for both languages, or one for each"
        )
    for name in sorted(names):
        is_source = name == "source.model" and model.source_vocab_size
        setting = "source_vocab_size" if is_source else "vocab_size"
        expected = getattr(model, setting)
        pieces = _count_pieces(path / name, files[name])
        if pieces != expected:
            raise BundleError(
                f"{path / name} has {pieces:,} pieces, but model.{setting} is {expected:,}; "
                "use the tokenizer that the model was trained with"
            )


def _count_pieces(path: Path, content: bytes) -> int:
    """Return the vocabulary size of a tokenizer file."""
    import sentencepiece

    try:
        if is_own(content):
            # The end of a sentence, the unknown token and padding are not counted in it.
            pieces: int = json.loads(content)["size"] + 3
        else:
            processor = sentencepiece.SentencePieceProcessor(model_proto=content)
            pieces = processor.vocab_size()
            processor.id_to_piece(list(range(pieces)))  # every piece must be UTF-8
    except (RuntimeError, TypeError, ValueError, KeyError):
        raise BundleError(
            f"{path} is not a SentencePiece model; expected a trained tokenizer"
        ) from None
    return pieces


def _check_weights(path: Path, model: ModelConfig, weights: Mapping[str, Tensor]) -> None:
    """Raise a BundleError unless the weights are those of the recipe's model."""
    import torch

    from transduce.model.transformer import Transformer

    with torch.device("meta"):
        expected = _shapes(Transformer(model).state_dict())
    found = _shapes(weights)
    for name in sorted(expected.keys() | found.keys()):
        found_shape = found.get(name, "absent")
        expected_shape = expected.get(name, "absent")
        if found_shape != expected_shape:
            raise BundleError(
                f"{path}: {name} is {found_shape} in the weights, but {expected_shape} in the "
                "recipe's model; use the recipe that the model was trained with"
            )


def _shapes(weights: Mapping[str, Tensor]) -> dict[str, str]:
    """Return the shape of each floating-point tensor, and the type of all others."""
    return {
        name: str(list(tensor.shape) if tensor.is_floating_point() else tensor.dtype)
        for name, tensor in weights.items()
    }


def _read_json(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise BundleError(f"{file} is not a JSON object; {BUNDLE.remedy}")
    return value


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()
