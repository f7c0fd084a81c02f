from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LaunchRequest(_message.Message):
    __slots__ = ("launch",)
    LAUNCH_FIELD_NUMBER: _ClassVar[int]
    launch: str
    def __init__(self, launch: _Optional[str] = ...) -> None: ...

class LaunchReply(_message.Message):
    __slots__ = ("pid",)
    PID_FIELD_NUMBER: _ClassVar[int]
    pid: int
    def __init__(self, pid: _Optional[int] = ...) -> None: ...

class RunningRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FrozenRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NodesReply(_message.Message):
    __slots__ = ("nodes",)
    NODES_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, nodes: _Optional[_Iterable[str]] = ...) -> None: ...

class HistoryRequest(_message.Message):
    __slots__ = ("since",)
    SINCE_FIELD_NUMBER: _ClassVar[int]
    since: int
    def __init__(self, since: _Optional[int] = ...) -> None: ...

class ExitsReply(_message.Message):
    __slots__ = ("exits",)
    EXITS_FIELD_NUMBER: _ClassVar[int]
    exits: _containers.RepeatedCompositeFieldContainer[Exit]
    def __init__(self, exits: _Optional[_Iterable[_Union[Exit, _Mapping]]] = ...) -> None: ...

class Exit(_message.Message):
    __slots__ = ("node", "status", "out_of_memory", "container_ended")
    NODE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    OUT_OF_MEMORY_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_ENDED_FIELD_NUMBER: _ClassVar[int]
    node: str
    status: int
    out_of_memory: bool
    container_ended: bool
    def __init__(self, node: _Optional[str] = ..., status: _Optional[int] = ..., out_of_memory: _Optional[bool] = ..., container_ended: _Optional[bool] = ...) -> None: ...

class NodeRequest(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: str
    def __init__(self, node: _Optional[str] = ...) -> None: ...

class NodesRequest(_message.Message):
    __slots__ = ("nodes",)
    NODES_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, nodes: _Optional[_Iterable[str]] = ...) -> None: ...

class SignalRequest(_message.Message):
    __slots__ = ("node", "number")
    NODE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    node: str
    number: int
    def __init__(self, node: _Optional[str] = ..., number: _Optional[int] = ...) -> None: ...

class PrivateBytesReply(_message.Message):
    __slots__ = ("private_bytes",)
    PRIVATE_BYTES_FIELD_NUMBER: _ClassVar[int]
    private_bytes: int
    def __init__(self, private_bytes: _Optional[int] = ...) -> None: ...

class CountRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CarriedRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UsageRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LinksRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReshapeRequest(_message.Message):
    __slots__ = ("nodes", "up", "down", "seconds", "planned")
    NODES_FIELD_NUMBER: _ClassVar[int]
    UP_FIELD_NUMBER: _ClassVar[int]
    DOWN_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    PLANNED_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedScalarFieldContainer[str]
    up: str
    down: str
    seconds: float
    planned: float
    def __init__(self, nodes: _Optional[_Iterable[str]] = ..., up: _Optional[str] = ..., down: _Optional[str] = ..., seconds: _Optional[float] = ..., planned: _Optional[float] = ...) -> None: ...

class Document(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: str
    def __init__(self, json: _Optional[str] = ...) -> None: ...

class Done(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
