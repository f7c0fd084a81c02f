"""All classes of objects that a checkpoint may hold, by their names in this package.

Names and not classes: this module is below all of them. A class belongs here if its objects are
data, without functions, files or threads as attributes.
"""

from __future__ import annotations

RECORDS = frozenset(
    (
        "algorithms.base.Applied",
        "algorithms.base.Measured",
        "algorithms.base.Orders",
        "algorithms.base.Reply",
        "algorithms.base.Update",
        "algorithms.parts.accumulation.Accumulation",
        "algorithms.parts.adaptive_compression.Ballot",
        "algorithms.parts.adaptive_compression.LossOfNorm",
        "algorithms.parts.adaptive_compression.Selection",
        "algorithms.parts.commit_counts.CommitCounts",
        "algorithms.parts.commit_timer.CommitTimer",
        "algorithms.parts.commit_rate.CommitRateSearch",
        "algorithms.parts.injection.Injection",
        "algorithms.parts.local_rate.LocalRate",
        "algorithms.parts.momentum.MomentumSgd",
        "algorithms.slim_dp.Choice",
        "compress.core_explorer.Sizes",
        "compress.qsgd.Buckets",
        "compress.topk.Quota",
        "experiment.Constant",
        "experiment.Durations",
        "faults.crash.Crashes",
        "frame.effects.StandingOrders",
        "frame.evaluation.Due",
        "frame.record.Intake",
        "frame.record.Timing",
        "frame.record.WorkerTraffic",
        "frame.worker_session.NoCrashes",
        "frame.worker_session.WorkerSession",
        "frame.worker.Shard",
        "payloads.dense.Dense",
        "payloads.key_cache.KeyCache",
        "payloads.key_cache.KeyCaches",
        "payloads.keyed.Keyed",
        "payloads.quantized.Quantized",
        "payloads.sparse.Sparse",
        "rpc.shared.SharedSamples",
        "simulation.event_queue.ScheduledEvent",
        "simulation.keys.KeyedLinks",
        "simulation.links.FlowGroup",
        "simulation.links.PendingTransfer",
        "simulation.model.Hop",
        "simulation.model.Path",
        "simulation.worker.Cycle",
        "simulation.worker.Paused",
        "streams.buffers.Buffer",
        "values.laws.Law",
        "values.units.Duration",
        "values.units.Rate",
        "values.units.Size",
    )
)
