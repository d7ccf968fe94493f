"""Export to Hugging Face: a MarianMTModel with its tokenizer, verified in `transformers`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transduce.config import ModelConfig
from transduce.data.tokenizer import Tokenizer
from transduce.engines.conversion import TRAINING_ONLY, unsupported
from transduce.engines.torch import load_model
from transduce.errors import ExportError
from transduce.exporters.marian import (
    ACTIVATIONS,
    NEVER,
    NORM_EPS,
    MarianRuntime,
    halves,
    load_marian,
    load_tokenizer,
    places,
    transformers,
    verify_tokenizer,
)
from transduce.exporters.output import complete_output, write_report
from transduce.exporters.pieces import separate
from transduce.exporters.verification import verify
from transduce.storage.bundle import Bundle
from transduce.storage.model_card import facts, front_matter, title

# Settings that Marian supports with any value.
_ANY_VALUE = {
    "vocab_size",
    "N",
    "N_decoder",
    "d_model",
    "d_ff",
    "h",
    "d_k",
    "d_v",
    "max_positions",
    "attention_bias",
    "output_bias",
    "sharing",
    *TRAINING_ONLY,
}
# Settings that it supports with these values. Any other setting must have its default value.
_VALUES = {"norm_eps": (NORM_EPS,), "activation": tuple(ACTIVATIONS)}


def refusal(config: ModelConfig) -> str | None:
    """Return why Marian cannot represent a model, or None if it can."""
    # Marian has one size for both vocabularies.
    values = {**_VALUES, "source_vocab_size": (None, config.vocab_size)}
    return unsupported(config, "Marian", _ANY_VALUE, values)


def export(bundle: Bundle, out: Path) -> dict[str, Any]:
    """Write the folder `out`, and return the report that is written into it."""
    reason = refusal(bundle.recipe.model)
    if reason:
        raise ExportError(reason)
    with complete_output(out) as work:
        work.mkdir()
        _write_tokenizer(bundle, work)
        _marian(bundle).save_pretrained(work)
        (work / "README.md").write_text(_readme(bundle), encoding="utf-8")
        figures = verify(load_model(bundle), MarianRuntime(load_marian(work)))
        verify_tokenizer(load_tokenizer(work), *Tokenizer.pair(bundle.tokenizer_files))
        return write_report(work, bundle, figures)


def _marian(bundle: Bundle) -> Any:
    """Return the Marian model with the bundle's weights."""
    library = transformers()
    model_config = bundle.recipe.model
    search = bundle.recipe.search
    max_length = max(1024, bundle.recipe.data.max_tokens)
    special: dict[str, Any] = {
        "eos_token_id": 0,
        "pad_token_id": model_config.pad,
        "decoder_start_token_id": model_config.pad,
    }
    config = library.MarianConfig(
        vocab_size=model_config.vocab_size,
        decoder_vocab_size=model_config.vocab_size,
        d_model=model_config.d_model,
        encoder_layers=model_config.N,
        decoder_layers=model_config.decoder_layers,
        encoder_attention_heads=model_config.h,
        decoder_attention_heads=model_config.h,
        encoder_ffn_dim=model_config.d_ff,
        decoder_ffn_dim=model_config.d_ff,
        activation_function=ACTIVATIONS[model_config.activation],
        dropout=model_config.p_drop,
        attention_dropout=model_config.p_drop_attention,
        activation_dropout=model_config.p_drop_activation,
        max_position_embeddings=max_length,
        scale_embedding=True,
        forced_eos_token_id=None,
        share_encoder_decoder_embeddings=model_config.sharing == "three-way",
        tie_word_embeddings=model_config.sharing != "none",
        architectures=["MarianMTModel"],
        **special,
    )
    model = library.MarianMTModel(config)

    # Only the sinusoids, which the library computes itself, are not among our weights.
    loaded = model.load_state_dict(_weights(bundle), strict=False)
    unmatched = [*loaded.missing_keys, *loaded.unexpected_keys]
    assert all("embed_positions" in name for name in unmatched), loaded
    model.tie_weights()

    generation: dict[str, Any] = {"max_length": max_length}
    if search.min_length:
        generation["min_new_tokens"] = search.min_length
    if search.beam_size > 1:
        # The library has another formula than transduce; the same exponent comes closest.
        generation["length_penalty"] = search.alpha
    model.generation_config = library.GenerationConfig(
        num_beams=search.beam_size, **special, **generation
    )
    return model.eval()


def _weights(bundle: Bundle) -> dict[str, Tensor]:
    """Return the bundle's weights by Marian's names, with its order of dimensions."""
    stored = bundle.weights()
    config = bundle.recipe.model
    order = halves(config.d_model)
    weights = {}
    for name, (marian_name, axis) in places(config).items():
        if name in stored:
            weight = stored[name]
            weights[marian_name] = weight if axis is None else weight.index_select(axis, order)
        elif name.endswith(".bias"):
            matrix = stored[f"{name.removesuffix('bias')}weight"]
            weights[marian_name] = torch.zeros_like(matrix[:, 0])

    # Shared matrices have several names there.
    target = weights["model.decoder.embed_tokens.weight"]
    weights.setdefault("model.encoder.embed_tokens.weight", target)
    weights.setdefault("lm_head.weight", target)
    if config.sharing == "three-way":
        weights["model.shared.weight"] = target

    bias = stored.get("output_bias", torch.zeros(config.vocab_size)).clone()
    bias[-1] = NEVER  # padding is never generated
    weights["final_logits_bias"] = bias[None]
    return weights


def _write_tokenizer(bundle: Bundle, work: Path) -> None:
    """Write the SentencePiece models, vocabularies and settings of a MarianTokenizer."""
    files = bundle.tokenizer_files
    data = bundle.recipe.data
    vocabularies = {}
    for side in ("source", "target"):
        vocabularies[side], model = separate(files.get("tokenizer.model") or files[f"{side}.model"])
        (work / f"{side}.spm").write_bytes(model)

    joint = vocabularies["source"] == vocabularies["target"]
    _write_vocabulary(work / "vocab.json", vocabularies["source"])
    if not joint:
        _write_vocabulary(work / "target_vocab.json", vocabularies["target"])

    special = {
        "eos_token": vocabularies["target"][0],
        "unk_token": vocabularies["target"][1],
        "pad_token": vocabularies["target"][-1],
    }
    _write_json(work / "special_tokens_map.json", special)
    settings = {
        "tokenizer_class": "MarianTokenizer",
        "separate_vocabs": not joint,
        "model_max_length": data.max_tokens,
        "source_lang": data.source_language,
        "target_lang": data.target_language,
    }
    _write_json(work / "tokenizer_config.json", {**settings, **special})


def _write_vocabulary(path: Path, pieces: list[str]) -> None:
    _write_json(path, {piece: index for index, piece in enumerate(pieces)})


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _readme(bundle: Bundle) -> str:
    data = bundle.recipe.data
    search = bundle.recipe.search
    head = [*front_matter(bundle.recipe, "transformers"), title(bundle.recipe)]
    tables = facts(bundle.recipe, bundle.scores, bundle.provenance)
    usage = f"""
A MarianMTModel for transformers:

```python
from transformers import MarianMTModel, MarianTokenizer

tokenizer = MarianTokenizer.from_pretrained(".")
model = MarianMTModel.from_pretrained(".")
source = tokenizer("in 98 weeks", return_tensors="pt")
longest = source["input_ids"].size(1) + {search.max_extra}
(ids,) = model.generate(
    **source, num_beams={search.beam_size}, max_new_tokens=longest, max_length=None
)
print(tokenizer.decode(ids, skip_special_tokens=True))
```

transduce uses the length penalty ((5 + length) / 6)^{search.alpha}, `generate` uses
length^`length_penalty`; the same exponent comes closest. The training data had no sentence of more
than {data.max_tokens} tokens; split longer ones.
`export.json` has the comparison of this model with the original.
"""
    return "\n".join([*head, usage, *tables])
