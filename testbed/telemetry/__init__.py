"""What is measured of a run, and where it is kept: the run folder, the host, the verdict."""
