"""A small model that really translates, trained in seconds on the embedded phrases."""

from dataclasses import replace

import torch

from transduce.config import DataConfig, ModelConfig, Recipe, SearchConfig, TokenizerConfig
from transduce.corpora.phrases import phrases
from transduce.data.tokenizer import Tokenizer
from transduce.model import Tokens, Transformer
from transduce.storage.bundle import save_bundle
from transduce.training.loss import smoothed_loss

# The tests were written for the model that learns from this vocabulary.
TOKENIZER = TokenizerConfig(vocab_size=500, character_coverage=0.9995)
MODEL = ModelConfig(vocab_size=500, N=2, d_model=64, d_ff=128, h=4, d_k=16, d_v=16, p_drop=0.0)
PAIRS = 6_000


def splits():
    return phrases("en", "de", PAIRS)


def train(steps=200, rows=48, **changes):
    """A model, its tokenizer and its recipe."""
    pairs = splits()["train"]
    tokenizer = Tokenizer.train(
        [text for pair in pairs[:2000] for text in pair],
        TOKENIZER,
    )
    recipe = Recipe(
        model=replace(MODEL, **changes),
        data=DataConfig(max_tokens=128, tokenizer=TOKENIZER),
        search=SearchConfig(max_extra=20),
    )
    sources, targets = (tokenizer.encode_batch([pair[side] for pair in pairs]) for side in (0, 1))
    torch.manual_seed(1)
    model, pad = Transformer(recipe.model), recipe.model.pad
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=steps)
    for _ in range(steps):
        picked = torch.randint(len(pairs), (rows,)).tolist()
        target = Tokens.padded([targets[i] for i in picked], pad)
        logits = model(Tokens.padded([sources[i] for i in picked], pad), target.shifted_right(pad))
        loss, _ = smoothed_loss(logits, target.ids, 0.1)
        (loss / (target.ids != pad).sum()).backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return model.eval(), tokenizer, recipe


def save(folder, **options):
    model, tokenizer, recipe = train(**options)
    return save_bundle(
        folder, recipe, model.state_dict(), {"tokenizer.model": tokenizer.to_bytes()}, {}, {}
    )
