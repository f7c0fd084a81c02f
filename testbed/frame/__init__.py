"""What surrounds an algorithm, pure: the server's order of pushes and the worker's loop.

Both are driven from outside, by the roles over gRPC or by a simulation on a virtual clock, and
cannot tell which.
"""
