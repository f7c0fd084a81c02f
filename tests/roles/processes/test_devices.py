"""Workers and an evaluator that compute on a device of torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from testbed.scenario.experiment import load_model

Make = Any


def test_a_device_sends_the_bytes_that_a_cpu_sends(make: Make) -> None:
    """The CPU as a device: parameters are copied to it, and gradients back.

    Bulk-synchronous rounds are bit-identical. A push has 17,258 values of four bytes.
    """
    finals = []
    for device in ("", "cpu"):
        cast = make(
            algorithm="{name: bsp, learning_rate: 0.05}",
            workers="{count: 3, batch_size: 4, classes: {any: {speed: 1ms}}}",
            evaluate="{every: 20, images: 20}",
        )
        cast.device = device
        cast.start_all(3)
        cast.wait_for("done")
        assert cast.terminate() == {0}
        rows = cast.rows()
        assert set(rows["payload_up_bytes"]) == set(rows["payload_down_bytes"]) == {4 * 17258}
        finals.append(load_model(cast.folder, "final"))
    np.testing.assert_array_equal(finals[0].parameters, finals[1].parameters)
    assert finals[0].taken.evaluation == finals[1].taken.evaluation


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("node", ["w0", "evaluator"])
def test_a_node_without_its_gpu_ends_with_the_reason(make: Make, node: str) -> None:
    cast = make()
    cast.device = "cuda"
    cast.start("ps")
    cast.wait_for("listening")
    cast.start(node)
    assert cast.exit_status(node) == 3
    told = cast.log(node).read_text(encoding="utf-8")
    assert told.startswith(f"{node}: its device is cuda, but PyTorch cannot use CUDA")
    assert cast.events("joined") == []
