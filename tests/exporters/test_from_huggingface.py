"""MarianMT folders are imported exactly: the same ids, the same numbers, and the same after an export."""

import json
import warnings

import pytest
import torch

from tests.exporters import opus
from transduce.config import SearchConfig
from transduce.errors import ExportError
from transduce.exporters import from_huggingface
from transduce.exporters.from_huggingface import import_model
from transduce.exporters.huggingface import export
from transduce.storage.bundle import load_bundle
from transduce.translation.translator import Translator

transformers = pytest.importorskip("transformers")

FOLDERS = {
    "opus": {},
    "bpe, multilingual": {"kind": "bpe", "codes": (">>deu<<", ">>fra<<")},
    "two vocabularies": {"share_encoder_decoder_embeddings": False},
    "unscaled, in another order": {
        "scale_embedding": False,
        "activation_function": "gelu",
        "special": ("<unk>", "</s>"),
    },
}


def theirs(folder):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Recommended: pip install sacremoses")
        return transformers.MarianTokenizer.from_pretrained(folder)


@pytest.mark.filterwarnings("ignore")
def test_weights_that_are_not_there_are_not_made_up(tmp_path):
    folder = opus.folder(tmp_path / "folder")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps(config | {"decoder_layers": config["decoder_layers"] + 1})
    )
    with pytest.raises(ExportError, match=r"has no weights for model\.decoder\.layers\.\d"):
        import_model(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("settings", FOLDERS.values(), ids=FOLDERS)
def test_import_and_export_and_import_is_exact(settings, tmp_path):
    folder = opus.folder(tmp_path / "folder", **settings)
    assert import_model(folder, tmp_path / "first")["largest_difference"] < 1e-5
    first = load_bundle(tmp_path / "first")
    export(first, tmp_path / "exported")
    import_model(tmp_path / "exported", tmp_path / "second")
    second = load_bundle(tmp_path / "second")
    before, after = first.weights(), second.weights()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert first.tokenizer_files == second.tokenizer_files
    assert first.recipe == second.recipe


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_real_text_becomes_the_same_ids_as_in_marian(kind, tmp_path):
    folder = opus.folder(tmp_path / "folder", kind=kind, orphans=20, codes=(">>deu<<",))
    import_model(folder, tmp_path / "bundle")
    source, target = Translator(tmp_path / "bundle", engine="torch", device="cpu").tokenizers
    other = theirs(folder)
    size = len(other.encoder)
    # German too, with letters that the model has never seen; two in a row Marian takes for one.
    texts = [text for pair in opus.pairs()[:300] for text in pair if "Z\u0142oty" not in text]
    unknown = 0
    for text in [*texts, *(f">>deu<< {text}" for text in texts[:20])]:
        ids = source.encode(text)
        unknown += sum(token >= size - 1 for token in ids)
        assert [1 if token >= size - 1 else token for token in ids] == other(text).input_ids
    assert unknown  # some pieces are not in vocab.json
    foreign = [
        token
        for token in range(2, size - 2)
        if target.encode(target.pieces([token])[0])[1:2] != [token]
    ]
    assert foreign
    for token in foreign:
        assert target.decode([token, 5]).strip() == other.decode([token, 5]).strip()


def test_a_code_of_the_target_language_counts_for_every_sentence_of_a_text(tmp_path):
    import_model(opus.folder(tmp_path / "folder", codes=(">>deu<<",)), tmp_path / "bundle")
    translator = Translator(tmp_path / "bundle", engine="torch", device="cpu")
    assert (
        translator.tokenizers[0].encode(">>deu<< x")[0] != translator.tokenizers[0].encode("x")[0]
    )
    one, two = ("The answer is sixteen.", "The price rose by 3%.")
    alone = [translator.translate(f">>deu<< {text}") for text in (one, two)]
    assert abs(alone[1].score - translator.translate(two).score) > 1e-3
    together = translator.translate(f">>deu<< {one} {two}")
    scores = [part.score for part in alone]
    assert [part.score for part in together.sentences] == pytest.approx(scores, abs=1e-5)


def test_a_bundle_translates_text_as_the_folder_does(tmp_path):
    folder = opus.folder(tmp_path / "folder")
    import_model(folder, tmp_path / "bundle")
    translator = Translator(tmp_path / "bundle", engine="torch", device="cpu")
    texts = [source for source, _ in opus.pairs()[:6]]
    sources = translator.tokenizers[0].encode_batch(texts)
    found = translator.engine.search(
        sources, SearchConfig(beam_size=1, max_length=12, min_length=0)
    )
    ours = [translator.tokenizers[1].decode(one[0].ids).strip() for one in found]
    tokenizer, model = theirs(folder), transformers.MarianMTModel.from_pretrained(folder).eval()
    batch = tokenizer(texts, return_tensors="pt", padding=True)
    ids = model.generate(**batch, num_beams=1, max_length=None, max_new_tokens=13)
    assert ours == tokenizer.batch_decode(ids, skip_special_tokens=True)
    assert translator.recipe.search.beam_size == 6


@pytest.mark.parametrize(
    "settings",
    [
        {"normalize_before": True},
        {"add_final_layer_norm": True},
        {"static_position_embeddings": False},
        {"decoder_ffn_dim": None},  # left out: what it then is does not fit
        {"decoder_attention_heads": 2},
        {"decoder_start_token_id": 0},
        {"activation_function": "tanh"},
        {"model_type": "bart"},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_what_a_bundle_cannot_carry_is_refused_by_its_name(settings, folder, tmp_path):
    path = folder / "config.json"
    original = path.read_text()
    changed = {**json.loads(original), **settings}
    path.write_text(
        json.dumps({name: value for name, value in changed.items() if value is not None})
    )
    try:
        with pytest.raises(ExportError, match=next(iter(settings))):
            import_model(folder, tmp_path / "bundle")
    finally:
        path.write_text(original)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return opus.folder(tmp_path_factory.mktemp("folders") / "folder")


def test_weights_of_torch_are_read_but_code_in_them_never_runs(tmp_path):
    folder = opus.folder(tmp_path / "folder")
    state = transformers.MarianMTModel.from_pretrained(folder).state_dict()
    (folder / "model.safetensors").unlink()
    torch.save(state, folder / "pytorch_model.bin")
    assert import_model(folder, tmp_path / "bundle")["largest_difference"] < 1e-5

    class Poison:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    torch.save({**state, "poison": Poison()}, folder / "pytorch_model.bin")
    with pytest.raises(ExportError, match="cannot be loaded by transformers"):
        import_model(folder, tmp_path / "other")
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "other").exists()


def test_a_conversion_that_differs_is_refused_and_leaves_nothing(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(from_huggingface, "halves", torch.arange)  # sinusoids in Marian's order
    with pytest.raises(
        ExportError, match="transformers gives token 1 of sample 1 the log-probability"
    ):
        import_model(folder, tmp_path / "bundle")
    assert list(tmp_path.iterdir()) == []


def test_pieces_that_differ_are_refused(folder, tmp_path, monkeypatch):
    right = from_huggingface.arrange

    def swapped(model, names, side):
        return right(model, [*names[:9], names[10], names[9], *names[11:]], side)

    monkeypatch.setattr(from_huggingface, "arrange", swapped)
    with pytest.raises(ExportError, match="transformers encodes"):
        import_model(folder, tmp_path / "bundle")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_none_is_one_clear_line(folder, tmp_path):
    (folder / "vocab.json").write_text('{"</s>": 0, "<unk>": 1, "a": 3, "<pad>": 4}')
    with pytest.raises(ExportError, match="skips or repeats ids"):
        import_model(folder, tmp_path / "bundle")
    (folder / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(ExportError, match="cannot be loaded by transformers"):
        import_model(folder, tmp_path / "bundle")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("encoder_layers", 1_000_000),
        ("max_position_embeddings", 10_000_000),
        ("encoder_attention_heads", 0),
        ("pad_token_id", -1),
        ("eos_token_id", 10**9),
        ("is_encoder_decoder", False),
        ("d_model", "512"),
    ],
)
def test_sizes_that_no_model_has_are_refused_before_they_are_built(
    name, value, bundle, tmp_path, monkeypatch
):
    monkeypatch.setattr(from_huggingface, "load_marian", lambda _: pytest.fail("it was built"))
    folder = tmp_path / "marian"
    folder.mkdir()
    settings = {"model_type": "marian", "vocab_size": 500, "pad_token_id": 499, "eos_token_id": 0}
    settings |= {"decoder_start_token_id": 499, "decoder_vocab_size": 500, name: value}
    (folder / "config.json").write_text(json.dumps(settings))
    with pytest.raises(ExportError, match=f"{name}|cannot be loaded by transformers"):
        from_huggingface.import_model(folder, tmp_path / "out")
