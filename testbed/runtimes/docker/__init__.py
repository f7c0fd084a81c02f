"""Runs as Docker containers: the image, the engine, and the driver that uses both."""
