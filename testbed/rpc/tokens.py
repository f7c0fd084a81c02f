"""Tokens that identify nodes; every node of a run has its own."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping

CONTROLLER = "controller"
EVALUATOR = "evaluator"
"""Callers other than workers, by the name in their tokens."""


def token_of(secret: str, node: str) -> str:
    """Return a node's token, name and HMAC-SHA256, which requires the run's secret.

    Args:
        secret: the run's secret, known to the parameter server and the controller.
        node: the node's name, such as ``w3``.
    """
    return f"{node}:{hmac.digest(secret.encode(), node.encode(), 'sha256').hex()}"


def tokens_of(secret: str, nodes: Iterable[str]) -> Mapping[str, str]:
    """Return the tokens of these nodes, by name."""
    return {node: token_of(secret, node) for node in nodes}
