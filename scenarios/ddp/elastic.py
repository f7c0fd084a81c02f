"""Data-parallel training that torchrun starts again: an ordinary script, which knows no testbed.

torchrun ... elastic.py STEPS
"""

import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

SAVED = Path("saved.pt")
"""In the folder of this node, which outlives the node's processes."""


def resume(model: torch.nn.Module) -> int:
    """Give every rank the newest state that any node has saved; return its number of steps."""
    saved = torch.load(SAVED) if SAVED.exists() else {"steps": 0, "model": model.state_dict()}
    model.load_state_dict(saved["model"])
    all_steps = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(all_steps, torch.tensor([saved["steps"]]))
    newest = max(all_steps)
    for parameter in model.parameters():
        dist.broadcast(parameter.data, src=all_steps.index(newest))
    return int(newest)


def save(model: torch.nn.Module, steps: int) -> None:
    """Save the state of this rank, which may be killed at any moment."""
    unfinished = SAVED.with_suffix(".new")
    torch.save({"steps": steps, "model": model.state_dict()}, unfinished)
    unfinished.replace(SAVED)


def train(steps: int) -> None:
    """Fit a linear layer to data of all ranks, and save it after every step."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    target, model = torch.nn.Linear(99, 100), torch.nn.Linear(99, 100)
    begun = resume(model)
    print(f"rank {rank} of {ranks} starts after {begun} steps", flush=True)
    for step in range(begun, steps):
        draws = torch.Generator().manual_seed(step * ranks + rank)
        samples = torch.randn(64, 99, generator=draws)
        loss = torch.nn.functional.mse_loss(model(samples), target(samples).detach())
        model.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.data -= parameter.grad / ranks
        save(model, step + 1)
        print(f"step {step} loss={loss.item():.5f}", flush=True)
        time.sleep(0.05)


def main() -> None:
    """Join the other ranks that torchrun has started."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    train(int(sys.argv[1]))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
