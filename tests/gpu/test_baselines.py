"""The rivals of Table 2 on a GPU: the same numbers as on a CPU, and a training step in bf16."""

import pytest
import torch

from transduce.config import ModelConfig
from transduce.model import Tokens
from transduce.paper.baselines.convolutional import ConvolutionalModel
from transduce.paper.baselines.recurrent import RecurrentModel
from transduce.training.step import Learner

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    # cuDNN copies weights that are separate parameters, and says so.
    pytest.mark.filterwarnings("ignore:RNN module weights are not part of single"),
]
V = 61


@pytest.mark.parametrize("kind", [RecurrentModel, ConvolutionalModel])
def test_a_rival_computes_on_a_gpu_what_it_computes_on_a_cpu(kind, monkeypatch):
    # By default convolutions on a GPU round their inputs to TF32.
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.manual_seed(0)
    model = kind(ModelConfig(vocab_size=V, N=3, d_model=64, p_drop=0.0)).eval()
    source = Tokens.padded([[5, 6, 7, 0], [8, 9, 10, 11, 12, 0]], V - 1)
    target = Tokens.padded([[13, 14, 0], [15, 16, 17, 18, 0]], V - 1)
    with torch.no_grad():
        expected, _ = model.decode(target, model.encode(source))
        model.cuda()
        found, _ = model.decode(target.to("cuda"), model.encode(source.to("cuda")))
    torch.testing.assert_close(found.cpu(), expected, atol=1e-3, rtol=1e-3)

    learner = Learner(model.train(), 0.1, bf16=True)
    learner(source.to("cuda"), target.to("cuda"))[0].backward()
    assert all(torch.isfinite(weight.grad).all() for weight in learner.parameters())
