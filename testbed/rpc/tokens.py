"""What a node shows to be known by its name; every node of a run has a token of its own."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping

CONTROLLER = "controller"
EVALUATOR = "evaluator"
"""Who calls beside the workers, by the name in its token."""


def token_of(secret: str, node: str) -> str:
    """The token of a node, which only who has the run's secret can make: name and HMAC-SHA256.

    Args:
        secret: of the run; the parameter server and the controller have it.
        node: the node's name, such as ``w3``.
    """
    return f"{node}:{hmac.digest(secret.encode(), node.encode(), 'sha256').hex()}"


def tokens_of(secret: str, nodes: Iterable[str]) -> Mapping[str, str]:
    """The tokens of these nodes, by name."""
    return {node: token_of(secret, node) for node in nodes}
