"""Data-parallel training with PyTorch's DDP over gloo: an ordinary script, which knows no testbed.

python ddp.py store HOST PORT                  where the ranks find one another
python ddp.py rank HOST PORT RANK RANKS        one rank of the training
"""

import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 6
INPUTS, OUTPUTS = 999, 300
"""A layer of 1000 x 300 float32 values with its biases: gradients of 1.2 MB."""


def store(host: str, port: int, *, serves: bool) -> dist.TCPStore:
    """Return the store at this address; ``serves``: in this process."""
    return dist.TCPStore(host, port, is_master=serves, wait_for_workers=False)


def train(rank: int, ranks: int) -> None:
    """Fit a linear layer to data of this rank, and print the loss and time of every step."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    target = torch.nn.Linear(INPUTS, OUTPUTS)
    model = DistributedDataParallel(torch.nn.Linear(INPUTS, OUTPUTS))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    draws = torch.Generator().manual_seed(1 + rank)
    for step in range(STEPS):
        begun = time.monotonic()
        samples = torch.randn(64, INPUTS, generator=draws)
        loss = torch.nn.functional.mse_loss(model(samples), target(samples).detach())
        optimizer.zero_grad()
        loss.backward()  # DDP averages the gradients of all ranks meanwhile
        optimizer.step()
        print(
            f"step {step} loss={loss.item():.5f} seconds={time.monotonic() - begun:.3f}", flush=True
        )


def main() -> None:
    """Do what the command line says."""
    what, host, port, *rest = sys.argv[1:]
    if what == "store":
        held = store(host, int(port), serves=True)
        print(f"ranks meet at port {held.port}", flush=True)
        signal.pause()
    rank, ranks = map(int, rest)
    meeting = store(host, int(port), serves=False)
    dist.init_process_group("gloo", store=meeting, rank=rank, world_size=ranks)
    train(rank, ranks)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
