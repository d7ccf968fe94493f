"""`import transduce`: the public names, and what it costs."""

import subprocess
import sys

import pytest

import transduce

PUBLIC = [
    "ModelConfig", "Recipe", "SearchConfig", "Tokenizer", "Tokens", "TrainingConfig", "TransduceError", "Transformer",
    "Translation", "Translator", "__version__", "ablate", "export", "inspect", "load_recipe", "prepare", "preset",
    "score", "train",
]  # fmt: skip


def test_the_public_names_are_these_and_completion_shows_them():
    assert transduce.__all__ == PUBLIC
    assert set(PUBLIC) <= set(dir(transduce))
    assert {*transduce._PUBLIC, "__version__"} == set(PUBLIC)
    for name in PUBLIC:
        assert getattr(transduce, name) is not None
    everything = {}
    exec("from transduce import *", everything)
    assert set(PUBLIC) <= everything.keys()


def test_importing_costs_nothing_until_a_name_is_used():
    code = "import sys, transduce; assert 'torch' not in sys.modules and 'numpy' not in sys.modules; transduce.Recipe()"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_name_that_does_not_exist_is_answered_with_those_that_do():
    with pytest.raises(
        AttributeError, match=r"no attribute 'Transfomer'; it has ModelConfig, .*Transformer"
    ):
        transduce.Transfomer  # noqa: B018


def test_public_functions_stay_functions_whatever_is_imported():
    code = "import transduce.exporters.command, transduce.training.train, transduce; assert callable(transduce.export)"
    subprocess.run([sys.executable, "-c", f"{code} and callable(transduce.train)"], check=True)
