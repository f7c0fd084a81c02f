"""A layer that reads a series step by step: long short-term memory.

S. Hochreiter, J. Schmidhuber: Long short-term memory. Neural computation 9 (8), 1997; with a forget
gate, F. Gers, J. Schmidhuber, F. Cummins, 2000. At every step, with [x, h] the input concatenated
with the last output:

    i, f, g, o = [x, h] W^T + b        c <- sigmoid(f) c + sigmoid(i) tanh(g)
                                       h <- sigmoid(o) tanh(c)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from testbed.models.layers import Layer, Pair


@dataclass(frozen=True)
class Memory(Layer):
    """Long short-term memory; returns the output after the last step, shape (batch, outputs).

    The input is read as a series of steps, row by row; each step has the values of all channels.
    """

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return (4 * self.outputs, self.inputs + self.outputs)

    @property
    def bias_size(self) -> int:
        return 4 * self.outputs

    def forward(self, at: Pair, x: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        series = x.reshape(len(x), -1, self.inputs).transpose(0, 1).contiguous()
        by_input, by_output = at.weight[:, : self.inputs], at.weight[:, self.inputs :].t()
        sums = torch.matmul(series, by_input.t()).add_(at.bias)
        steps, batch, _ = sums.shape
        outputs = sums.new_zeros(steps + 1, batch, self.outputs)
        cells = sums.new_zeros(steps + 1, batch, self.outputs)
        for t in range(steps):
            gates = sums[t].addmm_(outputs[t], by_output)
            enter, keep, fresh, leave = gates.chunk(4, 1)  # each becomes its activation
            torch.mul(keep.sigmoid_(), cells[t], out=cells[t + 1])
            cells[t + 1].addcmul_(enter.sigmoid_(), fresh.tanh_())
            torch.mul(leave.sigmoid_(), cells[t + 1].tanh(), out=outputs[t + 1])
        return outputs[-1], (series, sums, outputs, cells)

    def backward(
        self, at: Pair, kept: tuple[Tensor, ...], slope: Tensor, *, into: Pair, first: bool
    ) -> Tensor | None:
        series, gates, outputs, cells = kept
        by_output = at.weight[:, self.inputs :]
        slopes = torch.empty_like(gates)  # by the inputs of the gates
        by_cell = torch.zeros_like(cells[0])
        for t in range(len(series) - 1, -1, -1):
            enter, keep, fresh, leave = gates[t].chunk(4, 1)
            cell = cells[t + 1].tanh()
            by_cell = by_cell + slope * leave * (1 - cell * cell)
            into_enter, into_keep, into_fresh, into_leave = slopes[t].chunk(4, 1)
            torch.mul(by_cell * fresh, enter * (1 - enter), out=into_enter)
            torch.mul(by_cell * cells[t], keep * (1 - keep), out=into_keep)
            torch.mul(by_cell * enter, 1 - fresh * fresh, out=into_fresh)
            torch.mul(slope * cell, leave * (1 - leave), out=into_leave)
            slope, by_cell = slopes[t] @ by_output, by_cell * keep
        rows = slopes.view(-1, 4 * self.outputs)
        into.weight[:, : self.inputs] = rows.t() @ series.view(-1, self.inputs)
        into.weight[:, self.inputs :] = rows.t() @ outputs[:-1].reshape(-1, self.outputs)
        torch.sum(rows, 0, out=into.bias)
        if first:
            return None
        return (slopes @ at.weight[:, : self.inputs]).transpose(0, 1)
