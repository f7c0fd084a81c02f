"""The proto, the committed classes and the names in the code agree."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.payloads import KINDS
from testbed.rpc import methods
from testbed.rpc._pb import ps_pb2

ROOT = Path(__file__).resolve().parents[2]


def test_method_names_match_the_contract() -> None:
    names = {
        f"/{service.full_name}/{method.name}"
        for service in ps_pb2.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    in_code = (
        *(methods.JOIN, methods.PULL, methods.EXCHANGE, methods.FOLLOW_ORDERS),
        *(methods.RECEIVED, methods.LEAVE),
        *(methods.SNAPSHOT, methods.REPORT, methods.REMOVE, methods.SILENCE),
        *(methods.CLOCK, methods.PRODUCED, methods.FETCH),
        *methods.IN_PIECES.values(),
    )
    assert names == set(in_code)


def test_every_kind_of_payload_is_in_the_contract_with_its_arrays() -> None:
    names = {"<u8": "uint64", "<i4": "int32", "<f4": "float32", "|i1": "int8", "|u1": "uint8"}
    described = (ROOT / "protos/testbed/v1/ps.proto").read_text()
    for kind in KINDS:
        (line,) = re.findall(rf"^//   {kind.NUMBER} {kind.__name__} +(.*?)[:;]", described, re.M)
        assert [part.split()[-1] for part in line.split(", ")] == [
            names[type_] for type_ in kind.TYPES
        ]


def test_the_committed_classes_do_not_require_the_newest_protobuf() -> None:
    """Otherwise a package that pins an older protobuf, like flwr, would break every command."""
    for file in (ROOT / "testbed/rpc/_pb").glob("*_pb2.py"):
        text = file.read_text()
        assert "runtime_version" not in text
        assert "_builder.BuildMessageAndEnumDescriptors(DESCRIPTOR, _globals)" in text


@pytest.mark.skipif(
    importlib.util.find_spec("grpc_tools") is None, reason="needs grpcio-tools: make setup"
)
def test_the_committed_classes_match_the_proto() -> None:
    result = subprocess.run(
        [sys.executable, "protos/generate.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
