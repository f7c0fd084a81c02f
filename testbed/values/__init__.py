"""What the fields of a scenario hold: units, laws of durations, CPU sets, members of a family."""
