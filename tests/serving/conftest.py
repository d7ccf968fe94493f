"""A model that is served once for all tests of this room."""

import pytest

from tests.serving.running import running
from transduce.serving.models import load_models


@pytest.fixture(scope="session")
def server(bundle, tmp_path_factory):
    models = load_models([bundle.path], engine="torch", say=lambda message: None)
    with running(models, runs=tmp_path_factory.mktemp("served-runs")) as server:
        yield server


@pytest.fixture(scope="session")
def translator(bundle):
    """The same model without a server."""
    from transduce.translation.translator import Translator

    return Translator(bundle, engine="torch")
