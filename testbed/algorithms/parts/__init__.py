"""Code that several algorithms share, one concept per file."""
