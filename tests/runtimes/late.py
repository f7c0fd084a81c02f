"""Imported by a role after its uid and its mounts have changed."""

GREETING = "hello from beside the roles"
