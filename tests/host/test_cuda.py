"""Whether there is a GPU, as reported by another process."""

from __future__ import annotations

import pytest
import torch

from testbed.host.cuda import has_cuda


@pytest.mark.slow  # imports torch once more
def test_the_answer_equals_that_of_pytorch() -> None:
    assert has_cuda() == torch.cuda.is_available()
