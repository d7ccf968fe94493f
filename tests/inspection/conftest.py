"""Translators whose insides are looked at."""

import pytest

from transduce.translation.translator import Translator


@pytest.fixture(scope="module")
def translator(bundle):
    return Translator(bundle, engine="torch", device="cpu")


TEXT = "Monday, 3 May 2021 at 9:15 pm"


@pytest.fixture(scope="module")
def text():
    return TEXT
