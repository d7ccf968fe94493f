"""Hostile files with right checksums are refused before memory or minutes are spent on them."""

import json
import shutil

import pytest

from transduce.errors import BundleError, ConfigError
from transduce.recipe import read_recipe
from transduce.storage.bundle import BUNDLE, load_bundle
from transduce.storage.sealed_folder import seal_folder


def sealed(folder, name, content):
    """Change a file of a bundle, and seal it again."""
    (folder / name).write_bytes(content)
    (folder / "MANIFEST.json").unlink()
    seal_folder(folder, BUNDLE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[search]\nmin_length = 1000000\n", "search.min_length is 1,000,000; it must be at most"),
        (f"[search]\nmin_length = {'9' * 100_000}\n", "cannot be read as a recipe"),
        (f"[data]\nmax_tokens = 1{'0' * 26}\n", "it must be at most 1,000,000"),
        (".".join(["a"] * 100_000) + " = 1\n", "has a name of too many parts"),
        (f"[{'.'.join(['a'] * 100_000)}]\n", "has a name of too many parts"),
        ("a = " + "[" * 50_000, "cannot be read|nested too deeply"),
        ("#" * (2 << 20), "has more than 1,048,576 bytes"),
    ],
    ids=["min_length", "digits", "max_tokens", "dotted", "table", "nested", "long"],
)
def test_a_hostile_recipe_is_refused_at_once(text, message, tmp_path, bundle):
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_recipe(path)
    folder = shutil.copytree(bundle.path, tmp_path / "bundle")
    sealed(folder, "config.toml", text.encode())
    with pytest.raises(BundleError, match=message):
        load_bundle(folder)


@pytest.mark.parametrize("name", ["MANIFEST.json", "scores.json", "README.md"])
def test_a_sparse_file_of_gigabytes_is_not_read(name, tmp_path, bundle):
    folder = shutil.copytree(bundle.path, tmp_path / "bundle")
    with (folder / name).open("ab") as file:
        file.truncate(3 << 30)
    with pytest.raises(BundleError, match=f"{name}.*has more than 16,777,216 bytes"):
        load_bundle(folder)


def test_a_tokenizer_whose_pieces_are_not_utf_8_is_refused(tmp_path, bundle):
    folder = shutil.copytree(bundle.path, tmp_path / "bundle")
    content = bytearray(bundle.tokenizer_files["tokenizer.model"])
    place = content.index("\u2581".encode())
    content[place + 1] = 0xFF
    sealed(folder, "tokenizer.model", bytes(content))
    with pytest.raises(BundleError, match=r"tokenizer\.model is not a SentencePiece model"):
        load_bundle(folder)


def test_a_manifest_with_deep_json_is_damaged(tmp_path, bundle):
    folder = shutil.copytree(bundle.path, tmp_path / "bundle")
    (folder / "MANIFEST.json").write_text("[" * 100_000)
    with pytest.raises(BundleError, match="is damaged"):
        load_bundle(folder)
    assert json.loads((bundle.path / "MANIFEST.json").read_text())
