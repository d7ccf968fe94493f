"""What all tests share."""

import os

# Before torch reads it. CTranslate2 and others reset torch to one thread per core in the middle of
# a test; on busy cores, such threads spend most of their time waiting for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from hypothesis import HealthCheck, settings

# A busy machine is no reason to fail: the time that an example takes is not part of any promise.
settings.register_profile(
    "any load",
    parent=settings.default,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("any load")

if not torch.cuda.is_available():
    # Before anything imports Triton: kernels are tested on the CPU too.
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """Tiny models run many times faster on one thread; and what a test's libraries set (CTranslate2 does) ends with it,
    for results are the same to the bit only on the same number of threads."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _users_cache(tmp_path_factory):
    """Tests neither see nor fill the user's cache, which keeps converted models."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def bundle(tmp_path_factory):
    """A bundle of a small model that was really trained; trained once for all rooms."""
    # Not above: most test files need neither.
    from tests import trained
    from transduce.storage.bundle import load_bundle

    return load_bundle(trained.save(tmp_path_factory.mktemp("runs") / "demo", steps=60, rows=32))


@pytest.fixture(scope="session")
def sentences():
    """Sentences that this model has not seen."""
    from tests import trained

    held_out = trained.splits()
    return [source for source, _ in held_out["valid"] + held_out["test"]]
