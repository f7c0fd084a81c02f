from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Piece(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Payload(_message.Message):
    __slots__ = ("kind", "sizes", "entries", "value_bytes")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    VALUE_BYTES_FIELD_NUMBER: _ClassVar[int]
    kind: int
    sizes: _containers.RepeatedScalarFieldContainer[int]
    entries: int
    value_bytes: int
    def __init__(self, kind: _Optional[int] = ..., sizes: _Optional[_Iterable[int]] = ..., entries: _Optional[int] = ..., value_bytes: _Optional[int] = ...) -> None: ...

class JoinRequest(_message.Message):
    __slots__ = ("worker", "fingerprint")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    worker: int
    fingerprint: int
    def __init__(self, worker: _Optional[int] = ..., fingerprint: _Optional[int] = ...) -> None: ...

class JoinReply(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class PullRequest(_message.Message):
    __slots__ = ("worker", "attempt")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    worker: int
    attempt: int
    def __init__(self, worker: _Optional[int] = ..., attempt: _Optional[int] = ...) -> None: ...

class ExchangeRequest(_message.Message):
    __slots__ = ("worker", "sequence", "fingerprint", "version", "samples", "timing", "steps", "note", "attached", "gap_seconds", "saturated", "keys", "intake", "shared", "attempt", "payload")
    class NoteEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    WORKER_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    ATTACHED_FIELD_NUMBER: _ClassVar[int]
    GAP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SATURATED_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    INTAKE_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    worker: int
    sequence: int
    fingerprint: int
    version: int
    samples: int
    timing: Timing
    steps: int
    note: _containers.ScalarMap[str, float]
    attached: Attachments
    gap_seconds: float
    saturated: int
    keys: bool
    intake: Intake
    shared: Shared
    attempt: int
    payload: Payload
    def __init__(self, worker: _Optional[int] = ..., sequence: _Optional[int] = ..., fingerprint: _Optional[int] = ..., version: _Optional[int] = ..., samples: _Optional[int] = ..., timing: _Optional[_Union[Timing, _Mapping]] = ..., steps: _Optional[int] = ..., note: _Optional[_Mapping[str, float]] = ..., attached: _Optional[_Union[Attachments, _Mapping]] = ..., gap_seconds: _Optional[float] = ..., saturated: _Optional[int] = ..., keys: _Optional[bool] = ..., intake: _Optional[_Union[Intake, _Mapping]] = ..., shared: _Optional[_Union[Shared, _Mapping]] = ..., attempt: _Optional[int] = ..., payload: _Optional[_Union[Payload, _Mapping]] = ...) -> None: ...

class Timing(_message.Message):
    __slots__ = ("compute_seconds", "late_seconds", "think_seconds", "transfer_seconds", "blocked_seconds", "overslept_seconds", "queued_seconds")
    COMPUTE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LATE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    THINK_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_SECONDS_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    OVERSLEPT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    QUEUED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    compute_seconds: float
    late_seconds: float
    think_seconds: float
    transfer_seconds: float
    blocked_seconds: float
    overslept_seconds: float
    queued_seconds: float
    def __init__(self, compute_seconds: _Optional[float] = ..., late_seconds: _Optional[float] = ..., think_seconds: _Optional[float] = ..., transfer_seconds: _Optional[float] = ..., blocked_seconds: _Optional[float] = ..., overslept_seconds: _Optional[float] = ..., queued_seconds: _Optional[float] = ...) -> None: ...

class Intake(_message.Message):
    __slots__ = ("stream_wait_seconds", "stream_lag_seconds", "stream_rate", "stream_produced", "stream_used", "stream_buffered", "stream_truncated", "stream_duplicates", "stream_latency_seconds", "stream_refused", "stream_missing")
    STREAM_WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STREAM_LAG_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STREAM_RATE_FIELD_NUMBER: _ClassVar[int]
    STREAM_PRODUCED_FIELD_NUMBER: _ClassVar[int]
    STREAM_USED_FIELD_NUMBER: _ClassVar[int]
    STREAM_BUFFERED_FIELD_NUMBER: _ClassVar[int]
    STREAM_TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    STREAM_DUPLICATES_FIELD_NUMBER: _ClassVar[int]
    STREAM_LATENCY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STREAM_REFUSED_FIELD_NUMBER: _ClassVar[int]
    STREAM_MISSING_FIELD_NUMBER: _ClassVar[int]
    stream_wait_seconds: float
    stream_lag_seconds: float
    stream_rate: float
    stream_produced: int
    stream_used: int
    stream_buffered: int
    stream_truncated: int
    stream_duplicates: int
    stream_latency_seconds: float
    stream_refused: int
    stream_missing: int
    def __init__(self, stream_wait_seconds: _Optional[float] = ..., stream_lag_seconds: _Optional[float] = ..., stream_rate: _Optional[float] = ..., stream_produced: _Optional[int] = ..., stream_used: _Optional[int] = ..., stream_buffered: _Optional[int] = ..., stream_truncated: _Optional[int] = ..., stream_duplicates: _Optional[int] = ..., stream_latency_seconds: _Optional[float] = ..., stream_refused: _Optional[int] = ..., stream_missing: _Optional[int] = ...) -> None: ...

class Shared(_message.Message):
    __slots__ = ("samples", "labels", "pixels")
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    PIXELS_FIELD_NUMBER: _ClassVar[int]
    samples: bytes
    labels: bytes
    pixels: bytes
    def __init__(self, samples: _Optional[bytes] = ..., labels: _Optional[bytes] = ..., pixels: _Optional[bytes] = ...) -> None: ...

class Attachments(_message.Message):
    __slots__ = ("text", "arrays")
    class TextEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class ArraysEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: NamedArray
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[NamedArray, _Mapping]] = ...) -> None: ...
    TEXT_FIELD_NUMBER: _ClassVar[int]
    ARRAYS_FIELD_NUMBER: _ClassVar[int]
    text: _containers.ScalarMap[str, str]
    arrays: _containers.MessageMap[str, NamedArray]
    def __init__(self, text: _Optional[_Mapping[str, str]] = ..., arrays: _Optional[_Mapping[str, NamedArray]] = ...) -> None: ...

class NamedArray(_message.Message):
    __slots__ = ("type", "shape", "data")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    type: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    data: bytes
    def __init__(self, type: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., data: _Optional[bytes] = ...) -> None: ...

class ModelReply(_message.Message):
    __slots__ = ("stop", "version", "orders", "time_seconds", "blocked_seconds", "note", "attached", "shared", "payload")
    class NoteEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    STOP_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ORDERS_FIELD_NUMBER: _ClassVar[int]
    TIME_SECONDS_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    ATTACHED_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    stop: bool
    version: int
    orders: Orders
    time_seconds: float
    blocked_seconds: float
    note: _containers.ScalarMap[str, float]
    attached: Attachments
    shared: Shared
    payload: Payload
    def __init__(self, stop: _Optional[bool] = ..., version: _Optional[int] = ..., orders: _Optional[_Union[Orders, _Mapping]] = ..., time_seconds: _Optional[float] = ..., blocked_seconds: _Optional[float] = ..., note: _Optional[_Mapping[str, float]] = ..., attached: _Optional[_Union[Attachments, _Mapping]] = ..., shared: _Optional[_Union[Shared, _Mapping]] = ..., payload: _Optional[_Union[Payload, _Mapping]] = ...) -> None: ...

class Orders(_message.Message):
    __slots__ = ("local_steps", "commit_interval_seconds", "batch_size", "number", "time_seconds")
    LOCAL_STEPS_FIELD_NUMBER: _ClassVar[int]
    COMMIT_INTERVAL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TIME_SECONDS_FIELD_NUMBER: _ClassVar[int]
    local_steps: int
    commit_interval_seconds: float
    batch_size: int
    number: int
    time_seconds: float
    def __init__(self, local_steps: _Optional[int] = ..., commit_interval_seconds: _Optional[float] = ..., batch_size: _Optional[int] = ..., number: _Optional[int] = ..., time_seconds: _Optional[float] = ...) -> None: ...

class FollowOrdersRequest(_message.Message):
    __slots__ = ("worker", "after")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    worker: int
    after: int
    def __init__(self, worker: _Optional[int] = ..., after: _Optional[int] = ...) -> None: ...

class ReceivedRequest(_message.Message):
    __slots__ = ("worker", "received", "missing", "removed", "silent_seconds")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    SILENT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    worker: int
    received: int
    missing: int
    removed: int
    silent_seconds: float
    def __init__(self, worker: _Optional[int] = ..., received: _Optional[int] = ..., missing: _Optional[int] = ..., removed: _Optional[int] = ..., silent_seconds: _Optional[float] = ...) -> None: ...

class ReceivedReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LeaveRequest(_message.Message):
    __slots__ = ("worker",)
    WORKER_FIELD_NUMBER: _ClassVar[int]
    worker: int
    def __init__(self, worker: _Optional[int] = ...) -> None: ...

class LeaveReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SnapshotRequest(_message.Message):
    __slots__ = ("least_version", "least_seconds")
    LEAST_VERSION_FIELD_NUMBER: _ClassVar[int]
    LEAST_SECONDS_FIELD_NUMBER: _ClassVar[int]
    least_version: int
    least_seconds: float
    def __init__(self, least_version: _Optional[int] = ..., least_seconds: _Optional[float] = ...) -> None: ...

class SnapshotReply(_message.Message):
    __slots__ = ("version", "time_seconds", "final", "payload")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TIME_SECONDS_FIELD_NUMBER: _ClassVar[int]
    FINAL_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    version: int
    time_seconds: float
    final: bool
    payload: Payload
    def __init__(self, version: _Optional[int] = ..., time_seconds: _Optional[float] = ..., final: _Optional[bool] = ..., payload: _Optional[_Union[Payload, _Mapping]] = ...) -> None: ...

class ReportRequest(_message.Message):
    __slots__ = ("version", "loss", "metrics", "images", "final", "time_seconds")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    FINAL_FIELD_NUMBER: _ClassVar[int]
    TIME_SECONDS_FIELD_NUMBER: _ClassVar[int]
    version: int
    loss: float
    metrics: _containers.RepeatedCompositeFieldContainer[Metric]
    images: int
    final: bool
    time_seconds: float
    def __init__(self, version: _Optional[int] = ..., loss: _Optional[float] = ..., metrics: _Optional[_Iterable[_Union[Metric, _Mapping]]] = ..., images: _Optional[int] = ..., final: _Optional[bool] = ..., time_seconds: _Optional[float] = ...) -> None: ...

class Metric(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: float
    def __init__(self, name: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...

class ReportReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RemoveRequest(_message.Message):
    __slots__ = ("worker", "reason")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    worker: int
    reason: str
    def __init__(self, worker: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class RemoveReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SilenceRequest(_message.Message):
    __slots__ = ("worker", "silent", "thaws")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    SILENT_FIELD_NUMBER: _ClassVar[int]
    THAWS_FIELD_NUMBER: _ClassVar[int]
    worker: int
    silent: bool
    thaws: bool
    def __init__(self, worker: _Optional[int] = ..., silent: _Optional[bool] = ..., thaws: _Optional[bool] = ...) -> None: ...

class SilenceReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ClockRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ClockReply(_message.Message):
    __slots__ = ("time_seconds",)
    TIME_SECONDS_FIELD_NUMBER: _ClassVar[int]
    time_seconds: float
    def __init__(self, time_seconds: _Optional[float] = ...) -> None: ...

class ProducedRequest(_message.Message):
    __slots__ = ("due", "sent", "worst_lag_ratio")
    DUE_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    WORST_LAG_RATIO_FIELD_NUMBER: _ClassVar[int]
    due: int
    sent: int
    worst_lag_ratio: float
    def __init__(self, due: _Optional[int] = ..., sent: _Optional[int] = ..., worst_lag_ratio: _Optional[float] = ...) -> None: ...

class ProducedReply(_message.Message):
    __slots__ = ("ended",)
    ENDED_FIELD_NUMBER: _ClassVar[int]
    ended: bool
    def __init__(self, ended: _Optional[bool] = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("worker", "after", "committed", "least", "seconds")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    LEAST_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    worker: int
    after: int
    committed: int
    least: int
    seconds: float
    def __init__(self, worker: _Optional[int] = ..., after: _Optional[int] = ..., committed: _Optional[int] = ..., least: _Optional[int] = ..., seconds: _Optional[float] = ...) -> None: ...

class FetchReply(_message.Message):
    __slots__ = ("records", "first")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedScalarFieldContainer[bytes]
    first: int
    def __init__(self, records: _Optional[_Iterable[bytes]] = ..., first: _Optional[int] = ...) -> None: ...
