"""Every rank sends a message to the next one, in a ring: an ordinary program of mpi4py.

mpirun ... python3 ring.py BYTES ROUNDS
"""

import sys
import time

from mpi4py import MPI


def main() -> None:
    """Send, receive and compare the messages of all rounds."""
    world = MPI.COMM_WORLD
    rank, ranks = world.Get_rank(), world.Get_size()
    size, rounds = map(int, sys.argv[1:])
    message, received = bytearray([rank]) * size, bytearray(size)
    for number in range(rounds):
        world.Barrier()
        begun = time.monotonic()
        world.Sendrecv(message, (rank + 1) % ranks, recvbuf=received, source=(rank - 1) % ranks)
        world.Barrier()
        if received != bytearray([(rank - 1) % ranks]) * size:
            world.Abort(1)
        if rank == 0:
            print(f"round {number} seconds={time.monotonic() - begun:.3f}", flush=True)
    print(f"rank {rank} of {ranks} at {MPI.Get_processor_name()}: all received", flush=True)


if __name__ == "__main__":
    main()
