"""Names in the contract: gRPC method names, and the metadata key of the token."""

from __future__ import annotations

TOKEN_KEY = "testbed-token"

_WORKERS = "/testbed.v1.ParameterServer/"
JOIN = _WORKERS + "Join"
PULL = _WORKERS + "Pull"
EXCHANGE = _WORKERS + "Exchange"
FOLLOW_ORDERS = _WORKERS + "FollowOrders"
RECEIVED = _WORKERS + "Received"
LEAVE = _WORKERS + "Leave"

_MANAGEMENT = "/testbed.v1.Management/"
SNAPSHOT = _MANAGEMENT + "Snapshot"
REPORT = _MANAGEMENT + "Report"
REMOVE = _MANAGEMENT + "Remove"
SILENCE = _MANAGEMENT + "Silence"
CLOCK = _MANAGEMENT + "Clock"
PRODUCED = _MANAGEMENT + "Produced"

FETCH = "/testbed.v1.Producer/Fetch"

IN_PIECES = {method: f"{method}InPieces" for method in (PULL, EXCHANGE, SNAPSHOT)}
"""The replacement methods for models with long messages."""
