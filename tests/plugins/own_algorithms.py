"""Algorithms of a user's own, as files beside a scenario."""

from __future__ import annotations

SILENT = """\
from testbed.algorithms.base import AlgorithmConfig, ServerHalf, WorkerHalf

class Mine(AlgorithmConfig):
    def halves(self):
        return Worker, Server

class Worker(WorkerHalf):
    def step(self, gradient, samples, now):
        return None

class Server(ServerHalf):
    def push(self, worker, update, now):
        return ()
"""
"""Its workers never push."""
