"""Recognize wrong names of settings: old spellings, names in other libraries, typing errors."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

# Settings that had another spelling in recipes and bundles of earlier versions.
RENAMED = {"optimiser": "optimizer", "normalise_punctuation": "normalize_punctuation"}

# What settings are called in other libraries, and what they are here.
LENGTH = "data.max_tokens (of the training text) or search.max_length (of a translation)"
FOREIGN = {
    "dropout": "model.p_drop",
    "attention_dropout": "model.p_drop_attention",
    "activation_dropout": "model.p_drop_activation",
    "lr": "training.learning_rate",
    "batch_size": "training.tokens_per_step (in tokens of each language)",
    "max_tokens_per_batch": "training.tokens_per_step",
    "epochs": "training.steps; transduce train shows how many epochs they are",
    "max_epochs": "training.steps; transduce train shows how many epochs they are",
    "max_steps": "training.steps",
    "layers": "model.N (and model.N_decoder)",
    "num_layers": "model.N (and model.N_decoder)",
    "n_layers": "model.N (and model.N_decoder)",
    "num_encoder_layers": "model.N",
    "num_decoder_layers": "model.N_decoder",
    "encoder_layers": "model.N",
    "decoder_layers": "model.N_decoder",
    "heads": "model.h (with model.d_k and model.d_v)",
    "num_heads": "model.h (with model.d_k and model.d_v)",
    "nhead": "model.h (with model.d_k and model.d_v)",
    "hidden_size": "model.d_model",
    "embedding_size": "model.d_model",
    "ffn_dim": "model.d_ff",
    "early_stopping": "training.patience",
    "label_smoothing": "training.eps_ls",
    "warmup": "training.warmup_steps",
    "gradient_clipping": "training.clip_norm",
    "clip_grad_norm": "training.clip_norm",
    "max_len": LENGTH,
    "max_length": LENGTH,
    "max_seq_length": LENGTH,
    "max_seq_len": LENGTH,
    "max_sent_length": LENGTH,
    "max_source_positions": LENGTH,
    "max_target_positions": LENGTH,
    "src_seq_length": LENGTH,
    "tgt_seq_length": LENGTH,
    "optim": "training.optimizer",
    "fp16": 'training.precision ("bf16" or "float32")',
    "bf16": 'training.precision ("bf16" or "float32")',
    "beam": "search.beam_size",
    "num_beams": "search.beam_size",
    "length_penalty": "search.alpha",
    "accumulate_grad_batches": "training.micro_batches",
    "gradient_accumulation_steps": "training.micro_batches",
}


def unknown_setting(
    full_name: str, name: str, known: Sequence[str], elsewhere: Sequence[str] = ()
) -> str:
    """Return the message for a name that is not a setting, with the setting that is probably meant.

    Args:
        full_name: The name with its sections, such as model.layers.
        name: The name without its sections.
        known: The settings of the same section.
        elsewhere: Settings of other sections with this name, with their sections.
    """
    foreign = FOREIGN.get(name.lower().replace("-", "_"))
    if foreign:
        return f"{full_name} is not a setting; here it is called {foreign}"
    close = elsewhere or difflib.get_close_matches(name, known, n=1)
    if close:
        return f"{full_name} is not a setting; did you mean {' or '.join(close)}?"
    return f"{full_name} is not a setting; the settings here are {', '.join(known)}"
