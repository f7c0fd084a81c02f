"""``testbed schema``."""

import json

import pytest

from testbed.cli import main
from testbed.scenario import json_schema
from testbed.studies.document import study_schema


def test_the_command_prints_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == json_schema()
    assert main(["schema", "study"]) == 0
    assert json.loads(capsys.readouterr().out) == study_schema()
