"""Export to ONNX: two graphs, encoder and decoder, with the tokenizer, verified in onnxruntime.

The decoder reads the whole target prefix at every step. It has no cache, so that any runtime can
run it and anyone can call it.
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
from transduce.exporters.output import complete_output, write_report
from transduce.exporters.verification import verify
from transduce.model import State, Tokens, Transformer
from transduce.model.state import LayerCache
from transduce.storage.bundle import Bundle


def export(bundle: Bundle, out: Path) -> dict[str, Any]:
    """Write the folder `out`, and return the report that is written into it."""
    for library in ("onnx", "onnxscript", "onnxruntime"):
        require(library, extra="export")
    model = load_model(bundle)
    with complete_output(out) as work:
        work.mkdir()
        _write(model, work)
        for name, content in bundle.tokenizer_files.items():
            (work / name).write_bytes(content)
        (work / "README.md").write_text(_readme(bundle, model), encoding="utf-8")
        figures = verify(load_model(bundle), _Runtime(work, model.config.pad))
        return write_report(work, bundle, figures)


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
        """Return the log-probabilities of the token after each target token.

        (B, T), (B, S, d_model), (B, S) -> (B, T, V).
        """
        source_tokens = Tokens.rows(source, pad=self.model.config.source_pad)
        layers = tuple(LayerCache() for _ in self.model.decoder)
        logits, _ = self.model.decode(target, State(memory, source_tokens, layers))
        is_padding = torch.arange(logits.size(-1)) == self.model.config.pad
        return logits.masked_fill(is_padding, -torch.inf).log_softmax(-1)


def _write(model: Transformer, work: Path) -> None:
    """Write encoder.onnx and decoder.onnx, with dynamic batch size and lengths."""
    batch = torch.export.Dim("batch")
    S = torch.export.Dim("source_length")
    T = torch.export.Dim("target_length")
    # A size of 1 would become a constant of the graph.
    source = torch.full((2, 3), 2)
    target = torch.full((2, 4), 2)
    memory = torch.zeros(2, 3, model.config.d_model)
    _write_graph(
        work / "encoder.onnx",
        _Encoder(model),
        inputs={"source": source},
        shapes={"source": {0: batch, 1: S}},
        output="memory",
    )
    _write_graph(
        work / "decoder.onnx",
        _Decoder(model),
        inputs={"target": target, "memory": memory, "source": source},
        shapes={
            "target": {0: batch, 1: T},
            "memory": {0: batch, 1: S},
            "source": {0: batch, 1: S},
        },
        output="log_probs",
    )


def _write_graph(
    file: Path, module: nn.Module, inputs: dict[str, Tensor], shapes: dict[str, Any], output: str
) -> None:
    with _quiet():
        torch.onnx.export(
            module.eval(),
            kwargs=inputs,
            f=file,
            dynamo=True,
            dynamic_shapes=shapes,
            input_names=list(inputs),
            output_names=[output],
            external_data=False,
            verbose=False,
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the exporter's warnings about itself and about optional libraries."""
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
    """The two graphs in onnxruntime on a CPU."""

    name = "onnxruntime"

    def __init__(self, folder: Path, pad: int) -> None:
        runtime = require("onnxruntime", extra="export")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        self._pad = pad

        def load(name: str) -> Any:
            return runtime.InferenceSession(
                folder / name, options, providers=["CPUExecutionProvider"]
            )

        self._encoder = load("encoder.onnx")
        self._decoder = load("decoder.onnx")

    def log_probs(self, source: Sequence[int], target: Sequence[int]) -> Sequence[float]:
        log_probs = self._decode(source, [self._pad, *target[:-1]])
        return [float(log_probs[position, token]) for position, token in enumerate(target)]

    def greedy(self, source: Sequence[int], length: int) -> Sequence[int]:
        target = [self._pad]
        while len(target) <= length:
            token = int(self._decode(source, target)[-1].argmax())
            if token == 0:
                break
            target.append(token)
        return target[1:]

    def _decode(self, source: Sequence[int], target: Sequence[int]) -> Any:
        source_ids = torch.tensor([list(source)]).numpy()
        target_ids = torch.tensor([list(target)]).numpy()
        (memory,) = self._encoder.run(None, {"source": source_ids})
        inputs = {"source": source_ids, "target": target_ids, "memory": memory}
        (log_probs,) = self._decoder.run(None, inputs)
        return log_probs[0]  # (T, V)


def _readme(bundle: Bundle, model: Transformer) -> str:
    data = bundle.recipe.data
    config = model.config
    source, target = bundle.tokenizer_names
    return f"""# Translation from {data.source_language} to {data.target_language}, in ONNX

`encoder.onnx` reads token ids. `decoder.onnx` returns the log-probabilities of the token after each
token of a translation so far. Token 0 ends every sentence, {config.pad} starts a translation, and
{config.source_pad} pads the rows of sources.

```python
import numpy as np, onnxruntime, sentencepiece

encoder = onnxruntime.InferenceSession("encoder.onnx")
decoder = onnxruntime.InferenceSession("decoder.onnx")
reader = sentencepiece.SentencePieceProcessor(model_file="{source}")
writer = sentencepiece.SentencePieceProcessor(model_file="{target}")
source = np.array([reader.encode("in 98 weeks", add_eos=True)])
(memory,) = encoder.run(None, {{"source": source}})
target = [{config.pad}]
while len(target) <= source.size + 50 and (len(target) == 1 or target[-1] != 0):
    inputs = {{"target": np.array([target]), "memory": memory, "source": source}}
    target.append(int(decoder.run(None, inputs)[0][0, -1].argmax()))
print(writer.decode([token for token in target[1:] if token]))
```

`export.json` has the comparison of this model with the original.
"""
