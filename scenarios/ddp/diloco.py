"""Training with local steps by PyTorch, as DiLoCo does: an ordinary script, which knows no testbed.

Every rank takes LOCAL_STEPS of AdamW by itself. Then the mean change of all ranks is the gradient
of an outer step, of SGD with Nesterov's momentum (Douillard et al., arXiv:2311.08105).

python diloco.py HOST PORT RANK RANKS
"""

import sys
import time

import torch
import torch.distributed as dist
from torch.nn.utils import parameters_to_vector, vector_to_parameters

ROUNDS, LOCAL_STEPS = 6, 20
INPUTS, OUTPUTS = 999, 300
"""A layer of 1000 x 300 float32 values with its biases: 1.2 MB in every round."""


def train(rank: int, ranks: int) -> None:
    """Fit a linear layer to data of this rank, and print loss and time of every exchange."""
    torch.manual_seed(0)  # all ranks begin with the same model
    torch.set_num_threads(1)
    target, model = torch.nn.Linear(INPUTS, OUTPUTS), torch.nn.Linear(INPUTS, OUTPUTS)
    inner = torch.optim.AdamW(model.parameters(), lr=1e-3)
    shared = torch.nn.Parameter(parameters_to_vector(model.parameters()).detach())
    outer = torch.optim.SGD([shared], lr=0.7, momentum=0.9, nesterov=True)
    draws = torch.Generator().manual_seed(1 + rank)
    for number in range(ROUNDS):
        for _ in range(LOCAL_STEPS):
            samples = torch.randn(64, INPUTS, generator=draws)
            loss = torch.nn.functional.mse_loss(model(samples), target(samples).detach())
            inner.zero_grad()
            loss.backward()
            inner.step()
        begun = time.monotonic()
        change = shared.detach() - parameters_to_vector(model.parameters()).detach()
        dist.all_reduce(change)
        shared.grad = change / ranks
        outer.step()
        vector_to_parameters(shared.detach(), model.parameters())
        seconds = time.monotonic() - begun
        print(f"round {number} loss={loss.item():.5f} seconds={seconds:.3f}", flush=True)


def main() -> None:
    """Meet the other ranks at the store, and train with them."""
    host, port, rank, ranks = sys.argv[1], *map(int, sys.argv[2:])
    store = dist.TCPStore(host, port, wait_for_workers=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    train(rank, ranks)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
