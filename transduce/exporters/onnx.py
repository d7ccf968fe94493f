"""A bundle as two ONNX graphs, encoder and decoder, with its tokenizer: checked in onnxruntime.

The decoder reads a whole prefix at every step: no cache, so a graph that any runtime can run and anyone can call.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from transduce.engines.torch import load_model
from transduce.errors import require
from transduce.exporters.output import made_whole, write_report
from transduce.exporters.verification import verify
from transduce.model import State, Tokens, Transformer
from transduce.model.state import LayerCache
from transduce.storage.bundle import Bundle


def export(bundle: Bundle, out: Path) -> dict[str, Any]:
    """Make the folder `out`; the report that is written into it."""
    for library in ("onnx", "onnxscript", "onnxruntime"):
        require(library, extra="export")
    model = load_model(bundle)
    with made_whole(out) as work:
        work.mkdir()
        _write(model, work)
        for name, content in bundle.tokenizer_files.items():
            (work / name).write_bytes(content)
        (work / "README.md").write_text(_readme(bundle, model), encoding="utf-8")
        return write_report(
            work, bundle, verify(load_model(bundle), _Runtime(work, model.config.pad))
        )


class _Encoder(nn.Module):
    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor) -> Tensor:
        """(B, S) -> (B, S, d_model)."""
        return self.model.encode(source).memory


class _Decoder(nn.Module):
    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, target: Tensor, memory: Tensor, source: Tensor) -> Tensor:
        """(B, T), (B, S, d_model), (B, S) -> log-probabilities (B, T, V) of what follows each target token."""
        places = Tokens.rows(source, pad=self.model.config.source_pad)
        layers = tuple(LayerCache() for _ in self.model.decoder)
        logits, _ = self.model.decode(target, State(memory, places, layers))
        never = torch.arange(logits.size(-1)) == self.model.config.pad
        return logits.masked_fill(never, -torch.inf).log_softmax(-1)


def _write(model: Transformer, work: Path) -> None:
    batch, S, T = (torch.export.Dim(name) for name in ("batch", "source_length", "target_length"))
    source, target = (
        torch.full((2, 3), 2),
        torch.full((2, 4), 2),
    )  # a size of 1 would be taken for a constant
    memory = torch.zeros(2, 3, model.config.d_model)
    graphs: list[tuple[str, nn.Module, dict[str, Tensor], dict[str, Any], str]] = [
        ("encoder", _Encoder(model), {"source": source}, {"source": {0: batch, 1: S}}, "memory"),
        (
            "decoder",
            _Decoder(model),
            {"target": target, "memory": memory, "source": source},
            {"target": {0: batch, 1: T}, "memory": {0: batch, 1: S}, "source": {0: batch, 1: S}},
            "log_probs",
        ),
    ]
    for name, module, inputs, shapes, output in graphs:
        with _quiet():
            torch.onnx.export(
                module.eval(),
                kwargs=inputs,
                f=work / f"{name}.onnx",
                dynamo=True,
                dynamic_shapes=shapes,
                input_names=list(inputs),
                output_names=[output],
                external_data=False,
                verbose=False,
            )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without what the exporter says about itself: its own warnings, and each library that it could also use."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


class _Runtime:
    """The two graphs in onnxruntime, on a CPU."""

    name = "onnxruntime"

    def __init__(self, folder: Path, pad: int) -> None:
        runtime = require("onnxruntime", extra="export")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        self._encoder, self._decoder = (
            runtime.InferenceSession(
                folder / f"{name}.onnx", options, providers=["CPUExecutionProvider"]
            )
            for name in ("encoder", "decoder")
        )
        self._pad = pad

    def log_probs(self, source: Sequence[int], target: Sequence[int]) -> Sequence[float]:
        found = self._decode(source, [self._pad, *target[:-1]])
        return [float(found[place, token]) for place, token in enumerate(target)]

    def greedy(self, source: Sequence[int], length: int) -> Sequence[int]:
        target = [self._pad]
        while len(target) <= length:
            token = int(self._decode(source, target)[-1].argmax())
            if token == 0:
                break
            target.append(token)
        return target[1:]

    def _decode(self, source: Sequence[int], target: Sequence[int]) -> Any:
        ids = {
            name: torch.tensor([list(each)]).numpy()
            for name, each in (("source", source), ("target", target))
        }
        (memory,) = self._encoder.run(None, {"source": ids["source"]})
        return self._decoder.run(None, {**ids, "memory": memory})[0][0]  # (T, V)


def _readme(bundle: Bundle, model: Transformer) -> str:
    data, config = bundle.recipe.data, model.config
    source, target = bundle.tokenizer_names
    return f"""# Translation from {data.source_language} to {data.target_language}, in ONNX

`encoder.onnx` reads token ids, `decoder.onnx` gives the log-probabilities of what follows each token of a translation
so far. Token 0 ends every sentence, {config.pad} starts a translation, {config.source_pad} fills a source's row.

```python
import numpy as np, onnxruntime, sentencepiece

encoder, decoder = (onnxruntime.InferenceSession(f"{{name}}.onnx") for name in ("encoder", "decoder"))
reader, writer = (sentencepiece.SentencePieceProcessor(model_file=name) for name in ("{source}", "{target}"))
source = np.array([reader.encode("in 98 weeks", add_eos=True)])
(memory,) = encoder.run(None, {{"source": source}})
target = [{config.pad}]
while len(target) <= source.size + 50 and (len(target) == 1 or target[-1] != 0):
    inputs = {{"target": np.array([target]), "memory": memory, "source": source}}
    target.append(int(decoder.run(None, inputs)[0][0, -1].argmax()))
print(writer.decode([token for token in target[1:] if token]))
```

`export.json` says how this was compared with the model that it was made of.
"""
