"""What several algorithms share, a thought a file."""
