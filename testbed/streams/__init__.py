"""Data streams: how fast samples reach a device, and what becomes of those that wait there. Pure.

``rates`` says how many samples a second each device gets, ``over_time`` how that changes,
``arrivals`` when each sample comes, ``buffers`` what is kept until a step takes it. How samples
travel is a transport's business and stands where it is driven.
"""

from testbed.streams.arrivals import Arrivals
from testbed.streams.buffers import Bounded, Buffer, Persistence, Policy, Truncation
from testbed.streams.over_time import OnOff, OverTime, Sine, Steady, Step
from testbed.streams.rates import Constant, Each, Normal, Rates, Table1, Uniform

__all__ = [
    "Arrivals",
    "Bounded",
    "Buffer",
    "Constant",
    "Each",
    "Normal",
    "OnOff",
    "OverTime",
    "Persistence",
    "Policy",
    "Rates",
    "Sine",
    "Steady",
    "Step",
    "Table1",
    "Truncation",
    "Uniform",
]
