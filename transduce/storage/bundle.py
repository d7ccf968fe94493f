"""A trained model as one folder with everything: recipe, tokenizer, weights, scores, provenance, card, manifest.

The pieces are checked against each other when they are saved and against the manifest when they are loaded, so a
vocabulary that does not fit the weights cannot happen. Text normalization is part of the tokenizer's file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transduce.config import ModelConfig, Recipe
from transduce.data.tokenizer import is_own
from transduce.errors import BundleError, ConfigError
from transduce.recipe import read_recipe, to_toml
from transduce.storage.sealed_folder import MANIFEST, Kind, standing, verify_folder, write_folder
from transduce.storage.tensors import Precision, pack, unpack

if TYPE_CHECKING:  # a bundle's config and tokenizer are read without waiting for torch
    import torch
    from torch import Tensor

BUNDLE = Kind(
    name="bundle",
    version=1,
    error=BundleError,
    remedy="copy it again, or train with: transduce train",
)
CONFIG, WEIGHTS, SCORES, PROVENANCE, CARD = (
    "config.toml",
    "model.safetensors",
    "scores.json",
    "provenance.json",
    "README.md",
)
TOKENIZERS = (
    {"tokenizer.model"},
    {"source.model", "target.model"},
)  # for both languages, or for each
OWN_MODEL = "own_model"  # in the provenance: the name of a model that is not `Transformer`
SHIPPED = Path(__file__).with_name("bundles")


@dataclass(frozen=True)
class Bundle:
    """A verified bundle. The weights stay on disk until they are asked for."""

    path: Path
    recipe: Recipe
    tokenizer_files: dict[str, bytes]
    scores: dict[str, Any]
    provenance: dict[str, Any]
    fingerprint: str  # of everything in it: two bundles with the same one translate alike

    @property
    def own_model(self) -> str | None:
        """The name of the user's own model that the weights belong to; None: it is `Transformer`."""
        name = self.provenance.get(OWN_MODEL)
        return None if name is None else str(name)

    @property
    def own_tokenizer(self) -> bool:
        """Whether its tokenizer is the user's own, whose code is not in it."""
        return any(is_own(content) for content in self.tokenizer_files.values())

    @property
    def tokenizer_names(self) -> tuple[str, str]:
        """The files of source and target, which may be one."""
        shared = "tokenizer.model" in self.tokenizer_files
        return (
            ("tokenizer.model", "tokenizer.model") if shared else ("source.model", "target.model")
        )

    def refuse_own_model(self) -> None:
        """Refuse to go on without the code of the user's own model, if the weights belong to one."""
        if self.own_model is not None:
            raise BundleError(
                f"{self.path} holds the weights of your own model {self.own_model}, whose code is not in it; hand it "
                f"in from Python: Translator({str(self.path)!r}, model={self.own_model})"
            )

    def weights(
        self, device: str | torch.device = "cpu", dtype: torch.dtype | None = None
    ) -> dict[str, Tensor]:
        """The weights by parameter name, memory-mapped where nothing has to be converted; float32 unless told."""
        import torch
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            weights = unpack(
                load_file(self.path / WEIGHTS, device=str(device)), dtype or torch.float32
            )
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
    replace: bool = False,
) -> Path:
    """Write a bundle, whole or not at all; with `replace`, in place of the bundle that stands there.

    Args:
        path: The folder to make.
        recipe: Everything the run was told.
        weights: The model's state by parameter name.
        tokenizer_files: `tokenizer.model`, or `source.model` and `target.model`; other files are kept as they are.
        scores: What was measured: a name and a value each.
        provenance: Where the model comes from: fingerprint of the data, steps, commit, hardware.
        precision: Of the stored weights; int8 has a scale for each row of a matrix.
        replace: Whether an earlier bundle may make way, as a run's `best` does.
    """
    path = Path(path)
    _check_vocabulary(path, recipe.model, tokenizer_files)
    if OWN_MODEL not in provenance:
        _check_weights(path, recipe.model, weights)
    parameters = sum(tensor.numel() for tensor in weights.values())
    files = {
        CONFIG: to_toml(recipe).encode(),
        SCORES: _json(scores),
        PROVENANCE: _json(provenance),
        CARD: _card(recipe, scores, provenance, parameters, precision).encode(),
    }
    if clash := {*tokenizer_files} & {*files, WEIGHTS, MANIFEST}:
        raise BundleError(
            f"a tokenizer file is called {clash.pop()}, as a file of the bundle is; rename it"
        )
    return write_folder(
        path,
        BUNDLE,
        {**files, **tokenizer_files, WEIGHTS: pack(weights, precision)},
        replace=replace,
    )


def load_bundle(path: str | Path) -> Bundle:
    """Verify every file of a bundle and read all but the weights."""
    path = standing(Path(path))
    digests = verify_folder(path, BUNDLE)
    own = {CONFIG, SCORES, PROVENANCE, CARD, WEIGHTS}
    if missing := own - {*digests}:
        raise BundleError(f"{path / MANIFEST} names no file {min(missing)}; {BUNDLE.remedy}")
    try:
        recipe = read_recipe(path / CONFIG)
    except (ConfigError, RecursionError) as error:
        raise BundleError(
            f"{path / CONFIG} does not fit this transduce ({error}); try the one that wrote it"
        ) from None
    tokenizer_files = {name: (path / name).read_bytes() for name in digests if name not in own}
    _check_vocabulary(path, recipe.model, tokenizer_files)
    fingerprint = hashlib.sha256(_json(dict(sorted(digests.items())))).hexdigest()
    return Bundle(
        path, recipe, tokenizer_files, _read(path / SCORES), _read(path / PROVENANCE), fingerprint
    )


def find_bundle(place: str | Path | None = None, runs: Path = Path("runs")) -> Path:
    """The bundle at a place (its own folder, or a run's, where the best counts before the last); without a place,
    that of the run that saved one most recently, else the one that came with the package."""
    if place is not None:
        bundle = _bundle_of(Path(place))
        if bundle is None and (Path(place) / "checkpoints").is_dir():
            raise BundleError(
                f"{place} is a run without a bundle; the first comes with a validation: train on"
            )
        return bundle or Path(place)
    found = [bundle for run in runs.glob("*") if (bundle := _bundle_of(run))]
    if found:
        return max(found, key=lambda bundle: (standing(bundle) / MANIFEST).stat().st_mtime)
    for shipped in sorted(SHIPPED.glob(f"*/{MANIFEST}")):
        return shipped.parent
    raise BundleError(
        f"no model found in ./{runs} nor in the package; train one with make demo, or name one: --model"
    )


def _bundle_of(run: Path) -> Path | None:
    places = (run / "best", run / "last")
    return next((place for place in places if (standing(place) / MANIFEST).is_file()), None)


def _check_vocabulary(path: Path, model: ModelConfig, files: Mapping[str, bytes]) -> None:
    """The tokenizer's number of pieces is the model's number of rows."""
    import sentencepiece

    names = next((names for names in TOKENIZERS if names <= {*files}), None)
    if names is None:
        raise BundleError(
            f"{path} has no tokenizer.model, nor a source.model and a target.model; expected one of both"
        )
    for name in sorted(names):
        side = (
            "source_vocab_size"
            if name == "source.model" and model.source_vocab_size
            else "vocab_size"
        )
        try:
            if is_own(files[name]):
                pieces = json.loads(files[name])["size"] + 3  # the end, the unknown and padding
            else:
                pieces = sentencepiece.SentencePieceProcessor(model_proto=files[name]).vocab_size()
        except (RuntimeError, TypeError, ValueError, KeyError):
            raise BundleError(
                f"{path / name} is not a SentencePiece model; expected a trained tokenizer"
            ) from None
        if pieces != (expected := getattr(model, side)):
            raise BundleError(
                f"{path / name} has {pieces:,} pieces, but model.{side} is {expected:,}; "
                "use the tokenizer that the model was trained with"
            )


def _check_weights(path: Path, model: ModelConfig, weights: Mapping[str, Tensor]) -> None:
    """The weights are those of the model that the recipe describes."""
    import torch

    from transduce.model.transformer import Transformer

    with torch.device("meta"):
        expected = _shapes(Transformer(model).state_dict())
    found = _shapes(weights)
    for name in sorted(expected.keys() | found.keys()):
        here, there = (side.get(name, "absent") for side in (found, expected))
        if here != there:
            raise BundleError(
                f"{path}: {name} is {here} in the weights, but {there} in the recipe's model"
            )


def _shapes(weights: Mapping[str, Tensor]) -> dict[str, str]:
    return {
        name: str(list(each.shape) if each.is_floating_point() else each.dtype)
        for name, each in weights.items()
    }


def _read(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise BundleError(f"{file} is not a JSON object; {BUNDLE.remedy}")
    return value


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def _card(
    recipe: Recipe,
    scores: Mapping[str, Any],
    provenance: Mapping[str, Any],
    parameters: int,
    precision: Precision,
) -> str:
    """The model card: what this is, how to use it, how good it is, where it comes from."""
    model, data = recipe.model, recipe.data
    lines = [
        f"# Translation from {data.source_language} to {data.target_language}",
        "",
        f"A Transformer of {parameters:,} parameters, stored in {precision}: N = {model.N}, d_model = {model.d_model}, "
        f"d_ff = {model.d_ff}, h = {model.h}, a vocabulary of {model.vocab_size:,}. Every setting is in `{CONFIG}`.",
        "",
        '    transduce translate --model FOLDER "text"',
        "",
        *_table("score", scores),
        *_table("provenance", provenance),
        f"`{MANIFEST}` has the size and SHA-256 of every file; loading checks them and never runs code.",
    ]
    return "\n".join(lines) + "\n"


def _table(title: str, entries: Mapping[str, Any]) -> list[str]:
    if not entries:
        return []
    cells = {
        name: str(value).replace("|", r"\|").replace("\n", " ") for name, value in entries.items()
    }
    return [
        f"| {title} | |",
        "| --- | --- |",
        *(f"| {name} | {cell} |" for name, cell in cells.items()),
        "",
    ]
