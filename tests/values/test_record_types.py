"""The list of classes allowed in a checkpoint."""

from __future__ import annotations

from importlib import import_module
from inspect import isabstract

import pytest

from testbed.payloads import base, entries, keyed, quantized
from testbed.payloads.base import Payload
from testbed.values.record_types import RECORDS


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_each_entry_is_an_importable_class(name: str) -> None:
    module, _, own = f"testbed.{name}".rpartition(".")
    found = getattr(import_module(module), own)
    assert (found.__module__, found.__qualname__) == (module, own)


def test_every_kind_of_payload_is_one() -> None:
    modules = (base, entries, keyed, quantized)
    kinds = {kind for module in modules for kind in vars(module).values() if _is_payload(kind)}
    names = {f"{kind.__module__}.{kind.__qualname__}".removeprefix("testbed.") for kind in kinds}
    assert len(names) == 4
    assert names <= RECORDS


def _is_payload(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Payload) and not isabstract(kind)
