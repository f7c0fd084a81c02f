"""The links of a star: their shaping, the switch that connects them, and their counters."""
