"""What nodes execute: the parameter server, a worker, the evaluator.

Each has an entry point ``main(arguments) -> exit status``. A role knows its folder and the server's
address; that it runs in a container, behind a shaped link, is no concern of its own.

SIGTERM ends a role with status 0. What a user must read goes to the standard error, and the status
is that of the error's class.
"""
