"""The frame around an algorithm, without I/O: the server's order of pushes, the worker's loop.

Both are driven from outside, by the roles over gRPC or by a simulation on a virtual clock, and do
not depend on which.
"""
