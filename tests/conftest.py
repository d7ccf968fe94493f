"""What all tests share."""

import os

import pytest
import torch

if not torch.cuda.is_available():
    # Before anything imports Triton: kernels are tested on the CPU too.
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """Tiny models run many times faster on one thread; and what a test's libraries set (CTranslate2 does) ends with it,
    for results are the same to the bit only on the same number of threads."""
    torch.set_num_threads(1)
