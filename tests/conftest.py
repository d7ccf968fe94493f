"""What all tests share."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    torch.set_num_threads(1)  # tiny models run many times faster on one thread
