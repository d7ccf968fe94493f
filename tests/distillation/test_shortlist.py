"""A shortlist has the tokens that the target text needs, and those that can spell any other."""

from collections import Counter
from itertools import pairwise

import pytest

from tests import trained
from transduce.config import CorpusConfig, DataConfig, Recipe
from transduce.data.tokenizer import Tokenizer
from transduce.distillation.compress import compress
from transduce.distillation.shortlist import learn_shortlist
from transduce.errors import ConfigError, DataError
from transduce.recipe import to_toml
from transduce.storage.bundle import load_bundle

PAIRS = trained.splits()["train"][:400]


def write_recipe(folder, pairs=PAIRS, **changes):
    for side, language in enumerate(("en", "de")):
        text = "".join(f"{pair[side]}\n" for pair in pairs)
        (folder / f"train.{language}").write_text(text, encoding="utf-8")
    corpora = (CorpusConfig(source="train.en", target="train.de"),)
    path = folder / "recipe.toml"
    data = DataConfig(**{"corpora": corpora, **changes})
    path.write_text(to_toml(Recipe(data=data)), encoding="utf-8")
    return path


def counted(bundle):
    """How often each token is in the target text."""
    tokenizer = Tokenizer(bundle.tokenizer_files["tokenizer.model"])
    counts = Counter()
    for ids in tokenizer.encode_batch([target for _, target, *_ in PAIRS]):
        counts.update(tokenizer.pieces(ids))
    return counts, tokenizer.pieces(range(tokenizer.vocab_size))


def can_spell(piece):
    return len(piece.lstrip("▁")) <= 1 or (piece.startswith("<0x") and piece.endswith(">"))


def test_it_has_every_token_of_the_target_text_and_none_of_the_source_alone(bundle, tmp_path):
    found = learn_shortlist(bundle, write_recipe(tmp_path), share=1.0).decode().splitlines()
    counts, pieces = counted(bundle)
    assert len(set(found)) == len(found) < len(pieces)
    assert {piece for piece in found if not can_spell(piece)} == {
        piece for piece in counts if not can_spell(piece)
    }


def test_any_text_can_be_spelled_with_it(bundle, tmp_path):
    found = learn_shortlist(bundle, write_recipe(tmp_path), share=0.5).decode().splitlines()
    _, pieces = counted(bundle)
    assert {piece for piece in pieces[:-1] if can_spell(piece)} <= {*found}
    assert "<0x00>" in found
    assert pieces[-1] not in found  # padding


def test_the_share_is_reached_by_the_fewest_tokens(bundle, tmp_path):
    counts, _ = counted(bundle)
    ranking = counts.most_common()
    numbers = Counter(counts.values())
    # A token that cannot spell and is the only one with its count, like the next.
    place = next(
        place
        for place, some in enumerate(pairwise(ranking[20:]), start=20)
        if all(numbers[count] == 1 and not can_spell(piece) for piece, count in some)
    )
    share = sum(count for _, count in ranking[: place + 1]) / counts.total()
    found = learn_shortlist(bundle, write_recipe(tmp_path), share).decode().splitlines()
    assert {piece for piece, _ in ranking[: place + 1]} <= {*found}
    assert not {piece for piece, _ in ranking[place + 1 :] if not can_spell(piece)} & {*found}


def test_text_that_does_not_fit_is_refused(bundle, tmp_path):
    with pytest.raises(ConfigError, match="has text in 'fr', but the model writes 'de'"):
        learn_shortlist(bundle, write_recipe(tmp_path, target_language="fr"))
    with pytest.raises(ConfigError, match="names no training text"):
        learn_shortlist(bundle, write_recipe(tmp_path, corpora=()))
    with pytest.raises(DataError, match="is empty; expected parallel text"):
        learn_shortlist(bundle, write_recipe(tmp_path, pairs=[]))


def test_a_compressed_model_keeps_its_shortlist(bundle, tmp_path):
    recipe = write_recipe(tmp_path)
    made = load_bundle(compress(bundle.path, tmp_path / "a", shortlist=recipe))
    assert made.shortlist == learn_shortlist(bundle, recipe).decode().splitlines()
    assert load_bundle(compress(made.path, tmp_path / "b")).shortlist == made.shortlist
    assert not bundle.shortlist
