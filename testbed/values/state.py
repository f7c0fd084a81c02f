"""State as plain data: a JSON-compatible tree, and arrays next to it.

Packed are Python's own types (numbers, text, lists, dicts, sets, deques ...), numpy's arrays and
generators, and records: objects of the classes in ``RECORDS``, or of classes defined in the user's
own file. Nothing else: no callables, no attributes that a record's class lacks. Unpacking calls no
constructor and imports nothing. An object that occurs twice remains a single object.

The caller of ``unpack`` passes the existing parts by name, and the ``Plans``, which alone create
planned calls from a kind and its arguments.
"""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial
from types import MethodType
from typing import Any, Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from testbed.errors import AlgorithmError, DataError
from testbed.values.record_types import RECORDS
from testbed.values.user_code import MODULE

Array = NDArray[Any]
Tree = Any
"""JSON data: a plain value, or a list that begins with the name of a kind."""

PACKAGE = __name__.partition(".")[0]
NUMBERS = "biuf"
"""Kinds of arrays that can be packed: booleans, integers, floats."""

FACTORIES: Mapping[str, Callable[[], Any]] = {
    one.__name__: one for one in (int, float, bool, str, list, dict, set, deque)
}
"""Factories of a defaultdict, in addition to records."""

PLAIN = (int, float, str, tuple, list, dict, set, frozenset, type, BaseException)
"""Built-in types that hold a value: instances of their subclasses are created with that value."""

GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")

_MISFITS = TypeError, ValueError, LookupError, AttributeError, ArithmeticError, AssertionError
UNREADABLE = (*_MISFITS, RecursionError)
"""Exceptions from reading a state that does not fit."""

EMPTY: Mapping[str, Callable[[], Any]] = {
    one.__name__: one for one in (list, set, dict, Counter, OrderedDict)
}


@dataclass(frozen=True, eq=False)
class PlainState:
    """A state as plain data; the tree refers to arrays by number."""

    tree: Tree
    arrays: tuple[Array, ...]


class Plans(Protocol):
    """Describes planned calls, and creates them from descriptions; the kinds are a closed set."""

    def describe(self, call: MethodType | partial[None]) -> tuple[str, Sequence[object]] | None:
        """Return the kind and arguments of a planned call; None for an unknown kind."""

    def make(self, kind: str, arguments: Sequence[object]) -> Callable[[float], None]:
        """Create the planned call of this kind.

        Raises:
            LookupError: the kind or a node does not exist.
            TypeError: the arguments do not fit.
        """


def pack(
    value: object, known: Mapping[str, object] | None = None, plans: Plans | None = None
) -> PlainState:
    """Copy a state into plain data.

    Args:
        value: the state.
        known: parts to store by name only.
        plans: describes planned calls; None if there are none.

    Raises:
        AlgorithmError: it holds something that cannot be packed; names it.
    """
    packer = _Packer({id(part): name for name, part in (known or {}).items()}, plans)
    return PlainState(packer.pack(value, "state"), tuple(packer.arrays))


def unpack(
    packed: PlainState, known: Mapping[str, object] | None = None, plans: Plans | None = None
) -> Any:
    """Restore a packed state, with the same known parts.

    Raises:
        DataError: this is not a packed state, or has other classes.
    """
    with fitting():
        return _Unpacker(packed.arrays, known or {}, plans).unpack(packed.tree)


@contextmanager
def fitting() -> Iterator[None]:
    """Convert errors of reading and restoring a state inside the context.

    Raises:
        DataError: the state does not fit.
    """
    try:
        yield
    except UNREADABLE as error:
        raise DataError(f"not a state of this run: {type(error).__name__}: {error}.") from None


def put_back(part: object, values: Mapping[str, Any], names: Iterable[str]) -> None:
    """Set an object's attributes from a state, which must have exactly these names.

    Raises:
        DataError: the state has others, or is invalid.
    """
    with fitting():
        if dict.keys(values) != set(names):  # type: ignore[arg-type]  # or a TypeError
            raise ValueError(f"found {sorted(values)} of a {type(part).__name__}")
        for name, value in values.items():
            _require_alike(name, getattr(part, name), value)
        vars(part).update(values)


def _require_alike(name: str, there: object, value: object) -> None:
    """Check that a number stays a number, and a container one of its type."""
    for kinds in (int | float | np.number, str, list, dict, set, deque, Generator):
        if isinstance(there, kinds) and not isinstance(value, kinds):
            raise TypeError(f"{name} is a {type(value).__name__}")


@dataclass
class _Packer:
    known: Mapping[int, str]
    plans: Plans | None
    arrays: list[Array] = field(default_factory=list)
    _numbers: dict[int, int] = field(default_factory=dict)
    _kept: list[object] = field(default_factory=list)  # keeps ids from being reused

    def pack(self, value: object, where: str) -> Tree:
        if value is None or type(value) in (bool, int, float, str):
            return value
        if id(value) in self.known:
            return ["known", self.known[id(value)]]
        if id(value) in self._numbers:
            return ["again", self._numbers[id(value)]]
        self._numbers[id(value)] = len(self._kept)
        self._kept.append(value)
        return self._pack_new(value, where)

    def _pack_new(self, value: Any, where: str) -> Tree:
        match value:
            case np.ndarray():
                return ["array", self._add(value, where)]
            case np.generic():
                return ["scalar", self._add(np.asarray(value), where)]
            case Generator():
                return ["generator", self.pack(value.bit_generator.state, where)]
            case PlainState():
                self.arrays += value.arrays
                end = len(self.arrays)
                return ["packed", value.tree, end - len(value.arrays), end]
            case partial() | MethodType():
                return self._pack_call(value, where)
        return self._pack_container(value, where)

    def _pack_call(self, value: MethodType | partial[None], where: str) -> Tree:
        """Pack a planned call as its kind and arguments."""
        described = None if self.plans is None else self.plans.describe(value)
        if described is None:
            raise self._refusal(value, where)
        kind, arguments = described
        return ["planned", kind, *(self.pack(one, where) for one in arguments)]

    def _refusal(self, value: object, where: str) -> AlgorithmError:
        return AlgorithmError(
            f"{where} is {_described(value)}, which a checkpoint cannot store.",
            hint="Override `state()` and `restore(state)` to define what is stored.",
        )

    def _pack_container(self, value: Any, where: str) -> Tree:
        kind, inside = type(value), f"{where}[...]"
        if kind in (list, tuple, set, frozenset):
            return [kind.__name__, *(self.pack(one, inside) for one in value)]
        if kind in (slice, range):
            ends = value.start, value.stop, value.step
            return [kind.__name__, *(self.pack(end, where) for end in ends)]
        if kind is deque:
            return ["deque", value.maxlen, *(self.pack(one, inside) for one in value)]
        if kind in (dict, Counter, OrderedDict):
            return [kind.__name__, *self._pairs(value, where)]
        if kind is defaultdict:
            factory = self._factory(value.default_factory, where)
            return ["defaultdict", factory, *self._pairs(value, where)]
        if _is_record(kind):
            return self._pack_object(value, where)
        raise self._refusal(value, where)

    def _pack_object(self, value: Any, where: str) -> Tree:
        kind = type(value)
        name = [kind.__module__, kind.__qualname__]
        if isinstance(value, tuple):
            return ["named", *name, *(self.pack(one, where) for one in value)]
        if isinstance(value, int | float | str):
            plain = next(base for base in (int, float, str) if isinstance(value, base))
            return ["plain", *name, plain(value)]
        held = _attributes(value)
        if strange := _strange_names(kind, held):
            raise AlgorithmError(f"{where} has attributes that {kind.__name__} lacks: {strange}.")
        inner = {one: self.pack(value, f"{where}.{one}") for one, value in held.items()}
        return ["object", *name, inner]

    def _pairs(self, value: Mapping[Any, Any], where: str) -> list[Tree]:
        return [
            [self.pack(key, where), self.pack(one, f"{where}[{key!r}]")]
            for key, one in value.items()
        ]

    def _factory(self, factory: Any, where: str) -> Tree:
        if factory is None or FACTORIES.get(getattr(factory, "__name__", "")) is factory:
            return None if factory is None else factory.__name__
        if isinstance(factory, type) and _is_record(factory):
            return [factory.__module__, factory.__qualname__]
        raise AlgorithmError(
            f"{where} creates values by {_described(factory)}, which a checkpoint cannot store.",
            hint=f"Use one of {', '.join(FACTORIES)}.",
        )

    def _add(self, array: Array, where: str) -> int:
        if array.dtype.kind not in NUMBERS:
            raise AlgorithmError(f"{where} is an array of {array.dtype}, expected numbers.")
        self.arrays.append(array.copy(order="C"))
        return len(self.arrays) - 1


@dataclass
class _Unpacker:
    arrays: tuple[Array, ...]
    known: Mapping[str, object]
    plans: Plans | None
    _made: list[Any] = field(default_factory=list)  # by the packer's numbers

    def unpack(self, tree: Tree) -> Any:
        if not isinstance(tree, list):
            return tree
        kind, *parts = tree
        if kind == "known":
            return self.known[parts[0]]
        if kind == "again":
            return self._made[parts[0]]
        number = len(self._made)
        self._made.append(None)
        made = self._begin(kind, parts)
        self._made[number] = made  # before its parts, which may refer to it
        self._fill(kind, made, parts)
        if made is None:
            made = self._made[number] = self._whole(kind, parts)
        return made

    def _begin(self, kind: str, parts: list[Tree]) -> Any:
        """Create an empty object to fill; None for kinds that are created complete."""
        match kind:
            case "list" | "set" | "dict" | "Counter" | "OrderedDict":
                return EMPTY[kind]()
            case "deque":
                return deque(maxlen=parts[0])
            case "defaultdict":
                return defaultdict(_made_by(parts[0]))
            case "object":
                return object.__new__(_class(parts[0], parts[1], object))
        return None

    def _fill(self, kind: str, made: Any, parts: list[Tree]) -> None:
        match kind:
            case "list" | "deque":
                made.extend(self.unpack(one) for one in parts[kind == "deque" :])
            case "set":
                made.update(self.unpack(one) for one in parts)
            case "dict" | "Counter" | "OrderedDict" | "defaultdict":
                for key, value in parts[kind == "defaultdict" :]:
                    unpacked = self.unpack(key)
                    made[unpacked] = self.unpack(value)
            case "object":
                if strange := _strange_names(type(made), parts[2]):
                    raise TypeError(f"{strange} of a {type(made).__name__}")
                for name, value in parts[2].items():
                    object.__setattr__(made, name, self.unpack(value))

    def _whole(self, kind: str, parts: list[Tree]) -> Any:
        match kind:
            case "array":
                return self.arrays[parts[0]].copy()
            case "scalar":
                return self.arrays[parts[0]][()]
            case "tuple" | "frozenset":
                return (tuple if kind == "tuple" else frozenset)(
                    [self.unpack(one) for one in parts]
                )
            case "named":
                named = _class(parts[0], parts[1], tuple)
                if len(parts) - 2 != len(getattr(named, "_fields", parts[2:])):
                    raise ValueError(f"{len(parts) - 2} values of a {named.__name__}")
                return tuple.__new__(named, [self.unpack(one) for one in parts[2:]])
            case "plain":
                plain = type(parts[2])
                return plain.__new__(_class(parts[0], parts[1], plain), parts[2])
        return self._special(kind, parts)

    def _special(self, kind: str, parts: list[Tree]) -> Any:
        match kind:
            case "slice" | "range":
                ends = [self.unpack(one) for one in parts]
                return slice(*ends) if kind == "slice" else range(*ends)
            case "generator":
                return _generator(self.unpack(parts[0]))
            case "packed":
                return PlainState(parts[0], self.arrays[parts[1] : parts[2]])
            case "planned" if self.plans is not None:
                return self.plans.make(parts[0], [self.unpack(one) for one in parts[1:]])
        raise ValueError(f"a part of the kind {kind!r}")


def _attributes(value: Any) -> dict[str, Any]:
    """Return all attributes of an object, in slots or not."""
    slots = {name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())}
    slots -= {"__dict__", "__weakref__"}
    held = {name: getattr(value, name) for name in sorted(slots) if hasattr(value, name)}
    return held | getattr(value, "__dict__", {})


def _is_record(kind: type) -> bool:
    """Whether a class is a record: it is in the list, or defined in the user's own file."""
    return "<locals>" not in kind.__qualname__ and _may_be(kind.__module__, kind.__qualname__)


def _may_be(module: str, name: str) -> bool:
    package, _, own = f"{module}.{name}".partition(".")
    return module.startswith(MODULE) or (package == PACKAGE and own in RECORDS)


def _class(module: str, name: str, base: type) -> Any:
    """Return a record's class, which must be imported already and match its name."""
    if not _may_be(module, name):
        raise ValueError(f"no record is a {module}.{name}")
    found: Any = sys.modules[module]
    for part in name.split("."):
        found = vars(found)[part]
    if not isinstance(found, type) or (found.__module__, found.__qualname__) != (module, name):
        raise TypeError(f"{module}.{name} is no class of its own")
    if not issubclass(found, base) or (base is object and issubclass(found, PLAIN)):
        raise TypeError(f"{name} is no {base.__name__}")
    return found


def _strange_names(kind: type, names: Mapping[str, object]) -> list[str]:
    """Return attributes that the class lacks; a user's class does not declare its attributes."""
    if is_dataclass(kind) and not kind.__module__.startswith(MODULE):
        return sorted({one.name for one in fields(kind)} ^ names.keys())
    return sorted(name for name in names if hides_code(kind, name))


def hides_code(kind: type, name: str) -> bool:
    """Whether an attribute of this name would hide a method, or is reserved by Python."""
    return name.startswith("__") or callable(getattr(kind, name, None))


def _made_by(factory: Tree) -> Callable[[], Any] | None:
    if factory is None or isinstance(factory, str):
        return None if factory is None else FACTORIES[factory]
    made: Callable[[], Any] = _class(factory[0], factory[1], object)
    return made


def _generator(state: Mapping[str, Any]) -> Generator:
    kind = state["bit_generator"]
    if kind not in GENERATORS:
        raise ValueError(f"{kind!r} is no bit generator")
    rng = Generator(getattr(np.random, kind)(0))
    rng.bit_generator.state = state
    return rng


def _described(value: object) -> str:
    name = getattr(value, "__qualname__", "")
    return f"the {type(value).__name__} {name}" if name else f"a {type(value).__name__}"
