"""Any MarianMT folder of Hugging Face, such as those of OPUS-MT, as a bundle: checked against `transformers`.

The vocabulary comes in our order: the end of a sentence, unknown, ..., padding. Pieces that a SentencePiece model cuts
text into but vocab.json does not have are unknown to Marian; here they get rows of their own, equal to that of the
unknown, which are never said.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from transduce.config import (
    Activation,
    DataConfig,
    ModelConfig,
    Recipe,
    SearchConfig,
    Sharing,
    TokenizerConfig,
)
from transduce.data.tokenizer import Tokenizer
from transduce.errors import ExportError, TransduceError
from transduce.exporters.marian import (
    NEVER,
    NORM_EPS,
    Ids,
    MarianRuntime,
    halves,
    load_marian,
    load_tokenizer,
    places,
    transformers,
    verify_tokenizer,
)
from transduce.exporters.pieces import arrange, cut_into, is_code
from transduce.exporters.verification import verify
from transduce.model import Transformer
from transduce.storage.bundle import save_bundle

Side = Literal["source", "target"]
UNKNOWN_LANGUAGE = "und"
_OURS: dict[str, Activation] = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}


@dataclass(frozen=True)
class Vocabulary:
    """The pieces of a language in our order, the folder's id for each, and how many of them it does not have."""

    names: list[str]
    ids: list[int]
    orphans: int

    def filled(self, size: int) -> Vocabulary:
        """With rows that nobody uses, up to this size: in Marian both languages have the same id for padding."""
        missing = size - len(self.names)
        names = [
            *self.names[:-1],
            *(f"<row {number}>" for number in range(missing)),
            self.names[-1],
        ]
        return Vocabulary(
            names, [*self.ids[:-1], *self.ids[1:2] * missing, self.ids[-1]], self.orphans + missing
        )

    @property
    def said(self) -> range:
        """Our ids of what a translation can be made of."""
        return range(2, len(self.names) - 1 - self.orphans)


class Both(NamedTuple):
    """The vocabularies of the two languages."""

    source: Vocabulary
    target: Vocabulary


def import_model(folder: Path, out: Path) -> dict[str, Any]:
    """Make the bundle `out`; the figures of its verification, which are part of its provenance."""
    if out.exists():
        raise ExportError(
            f"{out} exists already and is never overwritten; choose another folder with --out"
        )
    theirs, tokenizer = _load(folder)
    source, target = (
        _vocabulary(folder, tokenizer, "source"),
        _vocabulary(folder, tokenizer, "target"),
    )
    size = max(len(source.names), len(target.names))
    both = Both(source.filled(size), target.filled(size))
    files = {
        "source.model": arrange((folder / "source.spm").read_bytes(), both.source.names, "source"),
        "target.model": arrange((folder / "target.spm").read_bytes(), both.target.names, "target"),
    }
    if files["source.model"] == files["target.model"]:
        files = {"tokenizer.model": files["source.model"]}
    weights, sharing = _weights(theirs, both)
    recipe = _recipe(theirs, tokenizer, both, sharing, joint="tokenizer.model" in files)
    ours = Transformer(recipe.model).eval()
    weights = {name: weights[name] for name in ours.state_dict()}
    ours.load_state_dict(weights)
    # OPUS-MT forbids it by `bad_words_ids`.
    theirs.final_logits_bias[0, both.target.ids[-1]] = NEVER
    ids = Ids(both.source.ids, both.target.ids)
    figures = verify(ours, MarianRuntime(theirs, ids), said=both.target.said)
    verify_tokenizer(tokenizer, *Tokenizer.pair(files), ids, both.target.said)
    origin = {"imported from": f"the MarianMT folder {folder.resolve().name}"}
    save_bundle(out, recipe, weights, files, {}, origin | figures)
    return figures


def _load(folder: Path) -> tuple[Any, Any]:
    try:
        if (
            kind := json.loads((folder / "config.json").read_bytes()).get("model_type")
        ) != "marian":
            raise ExportError(f"{folder / 'config.json'} has model_type {kind}; expected marian")
        _refuse(
            folder,
            transformers().MarianConfig.from_pretrained(folder, local_files_only=True).to_dict(),
        )
        return load_marian(folder), load_tokenizer(folder)
    except TransduceError:
        raise
    except Exception as error:  # whatever a damaged or malicious file makes the library raise
        reason = str(error).partition("\n")[0]
        raise ExportError(
            f"{folder} cannot be loaded by transformers ({reason}); download it again"
        ) from error


def _refuse(folder: Path, settings: dict[str, Any]) -> None:
    """What neither `transformers` nor a bundle carries, by its name."""
    carried = {
        "normalize_before": (False,),
        "normalize_embedding": (False,),
        "add_final_layer_norm": (False,),
        "static_position_embeddings": (True,),
        "decoder_attention_heads": (settings["encoder_attention_heads"],),
        "decoder_ffn_dim": (settings["encoder_ffn_dim"],),
        "decoder_start_token_id": (settings["pad_token_id"],),
        "activation_function": tuple(_OURS),
    }
    for name, values in carried.items():
        if (found := settings.get(name, values[0])) not in values:
            expected = " or ".join(map(str, values))
            raise ExportError(
                f"{folder / 'config.json'} has {name} {found}; a bundle has only {expected}"
            )


def _vocabulary(folder: Path, tokenizer: Any, side: Side) -> Vocabulary:
    separate = tokenizer.separate_vocabs
    path = folder / ("target_vocab.json" if side == "target" and separate else "vocab.json")
    known: dict[str, int] = json.loads(path.read_bytes())
    names = sorted(known, key=known.__getitem__)
    if list(map(known.__getitem__, names)) != list(range(len(names))):
        raise ExportError(
            f"{path} skips or repeats ids; expected every id from 0 to {len(names) - 1} once"
        )
    end, unknown, pad = tokenizer.eos_token, tokenizer.unk_token, tokenizer.pad_token
    if missing := [name for name in (end, unknown, pad) if name not in known]:
        raise ExportError(f"{path} has no {missing[0]}; expected {end}, {unknown} and {pad}")
    sides = (side,) if separate else ("source", "target")
    cut = [piece for each in sides for piece in cut_into((folder / f"{each}.spm").read_bytes())]
    orphans = [piece for piece in dict.fromkeys(cut) if piece not in known and not is_code(piece)]
    others = [name for name in names if name not in (end, unknown, pad)]
    ordered = [end, unknown, *others, *orphans, pad]
    return Vocabulary(ordered, [known.get(name, known[unknown]) for name in ordered], len(orphans))


def _weights(theirs: Any, both: Both) -> tuple[dict[str, Tensor], Sharing]:
    """Ours by name, all that a model of any sharing might need, and the sharing that loses nothing."""
    found, config = theirs.state_dict(), theirs.config
    order = torch.argsort(halves(config.d_model))
    weights = {}
    for name, (other, axis) in places(_model(config)).items():
        weights[name] = found[other] if axis is None else found[other].index_select(axis, order)
    source, target = torch.tensor(both.source.ids), torch.tensor(both.target.ids)
    weights["output_bias"] = weights["output_bias"][0, target]
    rows = {
        "source_embedding.weight": source,
        "target_embedding.weight": target,
        "output.weight": target,
    }
    for name, ids in rows.items():
        if weights[name].size(0) <= int(ids.max()):
            size, pieces = weights[name].size(0), int(ids.max()) + 1
            raise ExportError(
                f"{name} has {size:,} rows, but the vocabulary {pieces:,} pieces; expected one for each"
            )
        weights[name] = weights[name][ids]
    weights["output_bias"][both.target.said.stop :] = NEVER
    weights["output_bias"][-1] = 0  # padding needs none: it is no class
    tied = torch.equal(weights["target_embedding.weight"], weights["output.weight"])
    joint = weights["source_embedding.weight"].equal(weights["target_embedding.weight"])
    # Ours multiplies by sqrt(d_model) when it looks up (§3.4), not before the softmax.
    if not config.scale_embedding:
        for name in ("source_embedding.weight", "target_embedding.weight"):
            weights[name] = weights[name] / config.d_model**0.5
        tied = False
    return weights, "none" if not tied else "three-way" if joint else "two-way"


def _model(config: Any, **settings: Any) -> ModelConfig:
    d_k = config.d_model // config.encoder_attention_heads
    return ModelConfig(
        N=config.encoder_layers, N_decoder=config.decoder_layers, d_model=config.d_model, d_ff=config.encoder_ffn_dim,
        h=config.encoder_attention_heads, d_k=d_k, d_v=d_k, p_drop=config.dropout,
        p_drop_attention=config.attention_dropout, p_drop_activation=config.activation_dropout,
        norm_eps=NORM_EPS, activation=_OURS[config.activation_function], attention_bias=True, output_bias=True,
        **settings,
    )  # fmt: skip


def _recipe(theirs: Any, tokenizer: Any, both: Both, sharing: Sharing, *, joint: bool) -> Recipe:
    config, search, size = theirs.config, theirs.generation_config, len(both.target.names)
    return Recipe(
        model=_model(config, sharing=sharing, vocab_size=size),
        data=DataConfig(
            source_language=tokenizer.source_lang or UNKNOWN_LANGUAGE,
            target_language=tokenizer.target_lang or UNKNOWN_LANGUAGE,
            max_tokens=min(config.max_position_embeddings, tokenizer.model_max_length),
            tokenizer=TokenizerConfig(vocab_size=size, joint=joint),
        ),
        # Marian's length penalty is another formula; ours with the same exponent is the nearest.
        search=SearchConfig(
            beam_size=search.num_beams or 1,
            alpha=1.0 if search.length_penalty is None else search.length_penalty,
        ),
    )
