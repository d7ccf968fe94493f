# ruff: noqa: E402 - each cell imports what it uses
# %% [markdown]
# # The Transformer, step by step
#
# This page walks through "Attention Is All You Need" (Vaswani et al., 2017) with the code of
# `transduce`. Every code cell runs on a CPU in seconds, and the output below a cell is what that
# cell printed when this page was built. You need the package and none of its extras.
#
# Shapes use one alphabet: `B` rows of a batch, `S` source length, `T` target length, `V` size of
# the vocabulary, and the paper's symbols `h`, `d_model`, `d_k`, `d_v`, `d_ff`, `N`.

# %%
import torch

import transduce

_ = torch.manual_seed(1)

# %% [markdown]
# ## Attention (§3.2.1)
#
# Attention compares a query with every key and returns a weighted mean of the values. Equation 1:
#
#     Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V
#
# Here is one sentence with three tokens and one head. The query of the last token equals the key
# of the first, so the last token attends mostly to the first.

# %%
from transduce.model.attention import attention, attention_weights

keys = torch.eye(3, 4)[None, None] * 4  # (B=1, h=1, K=3, d_k=4)
queries = keys[:, :, [1, 2, 0]]  # token 0 looks for key 1, token 1 for key 2, token 2 for key 0
values = torch.tensor([[10.0], [20.0], [30.0]])[None, None]  # (B, h, K, d_v=1)

weights = attention_weights(queries, keys)  # (B, h, Q, K)
print(weights[0, 0].round(decimals=3))
print("output:", (weights @ values).flatten())

# %% [markdown]
# Each row of weights sums to 1. `attention` computes the same result with the fast kernel of
# torch, which never stores all weights:

# %%
fast = attention(queries, keys, values)
print("the same:", torch.allclose(fast, weights @ values))

# %% [markdown]
# Why divide by `sqrt(d_k)`? The dot product of two random vectors has variance `d_k`. Without the
# factor, large scores push the softmax to one-hot weights, and its gradients vanish.

# %%
for d_k in (4, 64, 1024):
    products = (torch.randn(10_000, d_k) * torch.randn(10_000, d_k)).sum(-1)
    scaled = products / d_k**0.5
    print(f"d_k {d_k:>4}: deviation {products.std():5.1f}, scaled {scaled.std():.2f}")

# %% [markdown]
# ## Masks (§3.2.3)
#
# A mask decides which keys a query may see. The decoder must not look at later tokens. In
# `transduce` one batch has ids, positions and segments, and a `Mask` follows from them: attention
# is allowed inside a segment (a sentence), and a causal mask removes later positions.

# %%
from transduce.model import Mask, Tokens

tokens = Tokens.padded([[5, 6, 7, 0], [8, 0]], pad=9)  # two sentences; the second is padded
causal = Mask(tokens, tokens, causal=True).allowed  # (B, 1, Q, K)
for row in causal[:, 0].int().tolist():
    print("\n".join(" ".join(map(str, line)) for line in row), end="\n\n")

# %% [markdown]
# Padding is a segment of its own, so real tokens never attend to it. The same code handles
# packing, where one row holds many sentences:

# %%
packed = Tokens.packed([[[5, 6, 7, 0], [8, 0]]], pad=9)
for line in Mask(packed, packed, causal=True).allowed[0, 0].int().tolist():
    print(" ".join(map(str, line)))

# %% [markdown]
# ## Multi-head attention (§3.2.2)
#
# One attention computes one weighted mean. Several heads attend to different places at once:
# project the input `h` times, attend in every head, concatenate, project again.

# %%
from transduce.model.multi_head import MultiHeadAttention

config = transduce.ModelConfig(vocab_size=14, N=2, d_model=32, d_ff=64, h=4, d_k=8, d_v=8, p_drop=0)
multi_head = MultiHeadAttention(config)
x = torch.randn(2, 4, config.d_model)  # (B, T, d_model)
mask = Mask(tokens, tokens)
print(multi_head)
print("output:", tuple(multi_head(x, x, mask).shape))
print("weights:", tuple(multi_head.weights(x, x, mask).shape))

# %% [markdown]
# ## Positions (§3.5)
#
# Attention does not know the order of its keys: shuffle them and the result stays the same. So a
# vector that depends on the position is added to each embedding. The paper uses sines and cosines
# whose wavelengths grow from 2π to 10000 · 2π.

# %%
from transduce.model.positions import sinusoids

table = sinusoids(torch.arange(50)[None], 32)[0]  # (50, d_model)
print("position 0:", table[0, :6].tolist())
similar = table @ table[20]
print("most similar to position 20:", similar.topk(3).indices.tolist())

# %% [markdown]
# ## Encoder and decoder (§3.1)
#
# Each layer wraps its parts in a residual connection followed by a norm:
# `LayerNorm(x + Sublayer(x))`. The encoder layer has self-attention and a feed-forward network
# (§3.3); the decoder layer adds attention to the output of the encoder.

# %%
from transduce.model.layers import DecoderLayer, EncoderLayer

print(EncoderLayer(config))
print(len(list(DecoderLayer(config).parameters())), "weight tensors in a decoder layer")

# %% [markdown]
# ## The whole model (Figure 1)
#
# `Transformer` embeds the tokens, runs `N` layers on each side, and computes logits with the same
# matrix that embeds the tokens (§3.4). The target is shifted right by one position: the model
# predicts each token from the ones before it. The last id of the vocabulary is padding, and it
# also starts every target.

# %%
model = transduce.Transformer(config)
source = torch.tensor([[5, 6, 7, 0]])
target = torch.tensor([[config.pad, 5, 6, 7]])
print("logits:", tuple(model(source, target).shape))
print("parameters:", sum(weight.numel() for weight in model.parameters()))

# %% [markdown]
# The paper's base model and its variations are presets:

# %%
print("base:", transduce.preset("base").model.d_model, "dimensions")
print("big: ", transduce.preset("big"))

# %% [markdown]
# ## Training on a copy task (§5)
#
# The task: repeat the source, six letters from a to k. It is simple, but the model can only solve
# it by learning to attend to the right position. The letters are the ids 2 to 12; 0 is the end, 1
# is for what is not in the vocabulary, and 13 is padding. We use Adam with the paper's `beta_2` and
# label smoothing off.

# %%
END = 0


def batch(rows: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Draw random sequences: the source, the decoder's input and the labels."""
    symbols = torch.randint(2, 13, (rows, 6))
    end = torch.full((rows, 1), END)
    start = torch.full((rows, 1), config.pad)
    labels = torch.cat([symbols, end], dim=1)
    return labels, torch.cat([start, symbols], dim=1), labels


# %% [markdown]
# `smoothed_loss` returns sums over all target tokens; the training loop divides once by their
# number. `learning_rate` is Equation 3: linear warm-up, then the inverse square root of the step.

# %%
from transduce.training.loss import smoothed_loss
from transduce.training.optimizer import learning_rate

recipe = transduce.Recipe(
    model=config, training=transduce.TrainingConfig(warmup_steps=100, learning_rate=5e-3)
)
optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)

for step in range(1, 401):
    optimizer.param_groups[0]["lr"] = learning_rate(recipe, step)
    source, inputs, labels = batch(64)
    loss, _ = smoothed_loss(model(source, inputs), labels, eps_ls=0.0)
    loss = loss / labels.numel()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step in (1, 50, 100, 200, 400):
        print(f"step {step:>3}: loss {loss.item():.3f}")

# %% [markdown]
# ## Decoding, token by token
#
# `encode` reads the source once. `decode` takes the next tokens and a state, and returns logits
# and the next state, which holds the keys and values computed so far. Training and search use the
# same `decode`.

# %%
source, _, labels = batch(100)
model.eval()
with torch.no_grad():
    state = model.encode(source)
    current = torch.full((100, 1), config.pad)
    written = []
    for _ in range(labels.size(1)):
        logits, state = model.decode(current, state)
        current = logits[:, -1].argmax(-1, keepdim=True)
        written.append(current)
copied = (torch.cat(written, dim=1) == labels).all(dim=1).float().mean().item()
print(f"copied without a mistake: {copied:.0%} of 100 new sequences")

# %% [markdown]
# ## One translation, step by step
#
# Now follow one text through the trained model. `walkthrough` needs text, so we give the model a
# tokenizer: an object with `size`, `encode` and `decode`.

# %%
from transduce.inspection.walkthrough import walkthrough


class Letters:
    """The letters a to k as ids; the translator adds 2, and the end of the sentence."""

    letters = "abcdefghijk"
    size = len(letters)

    def encode(self, text: str) -> list[int]:
        """Return the id of each letter."""
        return [self.letters.index(letter) for letter in text]

    def decode(self, ids: list[int]) -> str:
        """Return the letters of ids."""
        return "".join(self.letters[index] for index in ids)


translator = transduce.Translator.from_model(model, Letters(), Letters(), recipe)
walk = walkthrough(translator, "facade", layer=1, head=1)
print(f"{walk.text} -> {walk.translation}\n")
for number, step in enumerate(walk.steps, start=1):
    print(f"{number:>2}. {step.title} (§{step.section}): {step.code.function} in {step.code.file}")

# %% [markdown]
# Every step has an explanation, a formula, the lines of code that compute it and the numbers of
# this text. In Jupyter, a cell with just `walk` shows all of it. The numbers are those of the
# model: here is Equation 1 once more, from the queries, keys and values of one head.

# %%
import numpy as np

heads = walk["queries-keys-values"].data
scores = heads["q"] @ heads["k"].T / np.sqrt(config.d_k)
weights = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
same = np.allclose(weights, walk["softmax"].data["weights"], atol=1e-5)
print("the same weights as in the model:", same)
same = np.allclose(weights @ heads["v"], walk["weighted-sum"].data["output"], atol=1e-5)
print("the same result of the head:", same)
print(walk["softmax"].explanation)

# %% [markdown]
# The lines of code come from the source of `transduce`, so they are the ones that ran:

# %%
print(walk["softmax"].code.lines)

# %% [markdown]
# Change something: divide by another number than `sqrt(d_k)`. The entropy says how evenly a row of
# weights is spread; the smaller the divisor, the more the softmax resembles a choice.

# %%
products = walk["scores"].data["scores"]
for divisor in (0.5, np.sqrt(config.d_k), 20.0):
    shares = np.exp(products / divisor)
    shares /= shares.sum(axis=1, keepdims=True)
    entropy = -(shares * np.log(shares)).sum(axis=1).mean()
    print(f"divided by {divisor:4.1f}: entropy {entropy:.2f} of at most {np.log(len(shares)):.2f}")

# %% [markdown]
# Take the mask of the decoder away (§3.2.3), and much of the attention goes where it must not: to
# letters that are not written yet, which are the answer.

# %%
masked = walk["mask"].data
scores = masked["q"] @ masked["k"].T / np.sqrt(config.d_k)
unmasked = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
future = masked["allowed"] == 0
print(f"attention to the future: {masked['weights'][future].sum():.2f} with the mask,", end=" ")
print(f"{unmasked[future].sum():.2f} without it, of {len(unmasked)} rows")

# %% [markdown]
# Take the positions away (§3.5), and the letters become a bag: the model no longer knows which
# came first. Moving all of them by some positions is harmless, as long as training had such
# positions; here it had only the first seven.

# %%
position = walk["position"].data
for name, translation in zip(position["variants"], position["translations"], strict=True):
    print(f"{'without positions' if name == 'none' else 'moved by ' + name:>17}: {translation}")

# %% [markdown]
# And this is how the model reads while it writes: cross-attention of the last layer, as a mean over
# its heads. Rows are the letters that the decoder writes, columns those of the source; darker
# cells have more weight. A model that has learned to copy reads from left to right.

# %%
numbers = range(1, config.h + 1)
maps = [walkthrough(translator, "facade", layer=config.N, head=head) for head in numbers]
reading = sum(found["cross-attention"].data["weights"] for found in maps) / config.h
print("      " + "".join(f"{token:>6}" for token in walk.source))
for token, line in zip(walk.target, reading.tolist(), strict=True):
    shades = [" ░▒▓█"[min(int(weight * 5), 4)] for weight in line]
    print(f"{token:>5} " + "".join(f"     {shade}" for shade in shades))

# %% [markdown]
# The same walk is in the browser, with sliders: start `transduce serve` with any model, and choose
# Learn.

# %% [markdown]
# ## Where to go next
#
# - [From the paper to the code](../paper-map.md) names the file and the test for every section.
# - [Your own text](your-own-text.md) trains a real model with one command.
# - [Changing the model](../extending.md) shows how to replace any part that you saw here.
