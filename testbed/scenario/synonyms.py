"""Synonyms: names in other programs and papers for what a scenario has, with their paths here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

MEANINGS: Mapping[str, tuple[str, ...]] = {
    "algorithm": ("optimizer", "optimiser", "strategy", "aggregation"),
    "algorithm.buffer_size": ("buffer",),
    "algorithm.fraction": ("clients_per_round", "participation"),
    "algorithm.optimizer": ("optimiser", "optim"),
    "algorithm.learning_rate": ("lr", "eta", "alpha", "step_size", "learningrate"),
    "algorithm.ratio": ("compression", "compression_ratio", "sparsity", "keep", "topk", "top_k"),
    "dataset.partition": ("split", "distribution", "heterogeneity", "non_iid"),
    "encoding": ("codec", "quantization", "precision", "serialization", "float16"),
    "evaluate.every": ("eval", "eval_every", "evaluate_every", "evaluation", "interval"),
    "model": ("net", "architecture", "arch"),
    "dataset": ("data", "data_set"),
    "ps": ("server", "parameter_server"),
    "seed": ("random_seed", "rng", "rng_seed"),
    "stop.steps": ("epochs", "epoch", "num_epochs"),
    "algorithm.local_epochs": ("epochs", "epoch", "num_epochs"),
    "stop.time": ("duration", "max_time", "timeout", "seconds", "hours"),
    "stop.updates": ("iterations", "iters", "rounds", "num_rounds", "max_steps", "max_updates"),
    "stop.accuracy": ("target", "target_accuracy", "goal"),
    "streams.policy": ("buffer", "retention"),
    "time_scale": ("speedup", "speed_up", "acceleration"),
    "workers.batch_size": ("batch", "bs", "batchsize", "minibatch", "mini_batch", "batch-size"),
    "workers.classes": ("groups", "device_classes", "types", "tiers"),
    "workers.count": ("clients", "devices", "nodes", "n", "num", "number", "num_workers"),
    "workers.think": ("wait", "sleep", "pause", "thinking"),
    "workers.classes.*.speed": ("step_time", "compute", "compute_time"),
    "workers.classes.*.think": ("wait", "sleep", "pause", "thinking"),
    "workers.classes.*.share": ("fraction", "proportion", "percent", "weight"),
    "workers.classes.*.link": ("network_link", "connection"),
    "workers.classes.*.link.up": ("upload", "uplink", "tx", "egress"),
    "workers.classes.*.link.down": ("download", "downlink", "rx", "ingress"),
    "workers.classes.*.link.up.rate": ("bandwidth", "throughput", "bw", "capacity"),
    "workers.classes.*.link.up.delay": ("latency", "ping", "rtt", "lag"),
    "workers.classes.*.link.up.loss": ("packet_loss", "drop", "drop_rate"),
    "workers.classes.*.link.up.queue": ("buffer", "limit"),
}
"""Paths in a scenario, each with words that users may write instead of its last key. Of the paths
for a word, the first is suggested whose last key is valid at the place of the error."""

AMBIGUOUS = ("buffer",)
"""Words for which a path is suggested only if its last key is valid at the place of the error."""

REMARKS: Mapping[str, str] = {
    "algorithm": " Models are trained with SGD, whose learning rate is an option of the algorithm; "
    "federated algorithms, such as fedavg, have an option optimizer.",
    "stop.steps": " An epoch has one step per mini-batch of the training samples.",
    "stop.updates": " Every applied push is an update: a round of n workers has n updates.",
}
"""Sentences to append to the suggestion of a path."""


MEMBERS: Mapping[str, tuple[str, ...]] = {
    "fedopt": ("fedadam", "fedyogi", "fedadagrad", "fedavgm"),
    "bsp": ("syncsgd", "ssgd"),
    "mem-sgd": ("topk", "efsgd"),
    "top1": ("accuracy", "acc"),
}
"""Members of families, each with its names elsewhere."""


def nearest_member(word: object, members: Sequence[str]) -> str:
    """Suggest the intended member of a family as a question; empty if none is near."""
    asked = str(word).lower().replace("_", "").replace("-", "")
    for member, names in MEMBERS.items():
        if asked in names and member in members:
            return f"Did you mean {member}?"
    return nearest(word, members)


def nearest(word: object, words: Sequence[str]) -> str:
    """Suggest the nearest word as a question; empty if none is near."""
    near = get_close_matches(str(word)[:60], words, n=1, cutoff=0.55)
    return f"Did you mean {near[0]}?" if near else ""


def nearest_key(word: object, keys: Sequence[str]) -> str:
    """Suggest the intended key as a question: a valid key, or the path of the right place.

    Args:
        word: the unknown key.
        keys: the valid keys in its place.
    """
    meant = [path for path, words in MEANINGS.items() if str(word).lower() in words]
    here = [path for path in meant if path.rpartition(".")[2] in keys]
    misspelt = get_close_matches(str(word)[:60], keys, n=1, cutoff=0.85)
    if not meant or (misspelt and not here) or (len(meant) > 1 and not here and word in AMBIGUOUS):
        return nearest(word, keys)
    path = (here or meant)[0]
    key = path.rpartition(".")[2]
    shown = key if key in keys else path.replace("*", "NAME")
    return f"Did you mean {shown}?{REMARKS.get(path, '')}"
