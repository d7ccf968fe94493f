"""A package in the layout that Argos Translate documents, whose parts work together as Argos uses them."""

import json
import zipfile

import numpy
import pytest
import sentencepiece

from transduce.decoding import conversion
from transduce.decoding.translator import Translator
from transduce.errors import ExportError
from transduce.export.argos import export

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
        found = engine.translate_batch([source], beam_size=1, max_decoding_length=10)[0].hypotheses[0]
        expected = ours.engine.search([ours.tokenizers[0].encode(sentence)], ours.search)[0][0].ids
        assert found == ours.tokenizers[1].pieces(expected[:10])


def test_two_tokenizers_are_refused_by_the_settings_name(bundle, make_bundle, tmp_path):
    files = {f"{side}.model": bundle.tokenizer_files["tokenizer.model"] for side in ("source", "target")}
    with pytest.raises(ExportError, match=r"data\.tokenizer\.joint is false"):
        export(make_bundle(files), tmp_path / "x.argosmodel")
    with pytest.raises(ExportError, match=r"does not end with \.argosmodel"):
        export(bundle, tmp_path / "x")


def test_a_package_that_differs_is_refused_and_leaves_nothing(bundle, tmp_path, monkeypatch):
    zeros = numpy.zeros((1024, bundle.recipe.model.d_model), dtype=numpy.float32)
    monkeypatch.setattr(conversion, "_table", lambda config, rows: zeros)
    with pytest.raises(ExportError, match="CTranslate2 gives token 1 of sample 1 the log-probability"):
        export(bundle, tmp_path / "x.argosmodel")
    assert list(tmp_path.iterdir()) == []
