"""The processes of a node: the parameter server, a worker, the evaluator.

Here: entry points ``main(arguments) -> exit status``, their clocks and connections. A role knows
its folder and the server's address, and depends on neither containers nor shaped links. Not here:
the order of pushes (``algorithms.frame``), gRPC itself (``rpc``), starting and watching (``run``).

SIGTERM ends a role with status 0. Errors for the user go to standard error, and the status is that
of the error's class.
"""
