"""CTranslate2: the same numbers, the same search, converted once."""

import os
import random
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from tests.model.conftest import CHOICES, VARIANTS
from tests.trained import MODEL
from transduce.config import ModelConfig, SearchConfig
from transduce.data.tokenizer import Tokenizer
from transduce.engines import conversion, ctranslate2, kept_conversion
from transduce.engines.choose import choose_engine
from transduce.engines.conversion import convert, refusal
from transduce.engines.ctranslate2 import CTranslate2Engine
from transduce.engines.torch import TorchEngine, load_model
from transduce.errors import ConfigError, ExportError
from transduce.model import Tokens, Transformer
from transduce.storage.bundle import load_bundle, save_bundle
from transduce.translation.translator import Translator

pytest.importorskip("ctranslate2")
CARRIED = {
    name: changes
    for name, changes in VARIANTS.items()
    if name
    not in (
        "neighbourhood",
        "two-way",
        "heads of one size",
    )  # two-way: with a vocabulary of its own, below
}


def random_bundle(folder, tokenizer_files, **changes):
    torch.manual_seed(5)
    recipe_model = replace(MODEL, **changes)
    model = Transformer(recipe_model)
    # Biases and norms off their starting point, so that they matter.
    for parameter in model.parameters():
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, mean=0.5, std=0.3)
    from transduce.config import Recipe

    return load_bundle(
        save_bundle(folder, Recipe(model=recipe_model), model.state_dict(), tokenizer_files, {}, {})
    )


def ids(found):
    return [hypotheses[0].ids for hypotheses in found]


@pytest.fixture(scope="module")
def sources(bundle, sentences):
    return Tokenizer(bundle.tokenizer_files["tokenizer.model"]).encode_batch(sentences)


@pytest.mark.parametrize(
    "changes", [*CARRIED.values(), {"sharing": "two-way"}], ids=[*CARRIED, "two-way"]
)
def test_the_converted_model_gives_the_same_log_probabilities(changes, bundle, tmp_path):
    mine = random_bundle(tmp_path / "b", bundle.tokenizer_files, **changes)
    engine, model, chance = (
        CTranslate2Engine(mine, "cpu", quantization="float32"),
        load_model(mine),
        random.Random(0),
    )
    for _ in range(3):
        length = chance.randint(1, 25)
        source, target = ([*chance.choices(range(2, 499), k=n), 0] for n in (length, 30 - length))
        with torch.inference_mode():
            tokens = Tokens.padded([target], 499)
            logits = model(Tokens.padded([source], 499), tokens.shifted_right(499))[0, :, :-1]
        expected = logits.log_softmax(-1).gather(-1, torch.tensor(target)[:, None])[:, 0]
        scored = engine.log_probs(source, target[:-1])
        torch.testing.assert_close(torch.tensor(scored), expected, atol=2e-4, rtol=0)


@pytest.mark.parametrize(
    "config", [SearchConfig(beam_size=1), SearchConfig(), SearchConfig(alpha=0.0, beam_size=3)]
)
def test_it_finds_what_torch_finds(bundle, sources, config):
    config = replace(config, max_extra=10)
    ours = TorchEngine(load_model(bundle)).search(sources[:60], config)
    theirs = CTranslate2Engine(bundle, "cpu", quantization="float32").search(sources[:60], config)
    assert ids(ours) == ids(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine[0].score == pytest.approx(other[0].score, abs=1e-4)
        assert mine[0].token_log_probs == pytest.approx(other[0].token_log_probs, abs=1e-4)


@pytest.mark.parametrize(
    "config", [SearchConfig(max_length=3), SearchConfig(max_extra=0, beam_size=1)]
)
def test_limits_are_those_of_each_sentence(bundle, sources, config):
    ours = TorchEngine(load_model(bundle)).search(sources[:30], config)
    theirs = CTranslate2Engine(bundle, "cpu", quantization="float32").search(sources[:30], config)
    assert ids(ours) == ids(theirs)


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("min_length", [0, 1])
def test_an_output_is_empty_only_if_that_is_allowed(beam_size, min_length, bundle, tmp_path):
    mine = random_bundle(tmp_path / "b", bundle.tokenizer_files, output_bias=True)
    weights = mine.weights()
    weights["output_bias"][0] = 12.0
    files = bundle.tokenizer_files
    mine = load_bundle(save_bundle(tmp_path / "c", mine.recipe, weights, files, {}, {}))
    engine = CTranslate2Engine(mine, "cpu", quantization="float32")
    config = SearchConfig(beam_size=beam_size, min_length=min_length)
    found = engine.search([[5, 6, 0]], config, token_scores=False)
    expected = TorchEngine(load_model(mine)).search([[5, 6, 0]], config)
    assert found[0][0].ids == expected[0][0].ids
    assert len(found[0][0].ids) == min_length
    assert found[0][0].score == pytest.approx(expected[0][0].score, abs=1e-4)


def test_what_it_searches_otherwise_is_left_to_torch(bundle, sources):
    engine, torch_engine = CTranslate2Engine(bundle, "cpu"), TorchEngine(load_model(bundle))
    for config in (
        SearchConfig(temperature=1.0, seed=3),
        SearchConfig(no_repeat_ngram=1),
        SearchConfig(min_length=9),
    ):
        config = replace(config, max_extra=5)
        assert ids(engine.search(sources[:4], config)) == ids(
            torch_engine.search(sources[:4], config)
        )
    plain = SearchConfig(max_extra=5)
    prefixes = [[7], [8]]
    assert ids(engine.search(sources[:2], plain, prefixes=prefixes)) == ids(
        torch_engine.search(sources[:2], plain, prefixes=prefixes)
    )


@pytest.mark.parametrize("asked", [{"engine": "ctranslate2"}, {"precision": "int8"}])
@pytest.mark.parametrize(
    "setting",
    [
        {"temperature": 0.5},
        {"no_repeat_ngram": 3},
        {"min_length": 9},
        {"patience": 0.3},
        {"max_repeats": 2},
        {},
    ],
)
def test_asked_for_by_name_it_is_never_replaced_by_torch(bundle, asked, setting):
    translator = Translator(bundle, device="cpu", **asked, search=SearchConfig(**setting))
    with pytest.raises(
        ConfigError, match=f"search.{next(iter(setting))} is" if setting else "a prefix is forced"
    ):
        translator.translate("in 98 weeks", prefix="" if setting else "in")
    assert Translator(bundle, device="cpu", **asked).translate("in 98 weeks").text


def test_int8_does_not_depend_on_neighbours(bundle, sources):
    engine, config = CTranslate2Engine(bundle, "cpu"), SearchConfig(max_extra=10)
    together = ids(engine.search(sources[:100], config, token_scores=False))
    alone = [
        ids(engine.search([source], config, token_scores=False))[0] for source in sources[:100]
    ]
    assert sum(a == b for a, b in zip(together, alone, strict=True)) >= 99


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"r": 5}, "model.r is 5"), ({"d_k": 8}, "model.d_k is 8"), ({"d_v": 32}, "model.d_v is 32")],
)
def test_what_cannot_be_carried_is_refused_by_name(changes, message, bundle, tmp_path):
    assert message in refusal(replace(MODEL, **changes))
    mine = random_bundle(tmp_path / "b", bundle.tokenizer_files, **changes)
    with pytest.raises(ExportError, match=message):
        convert(mine, tmp_path, "int8")
    assert isinstance(Translator(mine, device="cpu").engine, TorchEngine)  # auto takes what can


def test_auto_takes_it_on_a_cpu_and_converts_once(bundle, monkeypatch):
    assert isinstance(Translator(bundle, device="cpu").engine, CTranslate2Engine)
    assert [path.name for path in bundle.path.with_name("demo.ctranslate2").glob("*-int8")]
    monkeypatch.setattr(kept_conversion, "convert", lambda *_: pytest.fail("converted again"))
    Translator(bundle, device="cpu")


@pytest.mark.parametrize(
    "damage",
    [lambda content: content[:-1] + bytes([content[-1] ^ 1]), lambda content: content[:-8]],
)
def test_a_conversion_that_is_damaged_is_made_anew(bundle, tmp_path, damage):
    copy = load_bundle(shutil.copytree(bundle.path, tmp_path / "copy"))
    model = kept_conversion.kept_conversion(copy, "float32") / "model.bin"
    whole = model.read_bytes()
    model.write_bytes(damage(whole))
    assert kept_conversion.kept_conversion(copy, "float32") == model.parent
    assert model.read_bytes() == whole


def test_a_place_that_cannot_be_written_is_replaced_by_the_users_cache(
    bundle, tmp_path, monkeypatch
):
    mine = random_bundle(tmp_path / "b", bundle.tokenizer_files)
    (tmp_path / "b.ctranslate2").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert CTranslate2Engine(mine, "cpu").search([[5, 0]], SearchConfig(max_length=2))
    assert len(list((tmp_path / "cache/transduce/ctranslate2").glob("*-int8"))) == 1


def test_a_conversion_is_checked_on_one_thread(bundle, tmp_path, monkeypatch):
    """Two libraries that take turns on all cores would be slow on a busy machine."""
    seen = []
    monkeypatch.setattr(
        "transduce.engines.self_check.compare_log_probs",
        lambda *_: seen.append(torch.get_num_threads()),
    )
    torch.set_num_threads(2)
    kept_conversion.kept_conversion(random_bundle(tmp_path / "b", bundle.tokenizer_files), "int8")
    assert (seen, torch.get_num_threads()) == ([1], 2)


@pytest.mark.parametrize(
    ("cores", "limit", "expected"), [(2, "", (2, 1)), (16, "", (4, 4)), (16, "1", (1, 1))]
)
def test_each_core_of_a_small_machine_searches_on_its_own(
    bundle, monkeypatch, cores, limit, expected
):
    """Two threads for one sentence take longer than one."""
    used = []
    monkeypatch.setattr(
        ctranslate2,
        "CTranslate2Engine",
        lambda *_, workers, threads, **__: used.append((workers, threads)),
    )
    monkeypatch.setattr("transduce.engines.choose.available_cores", lambda: cores)
    monkeypatch.setenv("OMP_NUM_THREADS", limit)
    choose_engine([bundle], "auto", "cpu", "auto")
    assert used == [expected]


def test_nothing_is_written_into_the_package(bundle, tmp_path, monkeypatch):
    mine = random_bundle(tmp_path / "package" / "b", bundle.tokenizer_files)
    monkeypatch.setattr(kept_conversion, "PACKAGED", tmp_path / "package")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    CTranslate2Engine(mine, "cpu")
    assert [path.name for path in mine.path.parent.iterdir()] == ["b"]
    assert len(list((tmp_path / "cache/transduce/ctranslate2").glob("*-int8"))) == 1


def test_where_no_place_can_be_written_torch_translates(bundle, tmp_path, monkeypatch, caplog):
    mine = random_bundle(tmp_path / "b", bundle.tokenizer_files)
    (tmp_path / "b.ctranslate2").write_text("in the way")
    (tmp_path / "cache").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert isinstance(Translator(mine, device="cpu").engine, TorchEngine)
    (message,) = caplog.messages
    assert re.match(
        r"the CTranslate2 model cannot be written to \S+b\.ctranslate2 \(File exists\) nor to "
        r"\S+cache/transduce/ctranslate2 \(Not a directory\); make such a folder writable; "
        r"the model runs in torch instead",
        message,
    )
    with pytest.raises(ExportError, match="cannot be written"):
        Translator(mine, engine="ctranslate2", device="cpu")


def test_a_user_without_a_home_folder_translates(bundle, tmp_path, monkeypatch, caplog):
    """A container may run under a user id that has no name, without HOME."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("os.getuid", lambda: 123_456_789)
    mine = random_bundle(tmp_path / "package" / "b", bundle.tokenizer_files)
    monkeypatch.setattr(kept_conversion, "PACKAGED", tmp_path / "package")
    assert isinstance(Translator(mine, device="cpu").engine, TorchEngine)
    (message,) = caplog.messages
    assert "this user has no home folder; set HOME or XDG_CACHE_HOME" in message


def test_a_new_bundle_in_an_old_place_is_converted_anew(bundle, tmp_path):
    for seed in (1, 2):
        torch.manual_seed(seed)
        weights = {name: torch.randn_like(each) for name, each in bundle.weights().items()}
        weights["target_embedding.weight"][-1] = 0
        mine = load_bundle(
            save_bundle(
                tmp_path / "b", bundle.recipe, weights, bundle.tokenizer_files, {}, {}, replace=True
            )
        )
        CTranslate2Engine(mine, "cpu")
        kept = list(mine.path.with_name(f"{mine.path.name}.ctranslate2").iterdir())
        assert [path.name for path in kept] == [f"{mine.fingerprint[:16]}-int8"]


def test_translating_does_not_wait_for_torch(bundle):
    Translator(bundle, device="cpu")
    code = (
        "import sys, transduce; t = transduce.Translator(sys.argv[1], device='cpu'); t.translate('in 98 weeks');"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(bundle.path)], check=True, env=dict(os.environ))


@pytest.mark.parametrize("file", ["config.json", "shared_vocabulary.json", "model.bin"])
def test_every_file_of_a_conversion_is_verified(bundle, tmp_path, file):
    copy = load_bundle(shutil.copytree(bundle.path, tmp_path / "copy"))
    folder = kept_conversion.kept_conversion(copy, "float32")
    whole = (folder / file).read_bytes()
    (folder / file).write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    CTranslate2Engine(copy, "cpu", quantization="float32")
    assert (folder / file).read_bytes() == whole


def test_a_conversion_is_announced_once(bundle, tmp_path, caplog):
    copy = load_bundle(shutil.copytree(bundle.path, tmp_path / "copy"))
    Translator(copy, device="cpu")
    Translator(copy, device="cpu")
    assert [str(tmp_path / "copy.ctranslate2") in text for text in caplog.messages] == [True]


def test_a_conversion_that_computes_something_else_is_not_used(
    bundle, tmp_path, monkeypatch, caplog
):
    """A change of the model that the conversion does not know: here, of its positions."""
    copy = load_bundle(shutil.copytree(bundle.path, tmp_path / "copy"))
    monkeypatch.setattr(conversion, "_table", lambda config, rows: np.zeros((rows, 64), "f4"))
    with pytest.raises(ExportError, match="CTranslate2 gives token 1 of sample 1"):
        Translator(copy, device="cpu", engine="ctranslate2")
    assert isinstance(Translator(copy, device="cpu").engine, TorchEngine)
    assert "runs in torch instead" in caplog.text
    assert not list((tmp_path / "copy.ctranslate2").iterdir())


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_every_choice_of_a_model_is_carried_exactly_or_refused(choice, bundle, tmp_path):
    mine = random_bundle(tmp_path / "b", bundle.tokenizer_files, **choice)
    if refusal(mine.recipe.model) is None:
        CTranslate2Engine(mine, "cpu", quantization="float32")  # compares its log-probabilities


def test_a_setting_that_nobody_has_listed_is_refused():
    @dataclass(frozen=True, kw_only=True)
    class Newer(ModelConfig):
        alibi: bool = False

    assert refusal(Newer()) is None
    assert refusal(Newer(alibi=True)) == "model.alibi is True; CTranslate2 supports only False"
    unknown_value = replace(MODEL)
    object.__setattr__(unknown_value, "positions", "alibi")
    assert "model.positions is alibi; CTranslate2 supports only sin" in refusal(unknown_value)
