"""Compression of updates and models: pure functions on flat vectors."""
