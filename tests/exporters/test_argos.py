"""A package in the layout that Argos Translate documents, whose parts work together as Argos uses them."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy
import pytest
import sentencepiece

from tests import trained
from transduce.config import SearchConfig
from transduce.engines import conversion
from transduce.errors import ExportError
from transduce.exporters.argos import export
from transduce.storage.bundle import load_bundle
from transduce.translation.translator import Translator

ctranslate2 = pytest.importorskip("ctranslate2")


def test_a_package_translates_as_argos_would_use_it(bundle, sentences, tmp_path):
    report = export(bundle, tmp_path / "en_de.argosmodel", "float32")
    assert [path.name for path in tmp_path.iterdir()] == ["en_de.argosmodel"]
    with zipfile.ZipFile(tmp_path / "en_de.argosmodel") as package:
        package.extractall(tmp_path)
    folder = tmp_path / "translate-en_de-1_0"  # an installed package is a folder of its own
    assert json.loads((folder / "metadata.json").read_text()) == {
        "package_version": "1.0", "argos_version": "1.5",
        "from_code": "en", "from_name": "English", "to_code": "de", "to_name": "German",
    }  # fmt: skip
    assert json.loads((folder / "export.json").read_text()) == report
    assert "no model that splits text" in (folder / "README.md").read_text()
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.model"))
    engine = ctranslate2.Translator(str(folder / "model"), device="cpu")
    ours = Translator(bundle, engine="torch", device="cpu")
    for sentence in sentences[:5]:
        source = pieces.encode(sentence, out_type=str)  # without an end
        found = engine.translate_batch([source], beam_size=1, max_decoding_length=10)[0].hypotheses[
            0
        ]
        expected = ours.engine.search([ours.tokenizers[0].encode(sentence)], ours.search)[0][0].ids
        assert found == ours.tokenizers[1].pieces(expected[:10])


def save_splitter(path):
    """A model of MiniSBD by which a text is one sentence: none of its characters ends one."""
    onnx = pytest.importorskip("onnx")
    sizes = {
        "units": (onnx.TensorProto.INT64, ["B", "T"]),
        "features": (onnx.TensorProto.FLOAT, ["B", "T", "F"]),
    }
    numbers = {"nothing": [0], "classes": [5], "off_on": [0, 1]}
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("Mul", ["units", "nothing"], ["inside"]),
            onnx.helper.make_node("OneHot", ["inside", "classes", "off_on"], ["scores"]),
        ],
        "splitter",
        [onnx.helper.make_tensor_value_info(name, *about) for name, about in sizes.items()],
        [onnx.helper.make_tensor_value_info("scores", onnx.TensorProto.INT64, ["B", "T", 5])],
        [onnx.numpy_helper.from_array(numpy.array(value), name) for name, value in numbers.items()],
    )
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8
    )
    vocabulary = {
        "lang": "en",
        "_unit2id": {"<PAD>": 0, "<UNK>": 1},
        "_id2unit": ["<PAD>", "<UNK>"],
    }
    about = {"config": {"batch_size": 1}, "vocab": vocabulary}
    onnx.helper.set_model_props(model, {name: json.dumps(value) for name, value in about.items()})
    path.parent.mkdir()
    onnx.save(model, path)


INSTALL = """
import sys
from argostranslate import package
package.install_from_path(sys.argv[1])
(installed,) = package.get_installed_packages()
print(installed.package_path)
"""
TRANSLATE = """
import sys
from argostranslate import translate
print(*(translate.translate(text, "en", "de") for text in sys.argv[1:]), sep="\\n")
"""


def test_argos_translate_translates_as_we_do(tmp_path, monkeypatch):
    pytest.importorskip("argostranslate")
    bundle = load_bundle(trained.save(tmp_path / "bundle", steps=60, rows=32))
    export(bundle, tmp_path / "en_de.argosmodel", "float32")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ARGOS_BEAM_SIZE", "1")
    # The package's own; by itself Argos rounds every one to int8.
    monkeypatch.setenv("ARGOS_COMPUTE_TYPE", "default")

    def argos(script, *arguments):
        command = [sys.executable, "-W", "ignore", "-c", script, *map(str, arguments)]
        return subprocess.run(
            command, check=True, stdout=subprocess.PIPE, text=True
        ).stdout.splitlines()

    (folder,) = argos(INSTALL, tmp_path / "en_de.argosmodel")
    # As its README.md says; else one is fetched from the network.
    save_splitter(Path(folder) / "minisbd" / "none.onnx")
    texts = [source for source, _ in trained.splits()["test"][:5]]
    ours = Translator(bundle, engine="torch", device="cpu", search=SearchConfig(beam_size=1))
    # Argos takes one away.
    expected = [translation.text.removeprefix(" ") for translation in ours.translate(texts)]
    assert argos(TRANSLATE, *texts) == expected


def test_two_tokenizers_are_refused_by_the_settings_name(bundle, make_bundle, tmp_path):
    files = {
        f"{side}.model": bundle.tokenizer_files["tokenizer.model"] for side in ("source", "target")
    }
    with pytest.raises(ExportError, match=r"data\.tokenizer\.joint is false"):
        export(make_bundle(files), tmp_path / "x.argosmodel")
    with pytest.raises(ExportError, match=r"does not end with \.argosmodel"):
        export(bundle, tmp_path / "x")


def test_a_package_that_differs_is_refused_and_leaves_nothing(bundle, tmp_path, monkeypatch):
    zeros = numpy.zeros((1024, bundle.recipe.model.d_model), dtype=numpy.float32)
    monkeypatch.setattr(conversion, "_table", lambda config, rows: zeros)
    with pytest.raises(
        ExportError, match="CTranslate2 gives token 1 of sample 1 the log-probability"
    ):
        export(bundle, tmp_path / "x.argosmodel")
    assert list(tmp_path.iterdir()) == []
