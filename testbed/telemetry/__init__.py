"""What is measured of a run, and where it is kept: the run folder, and the host beside it."""
