"""One folder per invalid input, with the exact output of ``testbed validate``.

To update one: ``cd bad/NAME && testbed validate scenario.yaml 2> expected.txt``.
"""

from pathlib import Path

import pytest

from testbed.errors import ScenarioError
from testbed.scenario.load_workload import load_any

FOLDERS = sorted(path for path in (Path(__file__).parent / "bad").iterdir() if path.is_dir())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_error_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(ScenarioError) as refused:
        load_any(Path("scenario.yaml"))
    assert refused.value.exit_code == 2
    expected = Path("expected.txt").read_text(encoding="utf-8").splitlines()
    assert str(refused.value).splitlines() == expected
