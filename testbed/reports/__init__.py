"""Tables, numbers and figures from a run folder."""
