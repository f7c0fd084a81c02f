"""What a host has of what a run needs: one check a function, each with what mends it."""
