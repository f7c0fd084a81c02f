def split(labels, workers, rng, *, ratio=0.5):
    return [[0]] * workers
