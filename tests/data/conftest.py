"""Small token stores, without text."""

import random

import numpy as np
import pytest

from transduce.config import TokenizerConfig
from transduce.data.store import FORMAT, Store
from transduce.data.tokenizer import EOS, Tokenizer
from transduce.data.writer import RaggedWriter, write_manifest


def made_up_sentences(count, seed=0):
    """Sentences of made-up words."""
    chance = random.Random(0)
    words = [
        "".join(chance.choices("aeioubdgklmnrstß", k=chance.randint(2, 7))) for _ in range(400)
    ]
    chance = random.Random(seed + 1)
    return [" ".join(chance.choices(words, k=chance.randint(2, 12))) + "." for _ in range(count)]


@pytest.fixture(scope="session")
def tiny_tokenizer():
    return Tokenizer.train(made_up_sentences(300), TokenizerConfig(vocab_size=320))


def like_sentences(pairs, seed=0, mean=24.0):
    """Lengths (pairs, 2) distributed like those of a corpus."""
    chance = np.random.default_rng(seed)
    source = np.clip(chance.lognormal(np.log(mean) - 0.2, 0.65, pairs), 2, 180).astype(np.int64)
    target = np.clip(source * chance.lognormal(0.05, 0.2, pairs), 2, 180).astype(np.int64)
    return np.stack([source, target], axis=1)


@pytest.fixture
def make_store(tmp_path, tiny_tokenizer):
    """A store whose training pairs have these (source, target) lengths; row i starts with the digits of i."""

    def make(lengths, corpora=None, variants=1):
        folder = tmp_path / f"store-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        (folder / "target.model").write_bytes(tiny_tokenizer.to_bytes())
        files = {
            "target.model": {
                "bytes": len(tiny_tokenizer.to_bytes()),
                "sha256": tiny_tokenizer.fingerprint,
            }
        }
        corpora = corpora or {"corpus": len(lengths) // variants}
        chance = np.random.default_rng(1)
        empty = np.zeros((0, 2), np.int64)
        for section, sizes in (("train", lengths), ("validation", empty), ("test", empty)):
            for side, name in enumerate(("source", "target")):
                ids = chance.integers(2, tiny_tokenizer.pad, sizes[:, side].sum())
                ids[np.cumsum(sizes[:, side]) - 1] = EOS
                with RaggedWriter(folder, f"{section}.{name}", "<u2") as writer:
                    writer.extend(ids, sizes[:, side])
                files |= writer.entries
                if section != "train":
                    with RaggedWriter(folder, f"{section}.{name}.text", "u1") as writer:
                        pass
                    files |= writer.entries
        sections = {
            "train": {
                "corpora": {name: {"pairs": pairs} for name, pairs in corpora.items()},
                "variants": variants,
                "longest": int(lengths.max()),
            },
            "validation": {"corpora": {}, "variants": 1, "longest": 0},
            "test": {"corpora": {}, "variants": 1, "longest": 0},
        }
        write_manifest(
            folder,
            {
                "format": FORMAT,
                "fingerprint": "made up",
                "joint": True,
                "sections": sections,
                "files": files,
            },
        )
        return Store(folder)

    return make
