"""Data-parallel training with PyTorch's DDP over gloo: an ordinary script, which knows no testbed.

python ddp.py store HOST PORT                  where the ranks find one another
python ddp.py rank HOST PORT RANK RANKS        one rank of the training
python ddp.py rank HOST PORT RANK RANKS tree   the same; a tree of ranks adds gradients, not a ring
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


def by_tree(ranks: int, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Add gradients towards rank 0 in a binary tree, and send the sums back; a hook of DDP."""
    rank, total = dist.get_rank(), bucket.buffer()
    children = [child for child in (2 * rank + 1, 2 * rank + 2) if child < ranks]
    theirs = [torch.empty_like(total) for _ in children]
    for arriving in [dist.irecv(*pair) for pair in zip(theirs, children, strict=True)]:
        arriving.wait()
    for gradients in theirs:
        total += gradients
    if rank:
        dist.send(total, (rank - 1) // 2)
        dist.recv(total, (rank - 1) // 2)
    for leaving in [dist.isend(total, child) for child in children]:
        leaving.wait()
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(total / ranks)
    return future


def train(rank: int, ranks: int, *, tree: bool) -> None:
    """Fit a linear layer to data of this rank, and print the loss and time of every step."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    target = torch.nn.Linear(INPUTS, OUTPUTS)
    model = DistributedDataParallel(torch.nn.Linear(INPUTS, OUTPUTS))
    if tree:
        model.register_comm_hook(ranks, by_tree)
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
    rank, ranks = map(int, rest[:2])
    meeting = store(host, int(port), serves=False)
    dist.init_process_group("gloo", store=meeting, rank=rank, world_size=ranks)
    train(rank, ranks, tree=rest[2:] == ["tree"])
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
