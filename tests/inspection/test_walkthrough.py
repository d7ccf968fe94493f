"""The walkthrough: its numbers are the model's, its formulas and words those of this model."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import transduce
from tests import trained
from transduce.data.tokenizer import EOS
from transduce.errors import InputError
from transduce.inspection.walkthrough import walkthrough
from transduce.inspection.walkthrough.numbers import TEMPERATURES
from transduce.inspection.walkthrough.steps import STEPS
from transduce.translation.translator import Translator

TEXT = "The train leaves at ten."
# The paper's model, a modern one, and one that departs from the paper wherever it still can.
VARIATIONS = {
    "paper": {},
    "modern": {
        "norm_order": "pre",
        "norm": "rms",
        "positions": "rotary",
        "activation": "swiglu",
        "d_v": 8,
    },
    "other": {
        "N_decoder": 1,
        "positions": "learned",
        "max_positions": 64,
        "activation": "gelu",
        "attention_bias": True,
        "output_bias": True,
        "sharing": "none",
        "r": 5,
    },
}


@pytest.fixture(scope="module", params=VARIATIONS)
def translator(request):
    """A model with random norms and biases too, so that no fault hides behind a zero or a one."""
    model, tokenizer, recipe = trained.train(steps=2, rows=8, **VARIATIONS[request.param])
    torch.manual_seed(3)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "embedding" not in name:
                weight.add_(0.2 * torch.randn_like(weight))
    model.requires_grad_(False)
    return Translator.from_model(model, tokenizer, tokenizer, recipe)


@pytest.fixture(scope="module")
def walk(translator):
    return walkthrough(translator, TEXT, layer=2, head=3)


@pytest.fixture(scope="module")
def model(translator):
    return translator.engine.models[0]


@pytest.fixture(scope="module")
def ids(translator):
    source = translator.tokenizers[0].encode(TEXT)
    ((best, *_),) = translator.engine.search([source], translator.search)
    return source, [*best.ids, EOS]


@pytest.fixture
def run(model, ids):
    """Run the real model over the translation; return what a module got and gave, and the logits."""

    def run_with_hook(module):
        calls = []
        handle = module.register_forward_hook(lambda _, got, gave: calls.append((got, gave)))
        source, target = ids
        with torch.no_grad():
            logits = model(torch.tensor([source]), torch.tensor([[model.config.pad, *target[:-1]]]))
        handle.remove()
        return *calls[0], logits[0]

    return run_with_hook


def same(found, expected, tolerance=2e-5):
    np.testing.assert_allclose(found, torch.as_tensor(expected).detach(), atol=tolerance, rtol=1e-4)


def rotated(vectors):
    """Turn pairs of dimensions by their positions, as complex numbers."""
    half = vectors.size(-1) // 2
    pairs = torch.complex(vectors[:, :half], vectors[:, half:])
    angles = torch.arange(len(vectors))[:, None] * 10_000.0 ** -(torch.arange(half) / half)
    turned = pairs * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([turned.real, turned.imag], dim=-1)


def third_head(attention, inputs, *, turn):
    """Compute q, k and v of head 3 from the weights, as the paper writes it."""
    queries_from, keys_from = inputs[:2]
    heads = []
    for linear, vectors in (
        (attention.w_q, queries_from),
        (attention.w_k, keys_from),
        (attention.w_v, keys_from),
    ):
        width = linear.out_features // attention.h
        rows = slice(2 * width, 3 * width)
        bias = 0 if linear.bias is None else linear.bias[rows]
        heads.append(vectors[0] @ linear.weight[rows].T + bias)
    q, k, v = heads
    return (rotated(q), rotated(k), v) if turn else (q, k, v)


def equation_1(q, k, allowed):
    """Compute the weights with the mask as minus infinity."""
    scores = q @ k.T / math.sqrt(q.size(-1))
    return scores.masked_fill(~allowed, -torch.inf).softmax(dim=-1)


def neighbours(length, r):
    distance = torch.arange(length)[:, None] - torch.arange(length)
    return distance.abs() <= (length if r is None else r // 2)


def test_the_steps_come_in_the_papers_order(walk):
    assert [step.name for step in walk.steps] == [name for name, _, _ in STEPS]
    assert (walk.steps[0].name, walk.steps[-1].name) == ("tokens", "next-token")


def test_the_translation_is_the_translators(translator, walk, ids):
    assert walk.translation == translator.translate(TEXT).text
    assert walk["next-token"].data["text"][-1] == walk.translation
    assert (len(walk.source), len(walk.target)) == tuple(map(len, ids))
    same(walk["tokens"].data["ids"], ids[0])


def test_embedding_and_position_are_what_the_model_adds(model, walk, ids, run):
    matrix = (model.source_embedding or model.target_embedding).weight
    expected = matrix[ids[0]] * math.sqrt(model.config.d_model)
    same(walk["embedding"].data["embedding"], expected)
    same(walk["embedding"].data["norms"], expected.norm(dim=-1))
    (vectors, _), output, _ = run(model.source_positions)
    added = (output - vectors)[0]
    same(walk["position"].data["sum"], output[0])
    same(walk["embedding"].data["position_norms"], added.norm(dim=-1))
    if model.config.positions == "rotary":
        halves = torch.arange(8) / 8
        angles = torch.arange(len(walk.source))[:, None] * 10_000.0**-halves
        added = torch.cat([angles.cos(), angles.sin()], dim=-1)
    same(walk["position"].data["encoding"], added)


def test_a_head_of_the_encoder_is_equation_1_on_what_the_layer_gets(model, walk, run):
    attention = model.encoder[1].self_attention
    inputs, output, _ = run(attention)
    q, k, v = third_head(attention, inputs, turn=model.config.positions == "rotary")
    for name, expected in zip("qkv", (q, k, v), strict=True):
        same(walk["queries-keys-values"].data[name], expected)
    same(walk["scores"].data["scores"], q @ k.T, 1e-4)
    same(walk["scale"].data["divisor"], math.sqrt(model.config.d_k))
    same(walk["scale"].data["scaled"], q @ k.T / math.sqrt(model.config.d_k), 1e-4)
    allowed = neighbours(len(q), model.config.r)
    weights = equation_1(q, k, allowed)
    same(walk["softmax"].data["allowed"], allowed)
    same(walk["softmax"].data["weights"], weights)
    same(walk["softmax"].data["entropy"], torch.special.entr(weights).sum(dim=-1))
    same(walk["weighted-sum"].data["output"], weights @ v)
    same(walk["heads"].data["weights"][2], weights)
    same(walk["heads"].data["output"], output[0])

    # Without this head, its part of the sum over W^O is missing.
    width = v.size(-1)
    missing = weights @ v @ attention.w_o.weight[:, 2 * width : 3 * width].T
    share = missing.norm(dim=-1) / output[0].norm(dim=-1)
    same(walk["heads"].data["share"][2], share.mean(), 1e-4)


def test_residual_and_norm_are_those_of_the_layer(model, walk, run):
    residual = model.encoder[1].self_attention_residual
    (x, _), output, _ = run(residual)
    _, attended, _ = run(model.encoder[1].self_attention)
    x, output, attended = x[0], output[0], attended[0]
    data = walk["residual-norm"].data
    same(data["input"], x)
    same(data["sublayer"], attended)
    same(data["output"], output)
    post = model.config.norm_order == "post"
    normed = x + attended if post else x
    same(data["mean_before"], normed.mean(dim=-1))
    same(data["size_before"], normed.square().mean(dim=-1).sqrt())
    same(data["mean_after"], residual.norm(normed).mean(dim=-1))
    same(data["size_after"], residual.norm(normed).square().mean(dim=-1).sqrt())
    same(data["kept"], F.cosine_similarity(x, output, dim=-1))
    without = residual.norm(attended) if post else attended
    same(data["kept_without"], F.cosine_similarity(x, without, dim=-1))


def test_the_feed_forward_network_is_that_of_the_layer(model, walk, run):
    network = model.encoder[1].feed_forward
    (x,), output, _ = run(network)
    activation = {"relu": F.relu, "gelu": F.gelu, "swiglu": F.silu}[model.config.activation]
    inner = activation(network.w_1(x[0]))
    if network.w_gate is not None:
        inner = inner * network.w_gate(x[0])
    data = walk["feed-forward"].data
    same(data["inner"], inner)
    same(data["output"], output[0])
    if model.config.activation == "relu":
        same(data["active"], (inner > 0).float().mean(dim=-1))

    # With the four strongest neurons of each token alone, the result is off by this much.
    assert data["neurons"].tolist() == [1, 4, 16, 64, 128]
    strongest = inner.abs().topk(4, dim=-1).indices
    kept = torch.zeros_like(inner).scatter(1, strongest, inner.gather(1, strongest))
    whole = inner @ network.w_2.weight.T
    error = (kept @ network.w_2.weight.T - whole).norm(dim=-1) / whole.norm(dim=-1)
    same(data["error"][1], error.mean(), 1e-4)
    same(data["error"][-1], 0.0)


def test_the_mask_hides_the_future_and_nothing_else(model, walk, run):
    layer = model.decoder[min(2, len(model.decoder)) - 1]
    inputs, _, _ = run(layer.self_attention)
    q, k, v = third_head(layer.self_attention, inputs, turn=model.config.positions == "rotary")
    data = walk["mask"].data
    for name, expected in zip("qkv", (q, k, v), strict=True):
        same(data[name], expected)
    allowed = neighbours(len(walk.target), model.config.r).tril()
    same(data["allowed"], allowed)
    same(data["weights"], equation_1(q, k, allowed))


def test_cross_attention_reads_the_output_of_the_encoder(model, walk, run):
    layer = model.decoder[min(2, len(model.decoder)) - 1]
    inputs, _, _ = run(layer.cross_attention)
    q, k, v = third_head(layer.cross_attention, inputs, turn=False)
    data = walk["cross-attention"].data
    for name, expected in zip("qkv", (q, k, v), strict=True):
        same(data[name], expected)
    assert data["weights"].shape == (len(walk.target), len(walk.source))
    same(data["weights"], equation_1(q, k, torch.ones(data["weights"].shape, dtype=torch.bool)))


def test_the_distribution_is_the_models_softmax_at_every_temperature(model, walk, run, ids):
    *_, logits = run(model.encoder[0])
    data = walk["distribution"].data
    for column, temperature in enumerate(TEMPERATURES):
        expected = (logits / temperature).softmax(dim=-1).topk(12, dim=-1).values
        powers = np.exp(data["logits"].astype(float) / temperature)
        total = powers.sum(-1) + np.exp(data["rest"][:, column].astype(float))
        same(powers / total[:, None], expected)
    probabilities = logits.softmax(dim=-1)
    same(data["entropy"], torch.special.entr(probabilities).sum(dim=-1))
    chosen = walk["next-token"].data
    same(chosen["probability"], probabilities[range(len(ids[1])), ids[1]])
    same(chosen["best_probability"], probabilities.max(dim=-1).values)


def test_moving_the_source_changes_added_positions_but_not_rotary_ones(model, walk):
    kind = model.config.positions
    data = walk["position"].data
    same(data["weights"][0], walk["softmax"].data["weights"])  # moved by nothing
    change = abs(data["weights"][data["variants"].index("10")] - data["weights"][0]).max()
    assert (change < 1e-4) if kind == "rotary" else (change > 1e-3)
    assert ("100" in data["variants"]) == (kind != "learned")  # whose table has 64 rows
    assert abs(data["weights"][-1] - data["weights"][0]).max() > 1e-3
    assert len(data["translations"]) == len(data["variants"]) == len(data["weights"])


def test_without_positions_the_order_of_the_tokens_does_not_matter(model, translator):
    if model.config.r:
        pytest.skip("a neighbourhood depends on the order")
    forth, back = (walkthrough(translator, text) for text in ("2 4 6 8", "8 6 4 2"))
    assert forth["position"].data["variants"][-1] == "none"
    position_of = {}
    for index, piece in enumerate(back["tokens"].data["pieces"]):
        position_of.setdefault(piece, []).append(index)
    order = [position_of[piece].pop() for piece in forth["tokens"].data["pieces"]]
    moved = back["position"].data["weights"][-1][np.ix_(order, order)]
    same(forth["position"].data["weights"][-1], moved)


def test_nothing_stays_on_the_model(model, translator):
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    walkthrough(translator, TEXT)
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


def highlighted(step):
    lines = step.code.lines.splitlines()
    return "\n".join(lines[number] for number in step.code.highlight)


def test_the_code_of_each_step_stands_in_the_source_of_the_model(walk):
    package = Path(transduce.__file__).parent
    for step in walk.steps:
        assert step.code.file.startswith("model/")
        lines = (package / step.code.file).read_text(encoding="utf-8").splitlines()
        shown = step.code.lines.splitlines()
        start = step.code.first_line - 1
        in_file = lines[start : start + len(shown)]
        assert [line.strip() for line in shown] == [line.strip() for line in in_file], step.name
        assert all(shown[number].strip() for number in step.code.highlight)
    assert "math.sqrt(q.size(-1))" in highlighted(walk["scale"])
    assert ".softmax(dim=-1)" in highlighted(walk["softmax"])
    assert "k_positions <= q_positions" in highlighted(walk["mask"])


def text_of(formula):
    return "".join(ElementTree.fromstring(formula).itertext())


def test_formulas_are_mathml_and_nothing_else(walk):
    scripts = {"msub", "msup", "msubsup", "mfrac", "msqrt"}
    known = {"math", "mrow", "mi", "mo", "mn", "mtext", "mtable", "mtr", "mtd"} | scripts
    for step in walk.steps:
        for node in ElementTree.fromstring(step.formula).iter():
            assert node.tag.removeprefix("{http://www.w3.org/1998/Math/MathML}") in known


def test_norms_are_explained_as_the_model_computes_them(model, walk):
    step = walk["residual-norm"]
    if model.config.norm_order == "post":
        assert text_of(step.formula).startswith("LayerNorm(x+Attention(x))")
        assert "self.norm(x + " in highlighted(step)
        assert "This model" not in step.explanation
    else:
        assert text_of(step.formula).startswith("x+Attention(RMSNorm(x))")
        assert "sublayer(self.norm(x))" in highlighted(step)
        assert "This model normalizes before attention" in step.explanation
        assert "mean 0" not in step.explanation
        assert "pre-norm" in walk["queries-keys-values"].explanation


def test_positions_are_explained_as_the_model_computes_them(model, walk):
    kind = model.config.positions
    step = walk["position"]
    functions = {"sinusoidal": "sinusoids", "learned": "Positions.forward", "rotary": "rotate"}
    assert step.code.function == functions[kind]
    assert ("sin(" in text_of(step.formula)) == (kind == "sinusoidal")
    assert ("This model" in step.explanation) == (kind != "sinusoidal")
    assert ("R(XW3Q" in text_of(walk["queries-keys-values"].formula)) == (kind == "rotary")


def test_projections_are_explained_as_the_model_computes_them(model, walk):
    config = model.config
    formula = text_of(walk["feed-forward"].formula)
    expected = {
        "relu": "FFN(x)=max(0,xW1+b1)W2+b2",
        "gelu": "FFN(x)=GELU(xW1+b1)W2+b2",
        "swiglu": "h=Swish(xW1+b1)⊙(xWg+bg)FFN(x)=hW2+b2",
    }
    assert formula == expected[config.activation]
    assert ("This model" in walk["feed-forward"].explanation.replace("this", "This")) == (
        config.activation != "relu"
    )
    assert ("b3Q" in text_of(walk["queries-keys-values"].formula)) == config.attention_bias
    assert ("Wout" in text_of(walk["distribution"].formula)) == (config.sharing == "none")
    assert ("neighbourhood of 5" in walk["softmax"].explanation) == (config.r == 5)


def test_every_explanation_is_a_few_plain_sentences(walk):
    for step in walk.steps:
        sentences = re.findall(r"[.?] (?=[A-Z])", step.explanation + " A")
        assert 2 <= len(sentences) <= 6, step.name
        assert len(step.explanation) < 500, step.name
        assert re.fullmatch(r"\d(\.\d)*", step.section)


def test_json_is_plain_rounded_and_small(walk):
    found = walk.to_dict()
    assert len(json.dumps(found, allow_nan=False)) < 250_000
    assert found["version"] == 1
    for step in found["steps"]:
        for name, entry in step["data"].items():
            if isinstance(entry, list):
                assert all(isinstance(value, str) for value in entry)
                continue
            whole = np.asarray(walk[step["name"]].data[name])
            if "of" in entry:
                assert (entry["columns"], entry["of"]) == (32, whole.shape[-1])
                whole = whole[..., :32]
            same(np.reshape(entry["data"], entry["shape"]), torch.as_tensor(whole))
    # The page computes with q, k and v: they are whole.
    assert found["steps"][3]["data"]["q"]["shape"] == [len(walk.source), 16]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layer": 3}, r"layer is 3; this model has the layers 1 to 2"),
        ({"layer": 0}, r"layer is 0; this model has the layers 1 to 2"),
        ({"head": 5}, r"head is 5; this model has the heads 1 to 4"),
        ({"head": True}, r"head is True; this model has the heads 1 to 4"),
        ({"text": "  "}, r"the text has nothing to translate"),
        ({"text": 3}, r"the text is a int; expected a string"),
    ],
)
def test_what_is_not_there_is_refused_in_one_line(translator, arguments, message):
    with pytest.raises(InputError, match=message):
        walkthrough(translator, **({"text": TEXT} | arguments))


def test_a_model_of_another_class_is_refused(translator):
    class Stranger(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner
            self.config = inner.config
            self.encode = inner.encode
            self.decode = inner.decode

    stranger = Stranger(translator.engine.models[0])
    other = Translator.from_model(stranger, *translator.tokenizers, translator.recipe)
    with pytest.raises(InputError, match="the model is a Stranger; the walkthrough explains"):
        walkthrough(other, TEXT)


def test_a_translator_that_samples_is_shown_with_a_beam(translator):
    search = replace(translator.search, temperature=1.0)
    other = Translator.from_model(
        translator.engine.models[0], *translator.tokenizers, translator.recipe, search=search
    )
    walk = walkthrough(other, TEXT)
    assert walk.translation == translator.translate(TEXT).text
    assert any("the translator samples" in notice for notice in walk.notices)


def test_a_translation_that_was_stopped_is_said(translator):
    other = Translator.from_model(
        translator.engine.models[0],
        *translator.tokenizers,
        translator.recipe,
        search=replace(translator.search, max_length=2),
    )
    walk = walkthrough(other, TEXT)
    assert len(walk.target) == 3
    assert "the translation was stopped at 2 tokens and may lack its end" in walk.notices


def test_of_a_long_sentence_the_beginning_is_shown(translator):
    walk = walkthrough(translator, "it is ten " * 30)
    assert len(walk.source) == 48
    assert ("it is ten " * 30).startswith(walk.text)
    assert any("only the first 47 are read here" in notice for notice in walk.notices)
    assert len(json.dumps(walk.to_dict())) < 1_000_000


def test_a_notebook_shows_every_step_and_takes_text_as_text(translator):
    walk = walkthrough(translator, "1 < 2 and 3 > 2")
    page = walk._repr_html_()
    assert page.startswith("<p>1 &lt; 2 and 3 &gt; 2 ")
    for step in walk.steps:
        assert f"{step.title} (§{step.section})" in page
        assert step.formula in page


def test_of_several_sentences_the_first_is_shown(translator):
    walk = walkthrough(translator, "Good morning. It is late.")
    assert walk.text == "Good morning."
    assert "the text has 2 sentences; the first one is shown" in walk.notices
