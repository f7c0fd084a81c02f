"""Links of a star: what shapes them, the switch they meet in, and the counters read from them."""
