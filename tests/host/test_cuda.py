"""Whether there is a GPU, as another process says."""

from __future__ import annotations

import pytest
import torch

from testbed.host.cuda import has_cuda


@pytest.mark.slow  # imports torch once more
def test_it_is_as_pytorch_has_it() -> None:
    assert has_cuda() == torch.cuda.is_available()
