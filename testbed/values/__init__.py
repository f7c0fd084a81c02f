"""Value types of scenario fields: units, laws of durations, CPU sets, members of a family."""
