"""State as plain data: a tree that JSON can hold, and the arrays beside it.

What is packed is what Python itself has (numbers, text, lists, dicts, sets, deques ...), numpy's
arrays and generators, and objects of classes of ours or of the user's own file. Nothing else, and
unpacking calls no constructor and imports nothing: it makes objects of known classes and gives them
their attributes back. What was one object in two places is one object in both again.

Whoever unpacks hands over the parts that are there already, by name: the packed state refers to
them and does not hold them.
"""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MethodType
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from testbed.errors import AlgorithmError, TestbedError
from testbed.user_code import MODULE

Array = NDArray[Any]
Tree = Any
"""What JSON holds: a plain value, or a list that begins with the name of a kind."""

OURS = (f"{__name__.partition('.')[0]}.", MODULE)
"""How the names of those modules begin whose objects are packed."""

NUMBERS = "biuf"
"""Kinds of arrays that are packed: booleans, integers, floats."""

FACTORIES: Mapping[str, Callable[[], Any]] = {
    one.__name__: one for one in (int, float, bool, str, list, dict, set, deque)
}
"""What a defaultdict may make, beside objects of our classes."""


EMPTY: Mapping[str, Callable[[], Any]] = {
    one.__name__: one for one in (list, set, dict, Counter, OrderedDict)
}


@dataclass(frozen=True, eq=False)
class PlainState:
    """A state as plain data; the tree names arrays by their numbers."""

    tree: Tree
    arrays: tuple[Array, ...]


def pack(value: object, known: Mapping[str, object] | None = None) -> PlainState:
    """Copy a state into plain data.

    Args:
        value: the state.
        known: parts that are only referred to.

    Raises:
        AlgorithmError: it holds something that cannot be packed; names it.
    """
    packer = _Packer({id(part): name for name, part in (known or {}).items()})
    return PlainState(packer.pack(value, "state"), tuple(packer.arrays))


def unpack(packed: PlainState, known: Mapping[str, object] | None = None) -> Any:
    """Make the state again that was packed, with the same parts.

    Raises:
        TestbedError: this is no packed state, or one of other classes.
    """
    try:
        return _Unpacker(packed.arrays, known or {}).unpack(packed.tree)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise TestbedError(f"not a state of this run: {type(error).__name__}: {error}.") from None


@dataclass
class _Packer:
    known: Mapping[int, str]
    arrays: list[Array] = field(default_factory=list)
    _numbers: dict[int, int] = field(default_factory=dict)
    _kept: list[object] = field(default_factory=list)  # an id is another object's once it is gone

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
                state = value.bit_generator.state
                return ["generator", self.pack(state, where)]
            case PlainState():
                self.arrays += value.arrays
                end = len(self.arrays)
                return ["packed", value.tree, end - len(value.arrays), end]
            case partial() | MethodType():
                return self._pack_call(value, where)
        return self._pack_container(value, where)

    def _pack_call(self, value: Any, where: str) -> Tree:
        """A method of an object of ours, or one with some of its arguments."""
        if isinstance(value, MethodType):
            return ["method", self.pack(value.__self__, where), value.__name__]
        call = [value.func, value.args, value.keywords]
        return ["partial", *(self.pack(part, where) for part in call)]

    def _pack_container(self, value: Any, where: str) -> Tree:
        kind = type(value)
        if kind in (list, tuple, set, frozenset):
            return [kind.__name__, *(self.pack(one, f"{where}[...]") for one in value)]
        if kind in (slice, range):
            ends = value.start, value.stop, value.step
            return [kind.__name__, *(self.pack(end, where) for end in ends)]
        if kind is deque:
            return ["deque", value.maxlen, *(self.pack(one, f"{where}[...]") for one in value)]
        if kind in (dict, Counter, OrderedDict):
            return [kind.__name__, *self._pairs(value, where)]
        if kind is defaultdict:
            factory = self._factory(value.default_factory, where)
            return ["defaultdict", factory, *self._pairs(value, where)]
        if kind.__module__.startswith(OURS) and "<locals>" not in kind.__qualname__:
            return self._pack_object(value, where)
        raise AlgorithmError(
            f"{where} is {_described(value)}, which no checkpoint can hold.",
            hint="A half may say itself what its state is: `state()` and `restore(state)`.",
        )

    def _pack_object(self, value: Any, where: str) -> Tree:
        kind = type(value)
        name = [kind.__module__, kind.__qualname__]
        if isinstance(value, tuple):
            return ["named", *name, *(self.pack(one, where) for one in value)]
        if isinstance(value, int | float | str):
            plain = next(base for base in (int, float, str) if isinstance(value, base))
            return ["plain", *name, plain(value)]
        held = _attributes(value).items()
        return ["object", *name, {one: self.pack(inner, f"{where}.{one}") for one, inner in held}]

    def _pairs(self, value: Mapping[Any, Any], where: str) -> list[Tree]:
        return [
            [self.pack(key, where), self.pack(one, f"{where}[{key!r}]")]
            for key, one in value.items()
        ]

    def _factory(self, factory: Any, where: str) -> Tree:
        if factory is None or FACTORIES.get(getattr(factory, "__name__", "")) is factory:
            return None if factory is None else factory.__name__
        if isinstance(factory, type) and factory.__module__.startswith(OURS):
            return [factory.__module__, factory.__qualname__]
        raise AlgorithmError(
            f"{where} makes its values with {_described(factory)}, which no checkpoint can hold.",
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
    _made: list[Any] = field(default_factory=list)  # as the packer has numbered them

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
        """What is made empty and then filled; None of what is made at once."""
        match kind:
            case "list" | "set" | "dict" | "Counter" | "OrderedDict":
                return EMPTY[kind]()
            case "deque":
                return deque(maxlen=parts[0])
            case "defaultdict":
                return defaultdict(_made_by(parts[0]))
            case "object":
                return object.__new__(_class(parts[0], parts[1]))
        return None

    def _fill(self, kind: str, made: Any, parts: list[Tree]) -> None:
        match kind:
            case "list":
                made.extend(self.unpack(one) for one in parts)
            case "set":
                made.update(self.unpack(one) for one in parts)
            case "deque":
                made.extend(self.unpack(one) for one in parts[1:])
            case "dict" | "Counter" | "OrderedDict" | "defaultdict":
                for key, value in parts[kind == "defaultdict" :]:
                    unpacked = self.unpack(key)
                    made[unpacked] = self.unpack(value)
            case "object":
                for name, value in parts[2].items():
                    object.__setattr__(made, name, self.unpack(value))

    def _whole(self, kind: str, parts: list[Tree]) -> Any:
        match kind:
            case "array":
                return self.arrays[parts[0]].copy()
            case "scalar":
                return self.arrays[parts[0]][()]
            case "tuple" | "frozenset" | "slice" | "range":
                return self._made_of([self.unpack(one) for one in parts], kind)
            case "named":
                named = _class(parts[0], parts[1])
                return tuple.__new__(named, [self.unpack(one) for one in parts[2:]])
            case "plain":
                return _class(parts[0], parts[1])(parts[2])
        return self._special(kind, parts)

    def _made_of(self, values: list[Any], kind: str) -> Any:
        if kind in ("tuple", "frozenset"):
            return tuple(values) if kind == "tuple" else frozenset(values)
        return slice(*values) if kind == "slice" else range(*values)

    def _special(self, kind: str, parts: list[Tree]) -> Any:
        match kind:
            case "generator":
                return _generator(self.unpack(parts[0]))
            case "packed":
                return PlainState(parts[0], self.arrays[parts[1] : parts[2]])
            case "partial":
                function, arguments, keywords = (self.unpack(one) for one in parts)
                return partial(function, *arguments, **keywords)
            case "method":
                return _method(self.unpack(parts[0]), parts[1])
        raise ValueError(f"a part of the kind {kind!r}")


def _attributes(value: Any) -> dict[str, Any]:
    """All that an object holds, in slots or not."""
    slots = {name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())}
    slots -= {"__dict__", "__weakref__"}
    held = {name: getattr(value, name) for name in sorted(slots) if hasattr(value, name)}
    return held | getattr(value, "__dict__", {})


def _class(module: str, name: str) -> Any:
    """A class of ours or of the user's own, which is imported already."""
    if not module.startswith(OURS):
        raise ValueError(f"a class of {module}")
    found: Any = sys.modules[module]
    for part in name.split("."):
        found = getattr(found, part)
    if not isinstance(found, type):
        raise TypeError(f"{module}.{name} is no class")
    return found


def _made_by(factory: Tree) -> Callable[[], Any] | None:
    if factory is None or isinstance(factory, str):
        return None if factory is None else FACTORIES[factory]
    made: Callable[[], Any] = _class(*factory)
    return made


def _method(of: Any, name: str) -> Any:
    if not type(of).__module__.startswith(OURS) or not callable(getattr(type(of), name)):
        raise TypeError(f"{name} is no method of ours")
    return getattr(of, name)


def _generator(state: Mapping[str, Any]) -> Generator:
    kind = getattr(np.random, state["bit_generator"])
    if not issubclass(kind, np.random.BitGenerator):
        raise TypeError(f"{state['bit_generator']} is no bit generator")
    rng = Generator(kind(0))
    rng.bit_generator.state = state
    return rng


def _described(value: object) -> str:
    name = getattr(value, "__qualname__", "")
    return f"the {type(value).__name__} {name}" if name else f"a {type(value).__name__}"
