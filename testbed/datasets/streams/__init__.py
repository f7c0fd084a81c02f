"""Data streams: arrival rates and buffers of the samples on each device. Pure.

``rates`` defines the samples per second of each device, ``over_time`` how the rates change, or a
trace of it, ``arrivals`` when each sample arrives, ``buffers`` which samples are
kept until a step takes them. In a live run, samples travel as records (``records``) through a
``transport``, and a device's ``reception`` checks and keeps them. The transports are elsewhere.
"""

from testbed.datasets.streams.arrivals import Arrivals
from testbed.datasets.streams.buffers import Bounded, Buffer, Persistence, Policy, Truncation
from testbed.datasets.streams.over_time import (
    OnOff,
    OverTime,
    RateStep,
    Recorded,
    Sine,
    Steady,
    Traced,
)
from testbed.datasets.streams.rates import ConstantRate, Each, Normal, Rates, Table1, Uniform
from testbed.datasets.streams.reception import RateMeter, Reception
from testbed.datasets.streams.records import BadRecordError, RecordFormat, Sample
from testbed.datasets.streams.transport import Receiver, Sender

__all__ = [
    "Arrivals",
    "BadRecordError",
    "Bounded",
    "Buffer",
    "ConstantRate",
    "Each",
    "Normal",
    "OnOff",
    "OverTime",
    "Persistence",
    "Policy",
    "RateMeter",
    "RateStep",
    "Rates",
    "Receiver",
    "Reception",
    "RecordFormat",
    "Recorded",
    "Sample",
    "Sender",
    "Sine",
    "Steady",
    "Table1",
    "Traced",
    "Truncation",
    "Uniform",
]
