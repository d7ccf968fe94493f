"""An export to Marian loads in the real `transformers`, which translates text as we do."""

import json
import logging
import re
import warnings

import pytest
import torch
import yaml

from transduce.config import SearchConfig
from transduce.corpora.phrases import write_phrases
from transduce.errors import ExportError
from transduce.exporters import huggingface
from transduce.exporters.huggingface import export
from transduce.recipe import read_recipe
from transduce.translation.translator import Translator

transformers = pytest.importorskip("transformers")

CARRIED = {
    "biases, gelu": {"attention_bias": True, "output_bias": True, "activation": "gelu"},
    "two-way, swish": {"sharing": "two-way", "activation": "swish"},
    "unshared": {"sharing": "none"},
}
REFUSED = {
    "norm_order": {"norm_order": "pre"},
    "norm": {"norm": "rms"},
    "norm_eps": {"norm_eps": 1e-6},
    "positions": {"positions": "rotary"},
    "activation": {"activation": "swiglu"},
    "r": {"r": 4},
    "d_k": {"d_k": 4},
    "d_v": {"d_v": 4},
}


def translate(folder, sentences):
    """As a user of `transformers` does it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Recommended: pip install sacremoses")
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    batch = tokenizer(sentences, return_tensors="pt", padding=True)
    return tokenizer.batch_decode(model.generate(**batch, max_length=20), skip_special_tokens=True)


def ours(bundle, sentences):
    translator = Translator(bundle, engine="torch", device="cpu")
    sources = translator.tokenizers[0].encode_batch(sentences)
    found = translator.engine.search(sources, translator.search)
    return [translator.tokenizers[1].decode(one[0].ids[:19]).strip() for one in found]


@pytest.fixture(scope="module")
def exported(bundle, tmp_path_factory):
    """The folder of an export, and its report."""
    folder = tmp_path_factory.mktemp("exports") / "out"
    return folder, export(bundle, folder)


def test_the_readme_inside_translates_as_we_do(make_bundle, tmp_path, monkeypatch, capsys, caplog):
    """With greedy search, since the length penalty of `transformers` is another one."""
    bundle = make_bundle()
    export(bundle, tmp_path / "out")
    (code,) = re.findall(
        r"```python\n(.*?)```", (tmp_path / "out/README.md").read_text(), flags=re.DOTALL
    )
    greedy = code.replace(f"num_beams={bundle.recipe.search.beam_size}", "num_beams=1")
    monkeypatch.chdir(tmp_path / "out")
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exec(greedy, {})
    ours = (
        Translator(bundle, engine="torch", search=SearchConfig(beam_size=1))
        .translate("in 98 weeks")
        .text
    )
    assert capsys.readouterr().out == f"{ours}\n"
    # A warning about it would be printed at every call.
    assert "max_length" not in caplog.text + "".join(str(warning.message) for warning in caught)


def test_the_readme_begins_with_what_model_hubs_read(exported):
    text = (exported[0] / "README.md").read_text()
    start, block, rest = text.split("---\n", 2)
    assert start == ""
    found = yaml.safe_load(block)
    assert (found["library_name"], found["pipeline_tag"]) == ("transformers", "translation")
    assert rest.startswith("\n# Translation from en to de\n")


def test_the_model_of_the_demo_can_be_exported(tmp_path):
    recipe = read_recipe(write_phrases(tmp_path, "en", "de", 10, 1))
    assert huggingface.refusal(recipe.model) is None


def test_all_of_an_export_may_be_read_by_the_same_people(exported):
    files = list(exported[0].iterdir())
    assert "model.safetensors" in [file.name for file in files]
    assert len({file.stat().st_mode for file in files}) == 1


def test_transformers_translates_text_as_we_do(exported, bundle, sentences):
    folder, report = exported
    assert report["largest_difference"] < 1e-5
    assert json.loads((folder / "export.json").read_text()) == report
    assert [path.name for path in folder.parent.iterdir()] == ["out"]
    assert translate(folder, sentences[:8]) == ours(bundle, sentences[:8])


@pytest.mark.parametrize("changes", CARRIED.values(), ids=CARRIED)
def test_what_marian_carries_is_the_same_there(changes, make_bundle, tmp_path):
    assert export(make_bundle(**changes), tmp_path / "out")["largest_difference"] < 1e-5


def test_a_tokenizer_for_each_language_becomes_two_vocabularies(
    bundle, make_bundle, sentences, tmp_path
):
    from tests import trained
    from transduce.config import TokenizerConfig
    from transduce.data.tokenizer import Tokenizer

    german = [target for _, target in trained.splits()["train"][:1000]]
    other = Tokenizer.train(german, TokenizerConfig(vocab_size=500)).to_bytes()
    files = {"source.model": bundle.tokenizer_files["tokenizer.model"], "target.model": other}
    apart = make_bundle(files, sharing="two-way")
    export(apart, tmp_path / "out")
    assert translate(tmp_path / "out", sentences[:4]) == ours(apart, sentences[:4])


@pytest.mark.parametrize("name", REFUSED)
def test_what_marian_cannot_carry_is_refused_by_its_name(name, make_bundle, tmp_path):
    # And no 16.0 where 16 is meant.
    with pytest.raises(ExportError, match=rf"model\.{name} (?!.*\.0)"):
        export(make_bundle(**REFUSED[name]), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_conversion_that_differs_is_refused_and_leaves_nothing(bundle, tmp_path, monkeypatch):
    right = huggingface._weights

    def perturbed(bundle):
        weights = right(bundle)
        weights["model.decoder.layers.1.fc1.weight"] = (
            weights["model.decoder.layers.1.fc1.weight"] + 0.01
        )
        return weights

    monkeypatch.setattr(huggingface, "_weights", perturbed)
    with pytest.raises(
        ExportError, match="transformers gives token 1 of sample 1 the log-probability"
    ):
        export(bundle, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_vocabulary_that_differs_is_refused(bundle, tmp_path, monkeypatch):
    right = huggingface.separate

    def swapped(model):
        names, model = right(model)
        return [*names[:300], names[301], names[300], *names[302:]], model

    monkeypatch.setattr(huggingface, "separate", swapped)
    with pytest.raises(ExportError, match="transformers encodes"):
        export(bundle, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_padding_is_never_said_and_starts_from_zero(exported, bundle):
    model = transformers.MarianMTModel.from_pretrained(exported[0])
    pad = bundle.recipe.model.pad
    assert not model.get_input_embeddings().weight[pad].any()
    assert (
        model(input_ids=torch.tensor([[5, 0]]), decoder_input_ids=torch.tensor([[pad]])).logits[
            0, 0, pad
        ]
        < -1e8
    )


def test_the_stock_converter_of_ctranslate2_takes_an_export(exported, bundle, sentences, tmp_path):
    ctranslate2 = pytest.importorskip("ctranslate2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ctranslate2.converters.TransformersConverter(str(exported[0])).convert(
            str(tmp_path / "converted")
        )
    translator = ctranslate2.Translator(str(tmp_path / "converted"), device="cpu")
    mine = Translator(bundle, engine="torch", device="cpu")
    source = mine.tokenizers[0].encode(sentences[0])
    found = translator.translate_batch(
        [mine.tokenizers[0].pieces(source)], beam_size=1, max_decoding_length=10
    )
    expected = mine.engine.search([source], mine.search)[0][0].ids
    assert found[0].hypotheses[0] == mine.tokenizers[1].pieces(expected[:10])
