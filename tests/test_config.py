"""Settings: the paper's defaults, and contradictions refused with what to do."""

import re
import tomllib
from dataclasses import fields, replace

import pytest

from transduce import prepare, train
from transduce.config import (
    CorpusConfig,
    DataConfig,
    ModelConfig,
    Recipe,
    SearchConfig,
    TokenizerConfig,
    TrainingConfig,
)
from transduce.errors import ConfigError, DataError
from transduce.presets import BASE, BIG, PRESETS
from transduce.recipe import (
    apply_overrides,
    check_vocabulary,
    differences,
    follow_tokenizer,
    load_recipe,
    read_recipe,
    to_toml,
    update,
)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": 0}, "model.vocab_size is 0; it must be at least 3"),
        ({"d_model": 511}, "model.d_model is 511; sinusoidal positions .* need an even d_model"),
        ({"h": 7, "positions": "rotary"}, "model.h is 7, which does not divide model.d_model 512"),
        (
            {"d_k": 33, "positions": "rotary"},
            "model.d_k is 33; rotary positions .* need an even d_k",
        ),
        ({"p_drop": 1.0}, "model.p_drop is 1.0; it must be below 1$"),
        ({"p_drop_attention": -0.1}, "model.p_drop_attention is -0.1"),
        ({"r": 0}, "model.r is 0; it must be at least 1"),
        ({"N": 0}, "model.N is 0; it must be at least 1"),
        ({"N": 10**9}, "model.N is 1,000,000,000; it must be at most 1,000$"),
        ({"N_decoder": 1001}, "model.N_decoder is 1,001; it must be at most 1,000$"),
        (
            {"d_model": 10**8},
            "model.d_model is 100,000,000; it must be at most 1,000,000$",
        ),
        (
            {"h": 10**19},
            "model.h is 10,000,000,000,000,000,000; it must be at most 1,000,000$",
        ),
        (
            {"vocab_size": 10**9},
            "model.vocab_size is 1,000,000,000; it must be at most 100,000,000$",
        ),
        ({"max_positions": 0}, "model.max_positions is 0; it must be at least 1"),
        ({"N_decoder": 0}, "model.N_decoder is 0"),
        ({"source_vocab_size": 100}, 'sharing = "three-way" needs one vocabulary'),
        (
            {"kernel": "varlen", "p_drop_attention": 0.1},
            'model.kernel "varlen" has no attention dropout',
        ),
        ({"kernel": "varlen", "d_v": 48}, 'model.kernel "varlen" takes heads of 16, 32, 64 or 128'),
        ({"norm_eps": 0.0}, "model.norm_eps is 0.0"),
        ({"max_positions": 0}, "model.max_positions is 0"),
    ],
)
def test_a_combination_that_cannot_work_is_refused_with_the_reason(changes, message):
    with pytest.raises(ConfigError, match=message):
        ModelConfig(**changes)


@pytest.mark.parametrize("section", [field.name for field in fields(Recipe)])
def test_a_value_of_another_type_is_one_line_that_names_its_setting(section):
    settings = getattr(Recipe(), section)
    for field in fields(settings):
        value, others = getattr(settings, field.name), ["4", None, 2.5, True, [], b"", object()]
        if type(value) not in (int, float, bool):
            continue
        for other in others:
            if type(other) is type(value) or (other is None and "None" in field.type):
                continue
            with pytest.raises(
                ConfigError,
                match=rf"^{section}\.{field.name} is .*; expected {field.type.split()[0]}$",
            ):
                replace(settings, **{field.name: other})


def test_a_number_may_be_written_without_its_point():
    assert SearchConfig(alpha=1, patience=2).alpha == 1


def test_what_is_odd_but_works_is_allowed():
    ModelConfig(d_model=511, positions="learned", h=7)
    ModelConfig(h=7, d_k=10, d_v=30)
    ModelConfig(source_vocab_size=100, sharing="two-way")


@pytest.mark.parametrize("name", PRESETS)
def test_a_recipe_survives_toml(name):
    assert update(Recipe(), tomllib.loads(to_toml(PRESETS[name]))) == PRESETS[name]


def test_corpora_and_odd_strings_survive_toml():
    corpora = (
        CorpusConfig(source=("a b.en", 'q"u\\o\n.en'), target=("ä.de", "\x7f.de"), weight=0.5),
        CorpusConfig(source=("x.tsv",), name="memory"),
    )
    recipe = replace(BASE, data=DataConfig(corpora=corpora, validation=corpora[1:]))
    assert update(Recipe(), tomllib.loads(to_toml(recipe))) == recipe


def test_a_recipe_file_starts_from_a_preset_and_overrides_come_last(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'preset = "big"\n[model]\nN = 3\np_drop = 0\n[[data.corpora]]\nsource = "a.tsv"\n'
    )
    recipe = load_recipe(
        str(path), ["model.N=4", "training.schedule=cosine", "model.r=5", "model.N_decoder=none"]
    )
    assert (recipe.model.d_model, recipe.model.N, recipe.model.p_drop, recipe.model.r) == (
        1024,
        4,
        0.0,
        5,
    )
    assert recipe.training.schedule == "cosine"
    assert recipe.data.corpora == (CorpusConfig(source=("a.tsv",)),)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.d_modl=3", "model.d_modl is not a setting; did you mean d_model?"),
        ("modell.N=3", "modell is not a setting; did you mean model?"),
        ("steps=3", "steps is not a setting; did you mean training.steps?"),
        ("vocab_size=4000", r"not a setting; did you mean data.tokenizer.vocab_size\?$"),
        ("data.vocab_size=9", r"not a setting; did you mean data.tokenizer.vocab_size\?$"),
        ("patience=3", r"did you mean training.patience or search.patience\?$"),
        ("model.zzz=3", "model.zzz is not a setting; the settings here are vocab_size, "),
        ("model.N=two", "model.N is 'two'; expected int"),
        ("model.N=2.5", "model.N is 2.5; expected int"),
        ("model.N=true", "model.N is True; expected int"),
        ("model.norm=batch", "model.norm is 'batch'; expected one of layer, rms"),
        ("model=3", "model is 3; expected a table of settings"),
        (
            "data.corpora=[{target='x'}]",
            r"data.corpora\[0\] has no source; expected a value for it",
        ),
        (
            "data.corpora=[{source='x', weight=inf}]",
            "data.corpora.weight is inf; it must be finite",
        ),
        (
            "data.tokenizer.training_sentences=0",
            "data.tokenizer.training_sentences is 0; it must be at least 1",
        ),
        ("training.learning_rate=0", "training.learning_rate is 0.0; it must be positive"),
        ("training.eps=-1", "training.eps is -1.0; it must be positive"),
        ("training.beta_2=1", "training.beta_2 is 1.0; it must be below 1"),
        ("training.seed=-1", "training.seed is -1; it must be at least 0"),
        (
            "training.seed=9223372036854775808",
            "training.seed is 9,223,372,036,854,775,808; it must be at most",
        ),
        (
            "training.learning_rate=inf",
            "training.learning_rate is inf; it must be finite",
        ),
        ("training.micro_batches=-1", "training.micro_batches is -1; it must be at least 0"),
        (
            "training.micro_batches=1025",
            "training.micro_batches is 1,025; it must be at most 1,024",
        ),
        ("training.clip_norm=nan", "training.clip_norm is nan; it must be at least 0"),
        ("training.weight_decay=-1", "training.weight_decay is -1.0; it must be at least 0"),
        ("training.patience=-1", "training.patience is -1; it must be at least 0"),
        (
            "training.validation_sentences=-1",
            "training.validation_sentences is -1; it must be at least 0",
        ),
        (
            "data.corpora=[{source='x', wieght=2}]",
            r"data.corpora\[0\].wieght is not a setting; did you mean weight?",
        ),
        (
            "data.tokenizer.character_coverage=0.9",
            "character_coverage is 0.9; it must be at least 0.98",
        ),
        ("data.clean.off=3", "data.clean.off is 3; expected a list"),
        ("N", "'N' is not an override; expected section.setting=value"),
    ],
)
def test_a_wrong_override_says_what_is_known(override, message):
    with pytest.raises(ConfigError, match=message):
        load_recipe("base", [override])


@pytest.mark.parametrize("order", [1, -1])
def test_a_value_for_a_section_is_not_passed_over(order):
    with pytest.raises(ConfigError, match="training is 5; expected a table of settings"):
        load_recipe("base", ["training=5", "training.steps=3"][::order])


@pytest.mark.parametrize(
    "overrides",
    [
        ["training.keep_checkpoints=2", "training.average_checkpoints=2"],
        ["model.source_vocab_size=100", "model.sharing=two-way"],
        ["data.clean.drop=wrong-language", "data.clean.language_sample=0"],
    ],
)
def test_overrides_that_need_each_other_come_in_any_order(overrides):
    assert load_recipe("base", overrides) == load_recipe("base", overrides[::-1]) != BASE


def test_the_last_override_of_a_setting_counts():
    assert load_recipe("base", ["model.N=2", "model.N=3"]).model.N == 3
    assert load_recipe("base", ["model={N=2, h=4}", "model.N=3"]).model == replace(
        BASE.model, N=3, h=4
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('preset = "bass"', "'bass' is not the name of a preset; use one of base, big"),
        ("preset = 3", "preset is 3; expected a name in quotes"),
        ("[model", "cannot be read as a recipe"),
        ("\udcff", "cannot be read as a recipe"),
    ],
)
def test_a_wrong_recipe_file_says_why(tmp_path, content, message):
    path = tmp_path / "wrong.toml"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError, match=message):
        read_recipe(path)


def test_a_folder_in_place_of_its_recipe_is_recognized(tmp_path):
    (tmp_path / "en-de").mkdir()
    with pytest.raises(ConfigError, match=r"en-de is a folder; expected a recipe file, such as "):
        load_recipe(str(tmp_path / "en-de"))
    (tmp_path / "en-de" / "recipe.toml").touch()
    with pytest.raises(ConfigError, match=r"is a folder; did you mean .*en-de/recipe.toml\?"):
        load_recipe(str(tmp_path / "en-de"))


def test_a_text_in_place_of_a_recipe_is_recognized(tmp_path):
    (tmp_path / "train.en").touch()
    with pytest.raises(ConfigError, match=r"train.en is not a recipe; expected a .toml file"):
        load_recipe(str(tmp_path / "train.en"))


def test_a_recipe_that_is_nowhere_is_refused():
    with pytest.raises(
        ConfigError, match=r"'x' is neither a \.toml file nor a preset; the presets are base, big"
    ):
        load_recipe("x")
    with pytest.raises(ConfigError, match=r"'bas' is not a preset; did you mean base\?"):
        load_recipe("bas")
    with pytest.raises(ConfigError, match=r"none.toml does not exist; expected a recipe"):
        load_recipe("none.toml")


def test_differences_name_the_settings():
    assert differences(BIG, BASE)["model.d_model"] == (1024, 512)
    assert differences(BASE, BASE) == {}


@pytest.mark.parametrize("until", ["bleu=nan", "bleu=500", "loss=nan", "loss=-1", "chrf=0"])
def test_a_goal_that_no_score_reaches_is_refused(until):
    with pytest.raises(ConfigError, match=r"training\.until is"):
        TrainingConfig(until=until)


def test_a_goal_needs_sentences_to_score():
    with pytest.raises(
        ConfigError, match="validation_sentences is 0, so that no translation is scored"
    ):
        TrainingConfig(until="bleu=20", validation_sentences=0)


@pytest.mark.parametrize(
    ("section", "setting", "choices"),
    [
        ("training", "optimizer", "adam, adamw, muon"),
        ("training", "schedule", "paper, stable-decay, cosine"),
        ("model", "norm", "layer, rms"),
        ("model", "activation", "relu, gelu, swish, swiglu, geglu"),
        ("data.tokenizer", "kind", "bpe, unigram, word"),
    ],
)
def test_a_word_that_is_no_choice_is_refused_alike_in_python_and_in_a_recipe(
    section, setting, choices
):
    kinds = {"training": TrainingConfig, "model": ModelConfig, "data.tokenizer": TokenizerConfig}
    for word in ("banana", 3, True):
        message = re.escape(f"{section}.{setting} is {word!r}; expected one of {choices}")
        with pytest.raises(ConfigError, match=f"^{message}$"):
            kinds[section](**{setting: word})
        with pytest.raises(ConfigError, match=f"^{message}$"):
            apply_overrides(
                Recipe(), [f"{section}.{setting}={str(word).lower() if word is True else word}"]
            )


def test_one_text_or_a_list_stands_for_several_in_python_too():
    corpus = CorpusConfig(source="train.en", target=["train.de"])
    assert (corpus.source, corpus.target) == (("train.en",), ("train.de",))
    assert DataConfig(corpora=[corpus]).corpora == (corpus,)
    with pytest.raises(
        ConfigError, match=r"data.corpora\[0\] is 'train.en'; expected CorpusConfig"
    ):
        DataConfig(corpora=("train.en",))


def test_a_recipe_shows_what_is_not_the_papers():
    assert repr(Recipe()) == "Recipe()"
    assert repr(Recipe(model=ModelConfig(N=2))) == "Recipe(model.N=2)"


def vocabulary(recipe):
    return recipe.data.tokenizer.vocab_size, recipe.model.vocab_size


@pytest.mark.parametrize("name", PRESETS)
def test_the_model_of_every_preset_has_the_size_of_its_tokenizer(name):
    check_vocabulary(PRESETS[name])
    assert vocabulary(load_recipe(name, ["data.tokenizer.vocab_size=4000"])) == (4000, 4000)


def test_the_model_follows_the_tokenizer_in_a_recipe_file_and_in_overrides(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('preset = "tiny"\n[data.tokenizer]\nvocab_size = 4000\n')
    assert vocabulary(read_recipe(path)) == (4000, 4000)
    overrides = ["data.tokenizer.vocab_size=5000"]
    assert vocabulary(load_recipe(str(path), overrides)) == (5000, 5000)
    path.write_text("[data.tokenizer]\nvocab_size = 4000\n[model]\nvocab_size = 4000\n")
    assert vocabulary(read_recipe(path)) == (4000, 4000)


def test_a_recipe_made_in_python_needs_the_size_of_the_tokenizer_alone():
    data = DataConfig(tokenizer=TokenizerConfig(vocab_size=500))
    assert vocabulary(follow_tokenizer(Recipe(data=data))) == (500, 500)
    contradiction = Recipe(data=data, model=ModelConfig(vocab_size=600))
    assert follow_tokenizer(contradiction) == contradiction


@pytest.mark.parametrize(
    ("overrides", "name", "size", "tokenizer_size"),
    [
        (["model.vocab_size=4000"], "vocab_size", "4,000", "37,000"),
        (
            ["model.vocab_size=37000", "data.tokenizer.vocab_size=32000"],
            "vocab_size",
            "37,000",
            "32,000",
        ),
        (
            ["model.source_vocab_size=4000", "model.sharing=two-way"],
            "source_vocab_size",
            "4,000",
            "37,000",
        ),
    ],
)
def test_two_sizes_of_one_vocabulary_are_refused(overrides, name, size, tokenizer_size):
    message = (
        f"model.{name} is {size}, but data.tokenizer.vocab_size is {tokenizer_size}; leave "
        f"model.{name} out and set data.tokenizer.vocab_size, which the model follows"
    )
    with pytest.raises(ConfigError, match=f"^{message}$"):
        check_vocabulary(load_recipe("base", overrides))


def test_two_sizes_of_one_vocabulary_are_refused_before_any_work(tmp_path):
    text = CorpusConfig(source="none.en", target="none.de")
    data = DataConfig(corpora=(text,), tokenizer=TokenizerConfig(vocab_size=500))
    recipe = Recipe(data=data, model=ModelConfig(vocab_size=600))
    message = r"model\.vocab_size is 600, but data\.tokenizer\.vocab_size is 500"
    with pytest.raises(ConfigError, match=message):
        prepare(recipe, tmp_path, tmp_path / "store")
    with pytest.raises(ConfigError, match=message):
        train(recipe, run=tmp_path / "run", device="cpu")
    path = tmp_path / "mine.toml"
    path.write_text(to_toml(replace(recipe, model=ModelConfig())))  # it says 37,000 and 500
    with pytest.raises(ConfigError, match=r"model\.vocab_size is 37,000, but"):
        train(path, run=tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()
    with pytest.raises(DataError, match=r"none\.en does not exist"):
        prepare(replace(recipe, model=ModelConfig()), tmp_path, tmp_path / "store")
