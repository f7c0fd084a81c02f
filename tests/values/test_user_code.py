from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from testbed.errors import ScenarioError, UserCodeError
from testbed.values.user_code import OwnDescriptor, UserCode, one_process, own_failures


def code(folder: Path, source: str | bytes, *, name: str = "thing") -> UserCode:
    path = folder / "mine.py"
    path.write_bytes(source.encode() if isinstance(source, str) else source)
    return UserCode(path, name, path_in_scenario="model")


def test_a_function_is_found_also_one_of_another_module(tmp_path: Path) -> None:
    assert code(tmp_path, "import math\nthing = math.floor\n").load("a function")(3.5) == 3


def test_nothing_is_written_next_to_the_file(tmp_path: Path) -> None:
    code(tmp_path, "def thing(): ...\n").load("a function")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]


def test_the_file_knows_its_path_and_may_define_dataclasses(tmp_path: Path) -> None:
    source = (
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from typing import ClassVar\n"
        "@dataclass\n"
        "class thing:\n"
        "    count: int\n"
        "    place: ClassVar[str] = __file__\n"
    )
    thing = code(tmp_path, source).load("a class")
    assert thing(3).count == 3
    assert thing.place == str(tmp_path / "mine.py")
    assert sys.modules[thing.__module__].thing is thing


def test_the_main_block_is_not_run(tmp_path: Path) -> None:
    source = "def thing(): return 3\nif __name__ == '__main__':\n    1 / 0\n"
    assert code(tmp_path, source).load("a function")() == 3


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def thing(:\n", "mine.py:1: model: found SyntaxError: "),
        (b"\xff\xfe\x00", "mine.py.*expected valid Python"),
        (b"# -*- coding: no-such -*-\n", "mine.py.*expected valid Python"),
        ("(" * 5000, "mine.py.*expected valid Python"),
        (
            "\ndef f():\n    raise OSError('gone')\nf()\n",
            "mine.py:3: .*the file raised OSError: gone",
        ),
        ("raise RuntimeError('a\\nb')\n", "raised RuntimeError: a, expected it to run"),
        ("raise RuntimeError\n", "raised RuntimeError, expected it to run"),
        ("", "found no 'thing' in it; it defines no class and no function, expected thing to be x"),
        ("def other(): ...\nimport os\n", "it defines other, expected thing to be x"),
        ("thing = 3\n", "found thing, a int, expected x"),
    ],
)
def test_errors_are_reported(tmp_path: Path, source: str | bytes, expected: str) -> None:
    with pytest.raises(ScenarioError, match=expected):
        code(tmp_path, source).load("x")


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="found Is a directory, expected a Python file that"):
        UserCode(tmp_path, "thing", path_in_scenario="model").load("x")


def test_a_call_that_fails_names_the_users_line(tmp_path: Path) -> None:
    mine = code(tmp_path, "def thing(x):\n    y = x\n    return int(y)\n")
    thing = mine.load("a function")
    assert mine.call(lambda: thing("3"), doing="thing", expected="a number") == 3
    with pytest.raises(ScenarioError, match=r"mine\.py:3: model: found thing raised") as e:
        mine.call(lambda: thing("x"), doing="thing", expected="a number")
    assert isinstance(e.value.__cause__, ValueError)


@pytest.mark.parametrize("raised", ["ValueError('no')", "SystemExit(0)"])
def test_a_failure_in_the_block_has_node_line_and_traceback(tmp_path: Path, raised: str) -> None:
    thing = code(tmp_path, f"def thing():\n    raise {raised}\n").load("a function")
    with pytest.raises(UserCodeError, match=r"^mine.py:2: ") as failure, own_failures("w3"):
        thing()
    assert failure.value.node == "w3"
    assert f"raise {raised}" in failure.value.trace
    with pytest.raises(SystemExit), own_failures("w3"):  # not the user's
        raise SystemExit(1)


def test_a_forked_copy_of_the_process_ends_at_the_end_of_the_block() -> None:
    reader, writer = os.pipe()
    with one_process():
        child = os.fork()
    os.write(writer, b"once")  # by this process only
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.close(writer)
    assert os.read(reader, 100) == b"once"
    os.close(reader)


def test_a_forked_copy_that_raises_prints_nothing(tmp_path: Path) -> None:
    source = "import os, sys\nchild = os.fork()\nchild or sys.exit('no')\n"
    own = code(tmp_path, f"{source}def pid(): return child\n", name="pid").load("a function")
    assert os.waitstatus_to_exitcode(os.waitpid(own(), 0)[1]) == 0


def test_a_descriptor_closed_by_others() -> None:
    own = OwnDescriptor()
    assert own.is_open()
    os.close(own._number)
    assert not own.is_open()
    reader, writer = os.pipe()  # one of them reuses its number
    assert not own.is_open()
    del own  # and is left to its new owner
    os.close(reader)
    os.close(writer)
