"""What the page computes in JavaScript equals what torch computes."""

import json
import math
import shutil
import subprocess
from importlib.resources import files

import pytest
import torch

SCRIPT = """
const { q, k, v, allowed, divisors, logits, others, temperature } = JSON.parse(process.argv[2]);
const scores = dotProducts(q.flat(), k.flat(), q[0].length);
const columns = k.length;
const weights = divisors.map((divisor) => softmaxRows(scores, columns, divisor, allowed.flat()));
const open = softmaxRows(scores, columns, divisors[0]);
const sums = q.map((_, row) => weightedSum(weights[0].slice(row * columns, (row + 1) * columns), v.flat(), v[0].length));
const entropy = q.map((_, row) => entropyOf(weights[0].slice(row * columns, (row + 1) * columns)));
const tempered = temperedSoftmax(logits, others, temperature);
console.log(JSON.stringify({ scores, weights, open, sums, entropy, tempered }));
"""


@pytest.fixture(scope="module")
def arithmetic(tmp_path_factory):
    """A function that runs the page's arithmetic on some numbers."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    module = files("transduce.page").joinpath("static", "arithmetic.js").read_text(encoding="utf-8")
    path = tmp_path_factory.mktemp("page") / "arithmetic.mjs"
    path.write_text(module + SCRIPT, encoding="utf-8")

    def run(numbers):
        command = [node, str(path), json.dumps(numbers)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    return run


def test_the_page_computes_attention_and_probabilities_as_torch_does(arithmetic):
    torch.manual_seed(2)
    q, k, v = torch.randn(4, 16) * 3, torch.randn(5, 16) * 3, torch.randn(5, 3)
    allowed = torch.ones(4, 5, dtype=torch.long).tril(1)
    logits = torch.randn(40) * 4
    best, others = logits.topk(6).values, logits.topk(40).values[6:]
    found = arithmetic(
        {
            "q": q.tolist(),
            "k": k.tolist(),
            "v": v.tolist(),
            "allowed": allowed.tolist(),
            "divisors": [4.0, 0.5],
            "logits": best.tolist(),
            "others": torch.logsumexp(others / 2.5, 0).item(),
            "temperature": 2.5,
        }
    )
    scores = q @ k.T
    masked = scores.masked_fill(allowed == 0, -math.inf)
    weights = (masked / 4).softmax(-1)
    probabilities = (logits / 2.5).softmax(-1)
    expected = {
        "scores": scores.flatten(),
        "weights": torch.stack([weights, (masked / 0.5).softmax(-1)]).flatten(1),
        "open": (scores / 4).softmax(-1).flatten(),
        "sums": weights @ v,
        "entropy": torch.special.entr(weights).sum(-1),
        "tempered": torch.cat(
            [probabilities.topk(6).values, probabilities.sort().values[:-6].sum()[None]]
        ),
    }
    for name, value in expected.items():
        torch.testing.assert_close(torch.tensor(found[name]), value, rtol=1e-4, atol=1e-5, msg=name)
