"""A bundle as a MarianMTModel of Hugging Face, with a tokenizer that `transformers` loads: checked in that library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transduce.config import ModelConfig
from transduce.data.tokenizer import Tokenizer
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
from transduce.exporters.output import made_whole, write_report
from transduce.exporters.pieces import separate
from transduce.exporters.verification import verify
from transduce.storage.bundle import Bundle


def refusal(config: ModelConfig) -> str | None:
    """Why Marian cannot carry a model, or None where it can."""
    expected = {
        "norm_order": "post",
        "norm": "layer",
        "norm_eps": NORM_EPS,
        "positions": "sinusoidal",
        "r": None,
        "source_vocab_size": config.vocab_size if config.source_vocab_size else None,
    }
    for name, value in expected.items():
        if (found := getattr(config, name)) != value:
            return f"model.{name} is {found}; Marian has only {value if value is not None else 'models without it'}"
    if not config.d_k == config.d_v == config.d_model / config.h:
        return f"model.d_k is {config.d_k} and model.d_v {config.d_v}; Marian needs both to be d_model / h"
    if config.activation not in ACTIVATIONS:
        return f"model.activation is {config.activation}; Marian has only {', '.join(ACTIVATIONS)}"
    return None


def export(bundle: Bundle, out: Path) -> dict[str, Any]:
    """Make the folder `out`; the report that is written into it."""
    if reason := refusal(bundle.recipe.model):
        raise ExportError(reason)
    with made_whole(out) as work:
        work.mkdir()
        _write_tokenizer(bundle, work)
        _marian(bundle).save_pretrained(work)
        (work / "README.md").write_text(_readme(bundle), encoding="utf-8")
        figures = verify(load_model(bundle), MarianRuntime(load_marian(work)))
        verify_tokenizer(load_tokenizer(work), *Tokenizer.pair(bundle.tokenizer_files))
        return write_report(work, bundle, figures)


def _marian(bundle: Bundle) -> Any:
    """The model with our weights."""
    library = transformers()
    ours, data, search = bundle.recipe.model, bundle.recipe.data, bundle.recipe.search
    special: dict[str, Any] = {
        "eos_token_id": 0,
        "pad_token_id": ours.pad,
        "decoder_start_token_id": ours.pad,
    }
    limits: dict[str, Any] = {"max_length": max(1024, data.max_tokens)}
    config = library.MarianConfig(
        vocab_size=ours.vocab_size, decoder_vocab_size=ours.vocab_size, d_model=ours.d_model,
        encoder_layers=ours.N, decoder_layers=ours.decoder_layers,
        encoder_attention_heads=ours.h, decoder_attention_heads=ours.h,
        encoder_ffn_dim=ours.d_ff, decoder_ffn_dim=ours.d_ff, activation_function=ACTIVATIONS[ours.activation],
        dropout=ours.p_drop, attention_dropout=ours.p_drop_attention, activation_dropout=ours.p_drop_activation,
        max_position_embeddings=limits["max_length"], scale_embedding=True, forced_eos_token_id=None,
        share_encoder_decoder_embeddings=ours.sharing == "three-way", tie_word_embeddings=ours.sharing != "none",
        architectures=["MarianMTModel"], **special,
    )  # fmt: skip
    model = library.MarianMTModel(config)
    found = model.load_state_dict(_weights(bundle), strict=False)
    assert not [
        name
        for name in (*found.missing_keys, *found.unexpected_keys)
        if "embed_positions" not in name
    ], found
    model.tie_weights()
    if search.beam_size > 1:  # another formula than ours; with the same exponent it is the nearest
        limits["length_penalty"] = search.alpha
    model.generation_config = library.GenerationConfig(
        num_beams=search.beam_size, **special, **limits
    )
    return model.eval()


def _weights(bundle: Bundle) -> dict[str, Tensor]:
    ours, config = bundle.weights(), bundle.recipe.model
    order, table, found = halves(config.d_model), places(config), {}
    for name, (theirs, axis) in table.items():
        if name in ours:
            found[theirs] = ours[name] if axis is None else ours[name].index_select(axis, order)
        elif name.endswith(".bias"):
            found[theirs] = torch.zeros_like(ours[f"{name.removesuffix('bias')}weight"][:, 0])
    target = found["model.decoder.embed_tokens.weight"]
    found.setdefault("model.encoder.embed_tokens.weight", target)
    found.setdefault("lm_head.weight", target)
    if config.sharing == "three-way":
        found["model.shared.weight"] = target
    bias = ours.get("output_bias", torch.zeros(config.vocab_size)).clone()
    bias[-1] = NEVER  # padding is never said
    found["final_logits_bias"] = bias[None]
    return found


def _write_tokenizer(bundle: Bundle, work: Path) -> None:
    files, data = bundle.tokenizer_files, bundle.recipe.data
    vocabularies = {}
    for side in ("source", "target"):
        vocabularies[side], model = separate(files.get("tokenizer.model") or files[f"{side}.model"])
        (work / f"{side}.spm").write_bytes(model)
    joint = vocabularies["source"] == vocabularies["target"]
    written = {"vocab.json": vocabularies["source"]} | (
        {} if joint else {"target_vocab.json": vocabularies["target"]}
    )
    for name, pieces in written.items():
        _write_json(work / name, {piece: index for index, piece in enumerate(pieces)})
    eos, unk, pad = (vocabularies["target"][index] for index in (0, 1, -1))
    special = {"eos_token": eos, "unk_token": unk, "pad_token": pad}
    _write_json(work / "special_tokens_map.json", special)
    languages = {"source_lang": data.source_language, "target_lang": data.target_language}
    settings = {
        "tokenizer_class": "MarianTokenizer",
        "separate_vocabs": not joint,
        "model_max_length": data.max_tokens,
    }
    _write_json(work / "tokenizer_config.json", {**settings, **languages, **special})


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _readme(bundle: Bundle) -> str:
    data, search = bundle.recipe.data, bundle.recipe.search
    return f"""# Translation from {data.source_language} to {data.target_language}, for transformers

```python
from transformers import MarianMTModel, MarianTokenizer

tokenizer, model = MarianTokenizer.from_pretrained("."), MarianMTModel.from_pretrained(".")
source = tokenizer("in 98 weeks", return_tensors="pt")
longest = source["input_ids"].size(1) + {search.max_extra}
(ids,) = model.generate(**source, num_beams={search.beam_size}, max_new_tokens=longest, max_length=None)
print(tokenizer.decode(ids, skip_special_tokens=True))
```

The model's own length penalty is ((5 + length) / 6)^{search.alpha}, that of `generate` length^`length_penalty`: with
the same exponent it is the nearest. No sentence of more than {data.max_tokens} tokens was learnt from; split longer
ones.
`export.json` says how this was compared with the model that it was made of.
"""
