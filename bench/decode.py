"""Translating beside Hugging Face's generate, in one run: python -m bench.decode [--preset base] [--batches 1 64].

Both have the shape of the preset and random weights, read 28 tokens and are made to write 30. Contenders take turns;
the least time of the rounds counts, and the time to read the decoder's weights once a step is shown beside it. With
--profile, before that, the dearest kernels of one search of ours, and how many there are.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch

from bench.profiling import kernels_of
from transduce.config import ModelConfig, SearchConfig
from transduce.engines.torch import TorchEngine
from transduce.model import Transformer
from transduce.monitoring.hardware import hardware
from transduce.presets import preset

READ, WRITTEN = 28, 30
RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Measure, print a table and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="base")
    parser.add_argument("--batches", type=int, nargs="+", default=[1])
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--precision", choices=["float32", "bf16"], default="float32")
    parser.add_argument("--profile", action="store_true", help="the dearest kernels of one search")
    parser.add_argument("--json", type=Path, default=RESULTS / "decode.json")
    options = parser.parse_args()
    options.json.parent.mkdir(exist_ok=True)
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.float32 if options.precision == "float32" else torch.bfloat16
    config = preset(options.preset).model
    torch.manual_seed(1)
    model = Transformer(config).to(device, dtype).eval().requires_grad_(False)
    engine, generate = TorchEngine(model, device=device, frozen=True), marian(config, device, dtype)
    weights = [
        each
        for name, each in model.named_parameters()
        if name.startswith(("decoder", "target_embedding"))
    ]
    read = least(lambda: [weight.sum() for weight in weights], options.rounds)
    print(
        f"{options.preset}, {options.precision}, {device.type}: reading the decoder's weights {read * 1e3:.1f} ms"
    )
    rows: list[dict[str, float]] = []
    result = {
        "preset": options.preset,
        "precision": options.precision,
        "device": hardware(),
        "tokens_per_second": rows,
    }
    # Now and after each row: nothing measured is lost.
    options.json.write_text(json.dumps(result, indent=1))
    for batch in options.batches:
        sources = [
            [*row, 0] for row in torch.randint(2, config.vocab_size - 1, (batch, READ - 1)).tolist()
        ]
        for beam in options.beams:
            search = SearchConfig(beam_size=beam, min_length=WRITTEN, max_length=WRITTEN)
            contenders = {
                "transduce": lambda s=sources, c=search: engine.search(s, c, token_scores=False),
                "generate": lambda s=sources, b=beam: generate(s, b),
            }
            if options.profile:
                profile(contenders["transduce"], device)
            times = dict.fromkeys(contenders, float("inf"))
            for _ in range(options.rounds):
                for name, contender in contenders.items():
                    times[name] = min(times[name], least(contender, 1))
            rates = " ".join(
                f"{name} {batch * WRITTEN / each:>9,.0f} tokens/s" for name, each in times.items()
            )
            ratio, step = times["generate"] / times["transduce"], times["transduce"] / WRITTEN * 1e3
            print(f"batch {batch:>3} beam {beam}: {rates}  ratio {ratio:.2f}  {step:.2f} ms a step")
            rows.append(
                {
                    "batch": batch,
                    "beam": beam,
                    "ratio": ratio,
                    **{name: batch * WRITTEN / each for name, each in times.items()},
                }
            )
            options.json.write_text(json.dumps(result, indent=1))


def profile(search: Callable[[], object], device: torch.device) -> None:
    """Print the dearest kernels of one search, warm."""
    for _ in range(3):
        search()
    kernels = kernels_of(search, device)
    count = sum(count for _, count, _ in kernels)
    print(
        f"{sum(each for each, _, _ in kernels):9.2f} ms in {count:,} kernels, {count / WRITTEN:.0f} a token"
    )
    for milliseconds, count, name in kernels[:16]:
        print(f"{milliseconds:9.2f} ms {count:6} x {name[:100]}")


def least(function: Callable[[], object], rounds: int) -> float:
    """The seconds of the fastest of several calls."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        function()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times)


def marian(
    c: ModelConfig, device: torch.device, dtype: torch.dtype
) -> Callable[[list[list[int]], int], object]:
    """Hugging Face's model of that shape, as a function of sources and beam."""
    from transformers import MarianConfig, MarianMTModel

    model = MarianMTModel(
        MarianConfig(
            vocab_size=c.vocab_size, d_model=c.d_model, encoder_layers=c.N, decoder_layers=c.decoder_layers,
            encoder_attention_heads=c.h, decoder_attention_heads=c.h, encoder_ffn_dim=c.d_ff, decoder_ffn_dim=c.d_ff,
            activation_function="relu", scale_embedding=True, pad_token_id=c.pad, decoder_start_token_id=c.pad,
            eos_token_id=0, max_position_embeddings=512,
        )
    )  # fmt: skip
    model = model.to(device, dtype).eval()

    @torch.inference_mode()
    def generate(sources: list[list[int]], beam: int) -> object:
        ids = torch.tensor(sources, device=device)
        return model.generate(
            ids, attention_mask=torch.ones_like(ids), num_beams=beam, do_sample=False,
            min_new_tokens=WRITTEN, max_new_tokens=WRITTEN,
        )  # fmt: skip

    return generate


if __name__ == "__main__":
    main()
