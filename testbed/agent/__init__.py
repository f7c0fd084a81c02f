"""The per-host helper: it launches roles in containers, links them, counts and freezes them."""
