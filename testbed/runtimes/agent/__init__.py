"""The per-host agent: it starts roles in containers, links them, counts and freezes them."""
