"""Creates and removes many containers at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TypeVar

THREADS = 8
"""Concurrent requests: an engine does the work of creating containers, and more are no faster."""

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


def in_parallel(act: Callable[[Item], Outcome], items: Iterable[Item]) -> list[Outcome]:
    """Apply a function to many items concurrently; start no further items after a failure."""
    with ThreadPoolExecutor(THREADS) as pool:
        futures = [pool.submit(act, item) for item in items]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
            failed = (future for future in futures if future.done() and future.exception())
            for future in failed:
                future.result()
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
