"""The two graphs run in the real onnxruntime, and give what the model gives."""

import json
import re
import shutil
import subprocess
import sys

import numpy
import pytest

from transduce.errors import ExportError
from transduce.exporters import onnx
from transduce.exporters.onnx import export
from transduce.storage.bundle import load_bundle, save_bundle
from transduce.translation.translator import Translator

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


@pytest.fixture(scope="module")
def exported(bundle, tmp_path_factory):
    """The folder of an export, and its report."""
    folder = tmp_path_factory.mktemp("exports") / "out"
    return folder, export(bundle, folder)


def test_an_export_brings_its_tokenizer_and_report(exported, bundle):
    folder, report = exported
    assert report["largest_difference"] < 1e-5
    assert report["same_translations"] == report["sequences"]
    assert json.loads((folder / "export.json").read_text()) == report
    assert (folder / "tokenizer.model").read_bytes() == bundle.tokenizer_files["tokenizer.model"]
    assert [path.name for path in folder.parent.iterdir()] == ["out"]


def test_batches_of_any_shape_and_padding_change_nothing(exported, bundle):
    folder, _ = exported
    encoder, decoder = (
        onnxruntime.InferenceSession(folder / f"{name}.onnx") for name in ("encoder", "decoder")
    )
    pad = bundle.recipe.model.pad

    def log_probs(source, target):
        (memory,) = encoder.run(None, {"source": source})
        return decoder.run(None, {"target": target, "memory": memory, "source": source})[0]

    source = numpy.array([[7, 8, 9, 10, 0], [5, 0, pad, pad, pad], [40, 41, 42, 0, pad]])
    target = numpy.array([[pad, 3], [pad, 4], [pad, 5]])
    together = log_probs(source, target)
    for row, length in enumerate((5, 2, 4)):
        alone = log_probs(source[row : row + 1, :length], target[row : row + 1])[0]
        assert numpy.allclose(together[row], alone, atol=1e-4)
    assert (together[:, :, pad] == -numpy.inf).all()
    assert numpy.allclose(numpy.exp(together).sum(-1), 1, atol=1e-4)


def test_the_readme_inside_translates_as_we_do(exported, bundle):
    folder, _ = exported
    (code,) = re.findall(
        r"```python\n(.*?)```", (folder / "README.md").read_text(), flags=re.DOTALL
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True
    )
    ours = Translator(bundle, engine="torch", device="cpu")
    ids = ours.engine.search([ours.tokenizers[0].encode("in 98 weeks")], ours.search)[0][0].ids
    assert done.stdout == ours.tokenizers[1].decode(ids) + "\n"


def test_graphs_that_differ_are_refused_and_leave_nothing(exported, bundle, tmp_path, monkeypatch):
    """The graphs of a model that differs in one number."""
    weights = bundle.weights()
    weights["decoder.0.feed_forward.w_1.bias"][3] += 1
    path = save_bundle(tmp_path / "bundle", bundle.recipe, weights, bundle.tokenizer_files, {}, {})

    def write(model, work):
        for name in ("encoder.onnx", "decoder.onnx"):
            shutil.copy(exported[0] / name, work)

    monkeypatch.setattr(onnx, "_write", write)
    with pytest.raises(
        ExportError, match="onnxruntime gives token 1 of sample 1 the log-probability"
    ):
        export(load_bundle(path), tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"norm_order": "pre", "norm": "rms", "activation": "swiglu", "positions": "rotary"},
        {"positions": "learned", "sharing": "none", "d_k": 4},
        {
            "positions": "none",
            "r": 4,
            "output_bias": True,
            "attention_bias": True,
            "kernel": "written-out",
        },
    ],
    ids=["modern", "learned", "neighbourhood"],
)
def test_every_variation_of_the_model_is_carried(changes, make_bundle, tmp_path):
    assert export(make_bundle(**changes), tmp_path / "out")["largest_difference"] < 1e-5
