from testbed.algorithms.selection import SelectionConfig


class Nobody(SelectionConfig):
    def choose(self, candidates, count, *, history, state, rng):
        return []
