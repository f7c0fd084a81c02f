"""The processes of a node: the parameter server, a worker, the evaluator.

Each has an entry point ``main(arguments) -> exit status``. A role knows its folder and the server's
address; it does not depend on containers or shaped links.

SIGTERM ends a role with status 0. Errors for the user go to standard error, and the status is that
of the error's class.
"""
