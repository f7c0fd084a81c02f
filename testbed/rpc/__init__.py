"""gRPC between the parameter server, its workers and the evaluator.

Here: the contract ``protos/testbed/v1/ps.proto``, the servers and clients that speak it, and
``codec``, which alone converts bytes to the algorithms' data, and where payload bytes are counted
once. Not here: what a role does with a message (``roles``), the agent's protocol
(``runtimes.agent``).
"""
