"""Data streams: how fast samples reach a device, and what becomes of those that wait there. Pure.

``rates`` says how many samples a second each device gets, ``over_time`` how that changes, or a
recording of it (``recorded``), ``arrivals`` when each sample comes, ``buffers`` what is kept until
a step takes it. Live, samples travel as records (``records``) through a ``transport``, and a
device's ``reception`` checks and keeps what comes. What carries records stands where it is driven.
"""

from testbed.streams.arrivals import Arrivals
from testbed.streams.buffers import Bounded, Buffer, Persistence, Policy, Truncation
from testbed.streams.over_time import OnOff, OverTime, Sine, Steady, Step, Traced
from testbed.streams.rates import Constant, Each, Normal, Rates, Table1, Uniform
from testbed.streams.reception import RateMeter, Reception
from testbed.streams.recorded import Recorded
from testbed.streams.records import BadRecordError, RecordFormat, Sample
from testbed.streams.transport import Receiver, Sender

__all__ = [
    "Arrivals",
    "BadRecordError",
    "Bounded",
    "Buffer",
    "Constant",
    "Each",
    "Normal",
    "OnOff",
    "OverTime",
    "Persistence",
    "Policy",
    "RateMeter",
    "Rates",
    "Receiver",
    "Reception",
    "RecordFormat",
    "Recorded",
    "Sample",
    "Sender",
    "Sine",
    "Steady",
    "Step",
    "Table1",
    "Traced",
    "Truncation",
    "Uniform",
]
