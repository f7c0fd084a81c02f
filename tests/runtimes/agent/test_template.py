"""What the template leaves behind for the nodes that it forks."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOOKS_UP = """
import sys
from testbed.runtimes.agent.settings import Template
from testbed.runtimes.agent.template import prepare

class Imported:
    seldom_looked_up = None

name = sys.intern("seldom_looked_up")
getattr(Imported(), name)
before = sys.getrefcount(name)
prepare(Template())
print(before - sys.getrefcount(name))
"""


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="names no longer count their references")
def test_nodes_do_not_replace_names_that_only_imports_have_looked_up() -> None:
    command = [sys.executable, "-c", LOOKS_UP]
    found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    assert found.stdout == "1\n"
