"""A bundle of a small model that was really trained, and sentences that it has not seen."""

import pytest

from tests import trained
from transduce.storage.bundle import load_bundle


@pytest.fixture(scope="session")
def bundle(tmp_path_factory):
    return load_bundle(trained.save(tmp_path_factory.mktemp("runs") / "demo", steps=60, rows=32))


@pytest.fixture(scope="session")
def sentences():
    held_out = trained.splits()
    return [source for source, _ in held_out["valid"] + held_out["test"]]
