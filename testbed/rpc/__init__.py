"""gRPC between the parameter server, its workers and the evaluator.

The contract is ``protos/testbed/v1/ps.proto``. Only ``codec`` converts bytes to the algorithms'
data, and only there, once, payload bytes are counted.
"""
