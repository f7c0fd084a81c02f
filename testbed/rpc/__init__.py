"""gRPC between the parameter server, its workers and the evaluator.

The contract is ``protos/testbed/v1/ps.proto``. Bytes become the algorithms' data in ``codec`` and
nowhere else, and there, once, payload bytes are counted.
"""
