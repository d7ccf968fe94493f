"""Import of MarianMT folders of Hugging Face, such as those of OPUS-MT, verified in `transformers`.

The vocabulary is brought into our order: the end of a sentence, unknown, all others, padding. A
SentencePiece model may split text into pieces that vocab.json does not have. Marian treats these as
unknown; here they get rows of their own, equal to that of the unknown piece, and are never
generated.
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
# The largest sizes that are imported.
_MOST = {
    "encoder_layers": 1_000,
    "decoder_layers": 1_000,
    "d_model": 100_000,
    "encoder_ffn_dim": 1_000_000,
    "encoder_attention_heads": 10_000,
    "max_position_embeddings": 100_000,
    "vocab_size": 10_000_000,
}
_OURS: dict[str, Activation] = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}


@dataclass(frozen=True)
class Vocabulary:
    """The pieces of a language in our order, with the folder's ids."""

    names: list[str]
    ids: list[int]  # the folder's id of each piece
    orphans: int  # how many pieces the folder does not have

    def filled(self, size: int) -> Vocabulary:
        """Return the vocabulary with unused rows up to this size.

        In Marian, padding has the same id in both languages.
        """
        missing = size - len(self.names)
        unused = [f"<row {number}>" for number in range(missing)]
        unknown_id = self.ids[1:2]
        return Vocabulary(
            names=[*self.names[:-1], *unused, self.names[-1]],
            ids=[*self.ids[:-1], *unknown_id * missing, self.ids[-1]],
            orphans=self.orphans + missing,
        )

    @property
    def generated_ids(self) -> range:
        """Our ids of the pieces that the model may generate."""
        return range(2, len(self.names) - 1 - self.orphans)


class Vocabularies(NamedTuple):
    """The vocabularies of both languages."""

    source: Vocabulary
    target: Vocabulary


def import_model(folder: Path, out: Path) -> dict[str, Any]:
    """Write the bundle `out`, and return the figures of its verification."""
    if out.exists():
        raise ExportError(
            f"{out} exists already and is never overwritten; choose another folder with --out"
        )

    # Tokenizers: one file for both languages if they are equal.
    marian, tokenizer = _load(folder)
    source = _vocabulary(folder, tokenizer, "source")
    target = _vocabulary(folder, tokenizer, "target")
    size = max(len(source.names), len(target.names))
    source = source.filled(size)
    target = target.filled(size)
    vocabularies = Vocabularies(source, target)
    files = {
        "source.model": arrange((folder / "source.spm").read_bytes(), source.names, "source"),
        "target.model": arrange((folder / "target.spm").read_bytes(), target.names, "target"),
    }
    if files["source.model"] == files["target.model"]:
        files = {"tokenizer.model": files["source.model"]}

    # The model.
    weights, sharing = _weights(marian, vocabularies)
    recipe = _recipe(marian, tokenizer, vocabularies, sharing, joint="tokenizer.model" in files)
    model = Transformer(recipe.model).eval()
    weights = {name: weights[name] for name in model.state_dict()}
    model.load_state_dict(weights)

    # Compare. OPUS-MT excludes padding by `bad_words_ids`, which a model alone does not know.
    marian.final_logits_bias[0, target.ids[-1]] = NEVER
    ids = Ids(source.ids, target.ids)
    figures = verify(model, MarianRuntime(marian, ids), target_ids=target.generated_ids)
    verify_tokenizer(tokenizer, *Tokenizer.pair(files), ids, target.generated_ids)

    origin = {"imported from": f"the MarianMT folder {folder.resolve().name}"}
    save_bundle(out, recipe, weights, files, {}, origin | figures)
    return figures


def _load(folder: Path) -> tuple[Any, Any]:
    """Load the model and the tokenizer of a folder."""
    try:
        model_type = json.loads((folder / "config.json").read_bytes()).get("model_type")
        if model_type != "marian":
            raise ExportError(
                f"{folder / 'config.json'} has model_type {model_type}; expected marian"
            )
        config = transformers().MarianConfig.from_pretrained(folder, local_files_only=True)
        _refuse(folder, config.to_dict())
        model = load_marian(folder)
        model.config.return_dict = True  # the outputs below are read by name
        return model, load_tokenizer(folder)
    except TransduceError:
        raise
    except Exception as error:  # damaged or malicious files cause all kinds of errors
        reason = str(error).partition("\n")[0]
        raise ExportError(
            f"{folder} cannot be loaded by transformers ({reason}); download it again"
        ) from error


def _refuse(folder: Path, settings: dict[str, Any]) -> None:
    """Raise an ExportError for the first setting that a bundle cannot represent."""
    supported = {
        "normalize_before": (False,),
        "normalize_embedding": (False,),
        "add_final_layer_norm": (False,),
        "static_position_embeddings": (True,),
        "decoder_attention_heads": (settings["encoder_attention_heads"],),
        "decoder_ffn_dim": (settings["encoder_ffn_dim"],),
        "decoder_start_token_id": (settings["pad_token_id"],),
        "activation_function": tuple(_OURS),
        "is_encoder_decoder": (True,),
    }
    _refuse_sizes(folder, settings)
    for name, values in supported.items():
        found = settings.get(name, values[0])
        if found not in values:
            expected = " or ".join(map(str, values))
            raise ExportError(
                f"{folder / 'config.json'} has {name} {found}; a bundle supports only {expected}"
            )


def _refuse_sizes(folder: Path, settings: dict[str, Any]) -> None:
    """Raise an ExportError for sizes that no model has, before memory is spent on them."""
    for name, most in _MOST.items():
        found = settings.get(name)
        if type(found) is not int or not 1 <= found <= most:
            raise ExportError(
                f"{folder / 'config.json'} has {name} {found}; expected a number from 1 to {most:,}"
            )
    for name in ("pad_token_id", "eos_token_id", "decoder_start_token_id"):
        found = settings.get(name)
        if type(found) is not int or not 0 <= found < settings["vocab_size"]:
            raise ExportError(
                f"{folder / 'config.json'} has {name} {found}; expected an id from 0 to "
                f"{settings['vocab_size'] - 1:,}, below vocab_size"
            )


def _vocabulary(folder: Path, tokenizer: Any, side: Side) -> Vocabulary:
    """Read the vocabulary of one language."""
    separate = tokenizer.separate_vocabs
    path = folder / ("target_vocab.json" if side == "target" and separate else "vocab.json")
    known: dict[str, int] = json.loads(path.read_bytes())
    names = sorted(known, key=known.__getitem__)
    ids = [known[name] for name in names]
    if ids != list(range(len(names))):
        raise ExportError(
            f"{path} skips or repeats ids; expected every id from 0 to {len(names) - 1} once"
        )
    end = tokenizer.eos_token
    unknown = tokenizer.unk_token
    pad = tokenizer.pad_token
    missing = [name for name in (end, unknown, pad) if name not in known]
    if missing:
        raise ExportError(f"{path} has no {missing[0]}; expected {end}, {unknown} and {pad}")

    # Pieces into which text may be split, but which have no id.
    pieces = []
    for language in (side,) if separate else ("source", "target"):
        pieces += cut_into((folder / f"{language}.spm").read_bytes())
    orphans = [
        piece for piece in dict.fromkeys(pieces) if piece not in known and not is_code(piece)
    ]

    others = [name for name in names if name not in (end, unknown, pad)]
    ordered = [end, unknown, *others, *orphans, pad]
    return Vocabulary(
        names=ordered,
        ids=[known.get(name, known[unknown]) for name in ordered],
        orphans=len(orphans),
    )


def _weights(marian: Any, vocabularies: Vocabularies) -> tuple[dict[str, Tensor], Sharing]:
    """Return our weights by name for any kind of sharing, and the sharing that loses nothing."""
    config = marian.config
    state = marian.state_dict()
    order = torch.argsort(halves(config.d_model))
    weights = {}
    for name, (other, axis) in places(_model(config)).items():
        weights[name] = state[other] if axis is None else state[other].index_select(axis, order)

    # Bring the rows of embeddings and output into our order.
    source = torch.tensor(vocabularies.source.ids)
    target = torch.tensor(vocabularies.target.ids)
    weights["output_bias"] = weights["output_bias"][0, target]
    rows = {
        "source_embedding.weight": source,
        "target_embedding.weight": target,
        "output.weight": target,
    }
    for name, ids in rows.items():
        size = weights[name].size(0)
        pieces = int(ids.max()) + 1
        if size < pieces:
            raise ExportError(
                f"{name} has {size:,} rows, but the vocabulary has {pieces:,} pieces; expected one "
                "row for each"
            )
        weights[name] = weights[name][ids]
    weights["output_bias"][vocabularies.target.generated_ids.stop :] = NEVER
    weights["output_bias"][-1] = 0  # padding needs no bias: it is never generated

    tied = torch.equal(weights["target_embedding.weight"], weights["output.weight"])
    joint = weights["source_embedding.weight"].equal(weights["target_embedding.weight"])
    # Our embeddings are multiplied by sqrt(d_model) when they are looked up (§3.4).
    if not config.scale_embedding:
        for name in ("source_embedding.weight", "target_embedding.weight"):
            weights[name] = weights[name] / config.d_model**0.5
        tied = False
    if not tied:
        return weights, "none"
    return weights, "three-way" if joint else "two-way"


def _model(config: Any, **settings: Any) -> ModelConfig:
    """Return the model's settings."""
    d_k = config.d_model // config.encoder_attention_heads
    return ModelConfig(
        N=config.encoder_layers,
        N_decoder=config.decoder_layers,
        d_model=config.d_model,
        d_ff=config.encoder_ffn_dim,
        h=config.encoder_attention_heads,
        d_k=d_k,
        d_v=d_k,
        p_drop=config.dropout,
        p_drop_attention=config.attention_dropout,
        p_drop_activation=config.activation_dropout,
        norm_eps=NORM_EPS,
        activation=_OURS[config.activation_function],
        attention_bias=True,
        output_bias=True,
        **settings,
    )


def _recipe(
    marian: Any, tokenizer: Any, vocabularies: Vocabularies, sharing: Sharing, *, joint: bool
) -> Recipe:
    config = marian.config
    search = marian.generation_config
    size = len(vocabularies.target.names)
    return Recipe(
        model=_model(config, sharing=sharing, vocab_size=size),
        data=DataConfig(
            source_language=tokenizer.source_lang or UNKNOWN_LANGUAGE,
            target_language=tokenizer.target_lang or UNKNOWN_LANGUAGE,
            max_tokens=min(config.max_position_embeddings, tokenizer.model_max_length),
            tokenizer=TokenizerConfig(vocab_size=size, joint=joint),
        ),
        # Marian has another formula of the length penalty; the same exponent comes closest.
        search=SearchConfig(
            beam_size=search.num_beams or 1,
            alpha=1.0 if search.length_penalty is None else search.length_penalty,
        ),
    )
