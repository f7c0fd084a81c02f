"""Data streams: arrival rates and buffers of the samples on each device. Pure.

``rates`` defines the samples per second of each device, ``over_time`` how the rates change, or a
trace of it, ``arrivals`` when each sample arrives, ``buffers`` which samples are
kept until a step takes them. In a live run, samples travel as records (``records``) through a
``transport``, and a device's ``reception`` checks and keeps them. The transports are elsewhere.
"""

from testbed.datasets.streams.arrivals import Arrivals as Arrivals
from testbed.datasets.streams.buffers import Bounded as Bounded
from testbed.datasets.streams.buffers import Buffer as Buffer
from testbed.datasets.streams.buffers import Persistence as Persistence
from testbed.datasets.streams.buffers import Policy as Policy
from testbed.datasets.streams.buffers import Truncation as Truncation
from testbed.datasets.streams.over_time import OnOff as OnOff
from testbed.datasets.streams.over_time import OverTime as OverTime
from testbed.datasets.streams.over_time import RateStep as RateStep
from testbed.datasets.streams.over_time import Recorded as Recorded
from testbed.datasets.streams.over_time import Sine as Sine
from testbed.datasets.streams.over_time import Steady as Steady
from testbed.datasets.streams.over_time import Traced as Traced
from testbed.datasets.streams.rates import ConstantRate as ConstantRate
from testbed.datasets.streams.rates import Each as Each
from testbed.datasets.streams.rates import Normal as Normal
from testbed.datasets.streams.rates import Rates as Rates
from testbed.datasets.streams.rates import Table1 as Table1
from testbed.datasets.streams.rates import Uniform as Uniform
from testbed.datasets.streams.reception import RateMeter as RateMeter
from testbed.datasets.streams.reception import Reception as Reception
from testbed.datasets.streams.records import BadRecordError as BadRecordError
from testbed.datasets.streams.records import RecordFormat as RecordFormat
from testbed.datasets.streams.records import Sample as Sample
from testbed.datasets.streams.transport import Receiver as Receiver
from testbed.datasets.streams.transport import Sender as Sender
