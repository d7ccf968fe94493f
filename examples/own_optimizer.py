"""An optimizer of your own: Lion (Chen et al., 2023), with a schedule; its state is saved and resumed with the run.

python examples/own_optimizer.py [FOLDER]
"""

import sys
from pathlib import Path

import digits
import torch

import transduce


class Lion(torch.optim.Optimizer):
    """Steps of one size, in the direction of a moving mean of gradients."""

    def __init__(self, parameters, betas=(0.9, 0.99), weight_decay=0.01):
        super().__init__(parameters, {"lr": 0.0, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                mean = self.state[weight].setdefault("mean", torch.zeros_like(weight))
                direction = mean.lerp(weight.grad, 1 - group["betas"][0]).sign()
                weight.mul_(1 - group["lr"] * group["weight_decay"]).sub_(direction, alpha=group["lr"])
                mean.lerp_(weight.grad, 1 - group["betas"][1])


def optimizers(parameters, training):
    """Called once with the named parameters and the TrainingConfig; may return several optimizers."""
    return Lion([weight for _, weight in parameters])


def schedule(step: int) -> float:
    """The learning rate of step 1, 2, 3, ...: it rises for 50 steps and falls to zero at the 400th."""
    return 1e-3 * min(step / 50, (400 - step) / 350)


def main(folder: Path = Path("runs/examples/lion")) -> None:
    recipe = digits.recipe(folder / "text")
    stop = {"run": folder / "run", "device": "cpu", "optimizers": optimizers, "schedule": schedule}

    # The first call ends after 100 steps; the second goes on, from the same weights and the same moving means.
    transduce.train(recipe, callbacks=[lambda record: record["kind"] == "step" and record["step"] == 100], **stop)
    run = transduce.train(recipe, **stop)
    print(run)
    print(run.translator(device="cpu").translate("4 0 7").text)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
