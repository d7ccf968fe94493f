"""The model in ten lines: a Transformer learns to copy sequences that it has never seen.

python examples/copy_task.py
"""

import torch
import torch.nn.functional as F

from transduce import ModelConfig, Transformer

EOS, PAD = 0, 13  # the end of a sentence is 0; padding is the last id, and it also starts every target


def batch(rows: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Random sequences: the source, the decoder's input (shifted right), and the labels."""
    tokens = torch.randint(2, 13, (rows, 8))
    end, start = torch.full((rows, 1), EOS), torch.full((rows, 1), PAD)
    return torch.cat([tokens, end], 1), torch.cat([start, tokens], 1), torch.cat([tokens, end], 1)


def main() -> None:
    torch.manual_seed(1)
    model = Transformer(ModelConfig(vocab_size=14, N=1, d_model=32, d_ff=64, h=4, d_k=8, d_v=8, p_drop=0.0))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    # Teacher forcing: every position predicts the next token at once.
    for step in range(1, 301):
        source, inputs, labels = batch(64)
        loss = F.cross_entropy(model(source, inputs).flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step}: loss {loss.item():.4f}")

    # Step by step: the same `decode`, one token at a time, with a state that remembers the ones before.
    source, _, labels = batch(100)
    with torch.no_grad():
        state = model.eval().encode(source)
        tokens, said = torch.full((100, 1), PAD), []
        for _ in range(labels.size(1)):
            logits, state = model.decode(tokens, state)
            tokens = logits[:, -1].argmax(-1, keepdim=True)
            said.append(tokens)
    copied = (torch.cat(said, 1) == labels).all(1).float().mean().item()
    print(f"copied without a mistake: {copied:.0%} of 100 sequences never seen before")


if __name__ == "__main__":
    main()
