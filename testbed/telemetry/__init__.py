"""The records of a run and where they are kept: the run folder, and measurements of the host."""
