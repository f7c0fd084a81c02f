"""The per-host agent: it starts roles in containers, connects, measures and freezes them."""
