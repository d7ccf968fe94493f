"""Hooks passed from Python are used everywhere, saved and resumed, and named in errors."""

import json
import re
import string
from functools import partial
from pathlib import Path

import pyarrow.json
import pytest
import torch
from torch import nn

import transduce
from tests.training.test_trainer import SMALL, assert_same_steps, losses, signalled
from transduce.config import ModelConfig, SearchConfig
from transduce.corpora.phrases import write_phrases
from transduce.engines.torch import TorchEngine, load_model
from transduce.errors import (
    BundleError,
    ConfigError,
    DataError,
    HookError,
    InputError,
    TransduceError,
)
from transduce.model import Transformer
from transduce.model.multi_head import MultiHeadAttention
from transduce.search.hypothesis import Hypothesis
from transduce.storage.bundle import load_bundle
from transduce.storage.checkpoint import load_newest
from transduce.training.loss import smoothed_loss
from transduce.training.run import Run
from transduce.training.trainer import Trainer

FAST = [*SMALL, "training.validation_sentences=2", "training.steps=8", "training.validate_every=4"]


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    return write_phrases(tmp_path_factory.mktemp("phrases"), "en", "de", 1_000, 1)


@pytest.fixture
def train(recipe, tmp_path):
    """A function that trains the small recipe in a folder of the given name."""

    def start(name="run", more=(), **hooks):
        return transduce.train(
            recipe, overrides=[*FAST, *more], run=tmp_path / name, device="cpu", **hooks
        )

    return start


class Gated(MultiHeadAttention):
    """Attention times a learned gate."""

    def __init__(self, config):
        super().__init__(config)
        self.gate = nn.Parameter(torch.full((), 0.9))

    def forward(self, *args, **kwargs):
        return super().forward(*args, **kwargs) * self.gate


class GatedTransformer(Transformer):
    """A model with gated self-attention in the decoder, and a weight that gets no gradient."""

    def __init__(self, config):
        super().__init__(config)
        for layer in self.decoder:
            layer.self_attention = Gated(config)
        self.unused = nn.Parameter(torch.ones(3))


class Counting(torch.optim.Optimizer):
    """An optimizer that keeps Python numbers in the state of parameters and of groups."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1, "decay": 0.9, "steps": 0})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["steps"] += 1
            for weight in group["params"]:
                if weight.grad is not None:
                    state = self.state[weight]
                    if not state:
                        state |= {
                            "mean": torch.zeros_like(weight),
                            "count": 0,
                            "share": 0.5,
                            "odd": False,
                        }
                    state["count"] += 1
                    state["share"] = state["share"] * 0.9 + 0.1 * state["count"] / group["steps"]
                    state["odd"] = not state["odd"]
                    state["mean"].lerp_(weight.grad, 1 - group["decay"])
                    direction = (
                        state["mean"].sign() * state["share"] * (1.5 if state["odd"] else 1.0)
                    )
                    weight -= group["lr"] * direction


def counting(parameters, training):
    return Counting([weight for _, weight in parameters])


def slow_start(step):
    return 1e-3 * min(1.0, step / 4)


def smoother_loss(logits, labels):
    return smoothed_loss(logits, labels, 0.3)[0]


def test_a_custom_model_is_trained_validated_saved_and_translates(train, tmp_path):
    run = train(model=GatedTransformer)
    bundle = load_bundle(tmp_path / "run/last")
    gates = [weight for name, weight in bundle.weights().items() if name.endswith("gate")]
    assert len(gates) == 1
    assert float(gates[0]) != pytest.approx(0.9)  # it has learned
    assert bundle.own_model == "GatedTransformer"
    with pytest.raises(
        BundleError, match=r"your own model GatedTransformer, whose code is not in it.*Translator\("
    ):
        run.translator()
    translator = run.translator(model=GatedTransformer, device="cpu")
    ours = translator.translate("12 hours").text
    model = load_model(load_bundle(run.bundle), build=GatedTransformer)
    engine = transduce.Translator(run.path, engine=TorchEngine(model))
    assert engine.translate("12 hours").text == ours
    with pytest.raises(BundleError, match="do not fit the model Transformer"):
        run.translator(model=Transformer, device="cpu")
    with pytest.raises(TransduceError, match="your own model GatedTransformer"):
        transduce.export(run.path, tmp_path / "out", "onnx")
    assert not (tmp_path / "out").exists()
    with pytest.raises(ConfigError, match="cannot run your own model or tokenizer"):
        run.translator(model=GatedTransformer, engine="ctranslate2")


def test_validation_uses_the_custom_model(train, tmp_path):
    """The scores of a model with constant logits show that validation uses it."""

    class Mute(Transformer):
        def logits(self, x):
            return super().logits(x) * 0.0

    train("mute", model=Mute)
    train("plain")
    mute, plain = (dict(losses(tmp_path / name, "validation")) for name in ("mute", "plain"))
    assert mute[8] == pytest.approx(torch.log(torch.tensor(499.0)).item(), rel=1e-4) != plain[8]


def test_a_module_is_a_template_whose_hooks_are_kept(train):
    seen, config = [], ModelConfig(vocab_size=500, N=1, d_model=32, d_ff=64, h=2, d_k=16, d_v=16)
    template = Transformer(config)
    before = {name: weight.clone() for name, weight in template.state_dict().items()}
    template.decoder[0].self_attention.register_forward_hook(
        lambda module, *_: seen.append(module.training)
    )
    train(model=template)
    assert {True, False} <= set(seen)  # in training, and in validation
    assert all(torch.equal(before[name], weight) for name, weight in template.state_dict().items())


HOOKS = {
    "model": {"model": GatedTransformer},
    "optimizers": {"optimizers": counting},
    "schedule": {"schedule": slow_start},
    "loss": {"loss": smoother_loss},
    "all": {
        "model": GatedTransformer,
        "optimizers": counting,
        "schedule": slow_start,
        "loss": smoother_loss,
    },
}


@pytest.mark.parametrize("hooks", HOOKS.values(), ids=HOOKS.keys())
def test_a_run_with_hooks_resumes_exactly(train, tmp_path, hooks, monkeypatch):
    train("whole", **hooks)
    with monkeypatch.context() as stopped:
        stopped.setattr(Trainer, "_step", signalled(5, Trainer._step))
        assert train("run", **hooks).state.stopped_by == "SIGTERM"
    with pytest.raises(
        ConfigError, match=r"was started with \w+ \w+, not the recipe's; pass the same again"
    ):
        train("run")
    train("run", **hooks)
    assert_same_steps(tmp_path / "run", tmp_path / "whole")
    mine, other = (
        load_newest(tmp_path / name / "checkpoints").tensors("optimiser")
        for name in ("run", "whole")
    )
    assert all(torch.equal(mine[name], other[name]) for name in other)
    if "optimizers" in hooks:
        assert {name.partition("/")[2] for name in other} == {
            "mean",
            "count:int",
            "share:float",
            "odd:bool",
            "steps:int",
        }


def test_each_hook_changes_the_run(train, tmp_path):
    train("plain")
    for name, hooks in HOOKS.items():
        train(name, **hooks)
        assert losses(tmp_path / name)[-1] != losses(tmp_path / "plain")[-1], name
    rates = [record["learning_rate"] for record in Run(tmp_path / "schedule").metrics()]
    assert rates == [slow_start(step) for step in range(1, 9)]


def test_the_default_hooks_are_what_a_run_without_hooks_does(train, tmp_path):
    from transduce.training.optimizer import build_optimizers, learning_rate

    train = partial(train, more=["training.precision=float32"])
    plain = train("plain")
    settings = transduce.load_recipe(str(tmp_path / "plain/recipe.toml"))
    train(
        "handed in", model=Transformer, optimizers=build_optimizers,
        schedule=lambda step: learning_rate(settings, step),
    )  # fmt: skip
    assert_same_steps(tmp_path / "handed in", plain.path)

    # A loss that is handed in is not fused with the product before it, so its rounding differs.
    train(
        "loss",
        loss=lambda logits, labels: smoothed_loss(logits, labels, settings.training.eps_ls)[0],
    )
    expected = dict(losses(plain.path))
    assert dict(losses(tmp_path / "loss")) == pytest.approx(expected, rel=1e-5)


def test_callbacks_get_every_record_and_may_end_the_run(train, tmp_path):
    seen = []

    def stop(record):
        seen.append(record)
        return record["kind"] == "step" and record["step"] == 5

    run = train(callbacks=[stop])
    written = [
        json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    ]
    assert seen == written
    assert (run.step, load_newest(tmp_path / "run/checkpoints").step) == (5, 5)
    assert "a callback: the run is saved" in written[-1]["message"]
    train()
    train("whole")
    assert_same_steps(tmp_path / "run", tmp_path / "whole")


def test_a_callback_that_raises_is_named_and_nothing_is_lost(train, tmp_path):
    def log_to_nowhere(record):
        if record["step"] == 5:
            raise ConnectionError("no such host")

    message = (
        "callback .*log_to_nowhere raised ConnectionError: no such host; "
        "step 5 is saved, and the run can be resumed"
    )
    with pytest.raises(HookError, match=message):
        train(callbacks=[log_to_nowhere])
    assert load_newest(tmp_path / "run/checkpoints").step == 5
    train()
    train("whole")
    assert_same_steps(tmp_path / "run", tmp_path / "whole")


def test_a_run_is_a_table_and_shows_its_progress(train, tmp_path):
    run = train()
    table = pyarrow.json.read_json(tmp_path / "run/metrics.jsonl")
    assert {"kind", "step", "loss", "bleu"} <= set(table.column_names)
    rows = run.metrics()
    assert [row["step"] for row in rows] == list(range(1, 9))
    assert all(row.keys() == rows[0].keys() for row in rows)  # columns of a table
    assert [row["step"] for row in run.metrics("validation")][:2] == [4, 8]
    assert repr(run) == repr(Run(tmp_path / "run"))
    for shown in (repr(run), run._repr_html_()):
        assert re.search(r"finished.*8 of 8.*BLEU \d", shown)


class Letters:
    """A tokenizer of letters."""

    alphabet = sorted(
        string.ascii_letters + string.digits + " .,:;%-'$\u00e4\u00f6\u00fc\u00df\u20ac\u00a3"
    )
    size = len(alphabet)

    def encode(self, text):
        return [self.alphabet.index(letter) for letter in text if letter in self.alphabet]

    def decode(self, ids):
        return "".join(self.alphabet[token] for token in ids)


def test_a_custom_tokenizer_works_from_text_to_text(train, tmp_path):
    run = train(
        tokenizer=Letters(), more=["data.tokenizer.sampling=0"], store=tmp_path / "letters.store"
    )
    assert load_bundle(run.bundle).recipe.model.vocab_size == Letters.size + 3
    with pytest.raises(DataError, match=r"the tokenizer is your own code.*Letters"):
        run.translator()
    translator = run.translator(tokenizer=Letters(), device="cpu")
    assert isinstance(translator.translate("12 hours").text, str)
    assert set(translator.translate("12 hours").text) <= set(Letters.alphabet)
    source = translator.tokenizers[0].encode("12 hours")
    assert translator.tokenizers[0].decode(source) == "12 hours"
    assert source[-1] == 0
    assert min(source[:-1]) >= 2

    class Other(Letters):
        pass

    with pytest.raises(DataError, match="trained with another tokenizer"):
        run.translator(tokenizer=Other())
    with pytest.raises(DataError, match="trained with another tokenizer"):
        train("plain").translator(tokenizer=Letters())
    tuned = train("tuned", tokenizer=Letters(), start_from=run.path, store=tmp_path / "tuned.store")
    assert load_bundle(tuned.bundle).tokenizer_files == load_bundle(run.bundle).tokenizer_files


@pytest.mark.parametrize("own", [{"model"}, {"model", "tokenizer"}])
def test_a_run_with_own_code_ends_with_a_step_that_works(own, train, tmp_path, capsys):
    tokenizer = Letters()
    hooks = {"model": GatedTransformer, "tokenizer": tokenizer}
    train(
        more=["data.tokenizer.sampling=0"],
        store=tmp_path / "text.store",
        **{name: hooks[name] for name in own},
    )
    shown = capsys.readouterr().err
    (step,) = re.findall(r"^next: (.+)$", shown, flags=re.MULTILINE)
    names = {"transduce": transduce, "GatedTransformer": GatedTransformer, "tokenizer": tokenizer}
    assert isinstance(eval(step, names).text, str)


class Echo:
    """An engine that returns its input."""

    def search(self, sources, config, *, prefixes=(), token_scores=True):
        return [
            [Hypothesis(list(source[:-1]), 0.0, 0.0, [0.0] * len(source))] for source in sources
        ]


def test_a_custom_engine_searches(train):
    translator = train().translator(engine=Echo())
    assert translator.translate(["one. two", "12 hours"])[1].text == "12 hours"
    assert translator.translate("<b>12</b> hours", confidences=True).text == "<b>12</b> hours"


class Short(Echo):
    def search(self, *args, **kwargs):
        return super().search(*args, **kwargs)[:-1]


class Texts(Echo):
    def search(self, sources, *args, **kwargs):
        return ["text"] * len(sources)


class Broken(Echo):
    def search(self, sources, config):
        return []


@pytest.mark.parametrize(
    ("engine", "error", "message"),
    [
        (
            Short(),
            HookError,
            "engine Short returned list for 1 sources; expected a list of at least one Hypothesis for each",
        ),
        (Texts(), HookError, "engine Texts returned list"),
        (Broken(), HookError, "engine Broken raised TypeError: .*unexpected keyword argument"),
        (
            object(),
            ConfigError,
            r"engine is <object.*>; expected auto, torch, ctranslate2, or an object with search\(",
        ),
        ("tpu", ConfigError, "engine is 'tpu'"),
    ],
)
def test_an_engine_that_breaks_the_protocol_is_named(trained, engine, error, message):
    with pytest.raises(error, match=message):
        trained.translator(engine=engine).translate("12 hours")


@pytest.fixture(scope="module")
def trained(recipe, tmp_path_factory):
    overrides = [*FAST, "training.steps=1", "training.validate_every=1"]
    return transduce.train(
        recipe, overrides=overrides, run=tmp_path_factory.mktemp("runs") / "run", device="cpu"
    )


class NoDecode(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config

    def encode(self, source):
        raise NotImplementedError


class WrongLogits(Transformer):
    def logits(self, x):
        return super().logits(x)[..., :-2]


class NotAnOptimizer:
    def step(self):
        pass


class Hoarder(Counting):
    def step(self, closure=None):
        super().step()
        for state in self.state.values():
            state["history"] = ["a list"]


def raises(*_):
    raise KeyError("typo")


@pytest.mark.parametrize(
    ("hooks", "error", "message"),
    [
        (
            {"model": NoDecode},
            InputError,
            r"the model NoDecode has no decode; expected a module with config",
        ),
        ({"model": lambda config: 5}, InputError, "the model int has no encode"),
        (
            {"model": Transformer(ModelConfig(vocab_size=77))},
            ConfigError,
            "has config.vocab_size 77, but .* needs 500",
        ),
        ({"model": raises}, HookError, "model raises raised KeyError: 'typo'"),
        (
            {"model": WrongLogits},
            ConfigError,
            r"WrongLogits returned logits of shape \(\d+, \d+, 498\); expected .* 500\)",
        ),
        ({"model": "base"}, ConfigError, "model is 'base'; expected a function"),
        (
            {"optimizers": lambda *_: NotAnOptimizer()},
            ConfigError,
            "NotAnOptimizer, which has no state_dict; expected",
        ),
        ({"optimizers": raises}, HookError, "optimizers raises raised KeyError"),
        (
            {"optimizers": lambda named, _: Hoarder([weight for _, weight in named])},
            ConfigError,
            "an optimizer keeps 'history', a list",
        ),
        (
            {"schedule": lambda step: -1.0},
            ConfigError,
            "schedule .* returned -1.0 for step 1; expected a learning rate",
        ),
        ({"schedule": lambda step: "fast"}, ConfigError, "schedule .* returned 'fast' for step 1"),
        (
            {"loss": lambda logits, labels: logits},
            ConfigError,
            "loss .* returned Tensor .*; expected one number",
        ),
        (
            {"loss": lambda logits, labels: 3.0},
            ConfigError,
            "loss .* returned float 3.0; expected one number",
        ),
        ({"loss": raises}, HookError, "loss raises raised KeyError: 'typo'"),
        ({"callbacks": ["print"]}, ConfigError, "callbacks is 'print'; expected a function"),
        ({"tokenizer": object()}, ConfigError, "the tokenizer object has no size; expected size"),
        (
            {"tokenizer": type("Big", (Letters,), {"size": 0})()},
            ConfigError,
            "the tokenizer Big has size 0",
        ),
        (
            {"tokenizer": type("Wild", (Letters,), {"encode": lambda self, text: [99999]})()},
            InputError,
            "Wild.encode returned ids from 99999 to 99999; expected 0 to",
        ),
    ],
    ids=range(18),
)
def test_a_wrong_hook_is_a_one_line_error_that_names_it(train, tmp_path, hooks, error, message):
    with pytest.raises(error, match=message) as raised:
        train(store=tmp_path / "store", **hooks)
    assert "\n" not in str(raised.value)


def test_a_recipe_without_a_file_needs_a_folder_for_the_run(recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(recipe.parent)
    settings = transduce.load_recipe(str(recipe), FAST)
    with pytest.raises(ConfigError, match="run is missing; a recipe without a file has no name"):
        transduce.train(settings)
    run = transduce.train(
        settings, run=tmp_path / "run", overrides=["training.steps=1"], device="cpu"
    )
    assert run.step == 1
    assert Path(f"{tmp_path / 'run'}.store").is_dir()


def test_fine_tuning_a_bundle_with_more_weights_says_which_are_new(
    train, trained, tmp_path, capsys
):
    train(model=GatedTransformer, start_from=trained.path, more=["training.steps=1"])
    assert (
        "except for 2 weights that it does not have, such as decoder.0.self_attention.gate"
        in capsys.readouterr().err
    )


def test_searching_with_a_custom_model_needs_encode_and_decode():
    with pytest.raises(InputError, match="the model Linear has no encode"):
        TorchEngine(nn.Linear(2, 2))
    model = WrongLogits(ModelConfig(vocab_size=50, N=1, d_model=16, d_ff=16, h=2, d_k=8, d_v=8))
    with pytest.raises(
        InputError,
        match=r"WrongLogits.decode returned logits of shape \(1, 1, 48\); expected \(1, 1, 50\)",
    ):
        TorchEngine(model).search([[5, 0]], SearchConfig(beam_size=1))


def test_a_search_that_differs_from_training_is_noticed_at_the_first_validation(train, capsys):
    class OnlyInTraining(Transformer):
        """A change that the search does not see."""

        def forward(self, source, target):
            return 3.0 * super().forward(source, target)

    notice = "the search does not compute what training computes"
    train("changed", model=OnlyInTraining)
    shown = capsys.readouterr().err
    assert shown.count(notice) == 1  # two validations
    assert "until forward, encode and decode of the model agree" in shown
    train("standard")
    assert notice not in capsys.readouterr().err
