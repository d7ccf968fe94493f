"""A bundle has everything it needs, or is refused with one clear line."""

import contextlib
import io
import json
import os
import pickle
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
import safetensors.torch
import sentencepiece
import torch

from tests.fault_injection import killed_at_each_point, listing, rewrite_manifest
from transduce.config import ModelConfig, Recipe
from transduce.errors import BundleError
from transduce.model.tokens import Tokens
from transduce.model.transformer import Transformer
from transduce.presets import preset
from transduce.storage import sealed_folder
from transduce.storage.bundle import (
    BUNDLE,
    WEIGHTS,
    load_bundle,
    save_bundle,
)
from transduce.storage.checkpoint import save_checkpoint
from transduce.storage.sealed_folder import MANIFEST, write_folder
from transduce.storage.tensors import file_size, pack

V = 40
RECIPE = Recipe(model=ModelConfig(vocab_size=V, N=1, d_model=16, d_ff=32, h=2, d_k=8, d_v=8))
SCORES = {"bleu": 27.3, "chrF": 55.0}
PROVENANCE = {"data": "3f" * 32, "steps": 100_000, "note": "a | b"}


def train_tokenizer(pieces):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["the cat sat on the mat", "a dog saw the red fox run by"] * 5),
        model_writer=model,
        model_type="bpe",
        vocab_size=pieces,
        eos_id=0,
        unk_id=1,
        bos_id=-1,
        pad_id=pieces - 1,
        minloglevel=2,
    )
    return model.getvalue()


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(V)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Transformer(RECIPE.model).eval()


@pytest.fixture
def save(tmp_path, model, tokenizer):
    """Save the sample bundle, or one that differs in something."""

    def save(path="saved", **changes):
        parts = {
            "recipe": RECIPE,
            "weights": model.state_dict(),
            "tokenizer_files": {"tokenizer.model": tokenizer},
            "scores": SCORES,
            "provenance": PROVENANCE,
        }
        return save_bundle(tmp_path / path, **(parts | changes))

    return save


def test_everything_comes_back(save, model, tokenizer):
    found = load_bundle(str(save()))
    assert found.recipe == RECIPE
    assert found.tokenizer_files == {"tokenizer.model": tokenizer}
    assert found.scores == SCORES
    assert found.provenance == PROVENANCE
    fresh = Transformer(found.recipe.model).eval()
    fresh.load_state_dict(found.weights())
    source = Tokens.padded([[5, 9, 0], [7, 0]], pad=V - 1)
    target = source.shifted_right(pad=V - 1)
    assert torch.equal(fresh(source, target), model(source, target))


def test_two_tokenizers_and_further_files_are_kept(save, tokenizer):
    vocabularies = replace(RECIPE.model, source_vocab_size=V + 1, sharing="two-way")
    files = {
        "source.model": train_tokenizer(V + 1),
        "target.model": tokenizer,
        "rules.tsv": b"\xff",
    }
    weights = Transformer(vocabularies).state_dict()
    path = save(recipe=replace(RECIPE, model=vocabularies), weights=weights, tokenizer_files=files)
    assert load_bundle(path).tokenizer_files == files


def test_the_fingerprint_is_that_of_the_contents(save):
    first, again = load_bundle(save("first")), load_bundle(save("again"))
    other = load_bundle(save("other", scores={"bleu": 1.0}))
    assert first.fingerprint == again.fingerprint
    assert other.fingerprint != first.fingerprint


def test_its_name_is_that_of_its_folder_or_of_its_run(save):
    folder = save()
    assert load_bundle(folder).name == folder.name
    for place, name in [
        ("runs/large/best", "large"),
        ("runs/large/last", "large"),
        ("runs/small/run/best", "small/run"),  # a student
    ]:
        path = folder.parent / place
        path.parent.mkdir(parents=True, exist_ok=True)
        assert load_bundle(shutil.copytree(folder, path)).name == name
    # A name that is not UTF-8 can be written into the card of another model.
    other = folder.rename(folder.with_name(os.fsdecode(b"large-\xff")))
    assert load_bundle(other).name == "large-\ufffd"


def test_the_card_tells_what_the_bundle_is(save):
    card = (save() / "README.md").read_text()
    for fact in (
        "from en to de",
        "d_model = 16",
        "| BLEU | 27.3 |",
        "| steps | 100000 |",
        r"| note | a \| b |",
    ):
        assert fact in card
    assert f"{sum(p.numel() for p in Transformer(RECIPE.model).parameters()):,} parameters" in card


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokenizer_files": {}}, "has no tokenizer.model, nor a source.model and a target.model"),
        (
            {"tokenizer_files": {"tokenizer.model": b"no"}},
            "tokenizer.model is not a SentencePiece model",
        ),
        (
            {"tokenizer_files": {"tokenizer.model": train_tokenizer(V - 1)}},
            "has 39 pieces, but model.vocab_size is 40",
        ),
        ({"weights": {}}, "absent in the weights"),
        (
            {"weights": Transformer(replace(RECIPE.model, N=2)).state_dict()},
            "in the weights, but absent in the recipe",
        ),
        (
            {"recipe": replace(RECIPE, model=replace(RECIPE.model, d_ff=64))},
            "w_1.bias is [32] in the weights, but [64] in the recipe's model",
        ),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(save, tmp_path, change, message):
    with pytest.raises(BundleError) as caught:
        save(**change)
    assert message in str(caught.value)
    assert listing(tmp_path) == []


def test_a_tokenizer_file_cannot_take_the_name_of_another(save, tokenizer):
    with pytest.raises(BundleError, match=r"a tokenizer file has the name config\.toml"):
        save(tokenizer_files={"tokenizer.model": tokenizer, "config.toml": b""})


def rebuild(path, **changes):
    """The bundle with other files and a manifest that says so: not damaged, but wrong."""
    files = {file.name: file.read_bytes() for file in path.iterdir() if file.name != MANIFEST}
    shutil.rmtree(path)
    write_folder(
        path,
        BUNDLE,
        {name: content for name, content in (files | changes).items() if content is not None},
    )


def flip(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)


def empty(path):
    shutil.rmtree(path)
    path.mkdir()


def become_checkpoint(path):
    shutil.rmtree(path)
    shutil.move(save_checkpoint(path.parent, 7, {}, {}), path)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (shutil.rmtree, "saved does not exist; expected a bundle"),
        (empty, "saved is not a bundle: it holds no MANIFEST.json"),
        (become_checkpoint, "saved is a checkpoint; expected a bundle"),
        (lambda path: flip(path / WEIGHTS), "model.safetensors is damaged: its SHA-256"),
        (lambda path: os.truncate(path / WEIGHTS, 99), "model.safetensors has 99 bytes; expected"),
        (lambda path: (path / "tokenizer.model").unlink(), "tokenizer.model is missing"),
        (
            lambda path: rewrite_manifest(path, format=2),
            "has bundle format 2, but this transduce reads formats up to 1",
        ),
        (lambda path: rebuild(path, **{WEIGHTS: None}), "names no file model.safetensors"),
        (
            lambda path: rebuild(path, **{"config.toml": b"sparkle = 1"}),
            "config.toml does not fit this version of transduce",
        ),
        (
            lambda path: rebuild(path, **{"config.toml": b"[model]\nvocab_size = 41"}),
            "40 pieces, but model.vocab_size is 41",
        ),
    ],
)
def test_bad_input_is_one_clear_line(save, harm, message):
    path = save()
    harm(path)
    with pytest.raises(BundleError) as caught:
        load_bundle(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


OTHERS = (
    None,
    True,
    -1,
    0,
    1,
    2**70,
    1.5,
    "x",
    "",
    "../x",
    "a\0b",
    "\ud800",
    [],
    {},
    [1],
    {"bytes": 1},
)


def changed(value):
    """Yield copies of a value in which one part, at any depth, is replaced, renamed or removed."""
    yield from OTHERS
    for name in value if isinstance(value, dict) else ():
        rest = {other: kept for other, kept in value.items() if other != name}
        yield from (rest | {name: other} for other in changed(value[name]))
        yield from (rest, *(rest | {other: value[name]} for other in ("", "../x", "a\0b")))


def test_a_manifest_of_other_things_with_the_right_checksum_is_one_clear_line(save):
    path = save()
    manifest = json.loads((path / MANIFEST).read_text())
    del manifest["sha256"]
    for body in changed(manifest):
        sealed = (
            {**body, "sha256": sealed_folder._checksum(body)} if isinstance(body, dict) else body
        )
        (path / MANIFEST).write_text(json.dumps(sealed))
        if json.dumps(body, sort_keys=True) != json.dumps(manifest, sort_keys=True):
            with pytest.raises(BundleError, match=r"^[^\n]+$"):
                load_bundle(path)


@pytest.mark.parametrize("name", ["scores.json", "provenance.json", "config.toml"])
def test_contents_of_another_kind_are_one_clear_line(save, name):
    path = save()
    for content in (b"", b"x", b"[]", b"3", b"null", b"\xff", b"[" * 100_000, b'a = 1\n{"a":'):
        rebuild(path, **{name: content})
        with pytest.raises(
            BundleError, match=rf"{name} is not a JSON object|{name} does not fit|40 pieces"
        ) as caught:
            load_bundle(path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "other", ["true", "-1", "1.5", "nan", '"x"', "[]", "{}", "99999999999999999999999"]
)
def test_a_setting_of_another_kind_is_one_clear_line(save, other):
    path = save()
    lines = (path / "config.toml").read_text().splitlines()
    for number, line in enumerate(lines):
        if " = " not in line:
            continue
        setting = f"{line.partition(' = ')[0]} = {other}"
        rebuild(
            path,
            **{"config.toml": "\n".join([*lines[:number], setting, *lines[number + 1 :]]).encode()},
        )
        with contextlib.suppress(BundleError):  # or it fits: dropout may be 0.5, a name x
            load_bundle(path).weights()


def harmed_weights(weights):
    for name in ("target_embedding.weight", "encoder.0.feed_forward.w_1.bias"):
        some = weights[name]
        yield (
            {other: tensor for other, tensor in weights.items() if other != name},
            "absent in the weights",
        )
        yield weights | {f"{name}x": some}, "but absent in the recipe's model"
        yield weights | {f"{name}.scale": torch.ones(3)}, "but its scale has [3]"
        for dtype in (torch.int8, torch.int64, torch.bool, torch.complex64):
            yield weights | {name: some.to(dtype)}, f"{name} is {dtype} in the weights"
        for other in (some[:-1], some[None], torch.tensor(1.0)):
            yield weights | {name: other}, f"{name} is {list(other.shape)} in the weights"


def test_weights_that_do_not_fit_are_one_clear_line(save, model):
    path = save()
    for weights, message in harmed_weights(model.state_dict()):
        rebuild(
            path,
            **{
                WEIGHTS: safetensors.torch.save(
                    {name: each.clone() for name, each in weights.items()}
                )
            },
        )
        with pytest.raises(BundleError) as caught:
            load_bundle(path).weights()
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)
    rebuild(path, **{WEIGHTS: b"\x80\x02 a pickle"})
    with pytest.raises(BundleError, match=r"model\.safetensors cannot be read"):
        load_bundle(path).weights()


class Poison:
    def __reduce__(self):
        return os.system, ("touch poisoned",)


def test_a_poisoned_pickle_changes_nothing(save, monkeypatch):
    path = save()
    clean = load_bundle(path)
    for name in ("model.pt", "pytorch_model.bin", "config.pkl", "optimizer.pt"):
        (path / name).write_bytes(pickle.dumps(Poison()))
    monkeypatch.chdir(path)
    found = load_bundle(path)
    found.weights()
    assert found == clean
    assert not (path / "poisoned").exists()


def test_a_bundle_is_described_without_waiting_for_torch(save):
    load = "import sys; from transduce.storage.bundle import *; load_bundle(sys.argv[1])"
    code = f"{load}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, str(save())], check=True)


@pytest.mark.parametrize(
    ("precision", "bits", "relative"),
    [("float32", 32, 0.0), ("bf16", 16, 2**-8), ("float16", 16, 2**-11)],
)
def test_reduced_precision_is_as_small_and_as_close_as_it_says(
    save, model, precision, bits, relative
):
    path = save(precision=precision)
    found = load_bundle(path).weights()
    for name, weight in model.state_dict().items():
        assert found[name].dtype == torch.float32
        assert (
            (found[name] - weight).abs() <= relative * weight.abs() + 1e-7 * (relative > 0)
        ).all(), name
    parameters = sum(weight.numel() for weight in model.state_dict().values())
    # And a header.
    assert (path / WEIGHTS).stat().st_size == pytest.approx(parameters * bits / 8, rel=0.3)


def test_int8_errs_by_half_a_step_of_each_row_at_most(save, model):
    weights = {name: weight.clone() for name, weight in model.state_dict().items()}
    weights["encoder.0.feed_forward.w_1.weight"][3] *= 1000  # one wild row spoils no other
    found = load_bundle(save(weights=weights, precision="int8")).weights()
    assert found.keys() == weights.keys()
    for name, weight in weights.items():
        if weight.dim() == 2:
            half_a_step = weight.abs().amax(1, keepdim=True) / 254
            assert ((found[name] - weight).abs() <= half_a_step * 1.0001).all(), name
            assert (found[name] - weight).abs().max() > 0
        else:
            assert torch.equal(found[name], weight)
    # Padding stays the zero vector.
    assert torch.equal(found["target_embedding.weight"][V - 1], torch.zeros(16))


def test_weights_come_in_the_type_that_is_asked_for(save):
    for precision in ("float32", "int8"):
        half = load_bundle(save(precision, precision=precision)).weights(dtype=torch.bfloat16)
        assert {weight.dtype for weight in half.values()} == {torch.bfloat16}


def test_the_base_model_in_int8_takes_a_quarter():
    with torch.device("meta"):
        weights = Transformer(preset("base").model).state_dict()
    assert file_size(pack(weights, "int8")) < 64e6
    assert file_size(pack(weights, "float32")) > 250e6


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("stride", [19, pytest.param(1, marks=pytest.mark.battery)])
def test_killed_at_any_point_of_a_replacement_a_bundle_is_there(
    save, tmp_path, monkeypatch, stride
):
    # Slow, and without meaning for a killed process.
    monkeypatch.setattr(os, "fsync", lambda _: None)
    path = save("run/best", scores={"bleu": 1})
    found = set()
    for _ in killed_at_each_point(
        lambda: save("run/best", scores={"bleu": 2}, replace=True), [sealed_folder, shutil], stride
    ):
        found.add(load_bundle(path).scores["bleu"])
        save("run/best", scores={"bleu": 1}, replace=True)
        assert listing(path.parent) == ["best"]
    assert found == {1, 2}
