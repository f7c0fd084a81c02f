"""From a run folder to tables, numbers and figures."""
