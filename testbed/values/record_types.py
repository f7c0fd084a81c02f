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
        "algorithms.parts.local_sgd.Accumulation",
        "algorithms.parts.adaptive_compression.Ballot",
        "algorithms.parts.adaptive_compression.LossOfNorm",
        "algorithms.parts.adaptive_compression.Selection",
        "algorithms.parts.commits.CommitCounts",
        "algorithms.parts.commits.CommitTimer",
        "algorithms.parts.commit_rate.CommitRateSearch",
        "algorithms.parts.agreement.Injection",
        "algorithms.parts.local_sgd.LocalRate",
        "algorithms.parts.momentum.MomentumSgd",
        "algorithms.selection.base.History",
        "algorithms.slim_dp.Choice",
        "payloads.core_explorer.Sizes",
        "payloads.qsgd.Buckets",
        "payloads.topk.Quota",
        "scenario.experiment.Constant",
        "scenario.experiment.Durations",
        "faults.crash.Crashes",
        "algorithms.frame.effects.StandingOrders",
        "algorithms.frame.stop.Due",
        "algorithms.frame.record.Intake",
        "algorithms.frame.record.Timing",
        "algorithms.frame.record.WorkerTraffic",
        "algorithms.frame.worker_session.NoCrashes",
        "algorithms.frame.worker_session.WorkerSession",
        "algorithms.frame.worker.Shard",
        "payloads.entries.Dense",
        "payloads.keyed.KeyCache",
        "payloads.keyed.KeyCaches",
        "payloads.keyed.Keyed",
        "payloads.quantized.Quantized",
        "payloads.signs.Signs",
        "payloads.entries.Sparse",
        "rpc.shared.SharedSamples",
        "simulation.event_queue.ScheduledEvent",
        "simulation.keys.KeyedLinks",
        "simulation.links.FlowGroup",
        "simulation.links.PendingTransfer",
        "simulation.model.Hop",
        "simulation.model.Path",
        "simulation.worker.Cycle",
        "simulation.worker.Paused",
        "datasets.streams.buffers.Buffer",
        "values.laws.Law",
        "values.units.Duration",
        "values.units.Rate",
        "values.units.Size",
    )
)
