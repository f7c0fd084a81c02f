"""Containers are found and removed although others end or remove them at the same time."""

from __future__ import annotations

from typing import Any

import pytest
from docker.errors import APIError

from testbed.errors import HostError
from testbed.runtimes.docker.driver import DockerDriver
from testbed.runtimes.docker.engine import connect
from testbed.runtimes.docker.lifecycle import containers_of, observe, remove_run


def test_an_engine_is_asked_again_if_a_container_ends_while_it_answers() -> None:
    """What Podman 4.3 says when that happens, which is seldom."""
    reason = "read /proc/18359/cgroup: no such process"
    answers = iter([APIError("500", explanation=reason), APIError("500", explanation=reason), [3]])

    def ask() -> Any:
        if isinstance(answer := next(answers), APIError):
            raise answer
        return answer

    assert observe(ask) == [3]
    answers = iter([APIError("500", explanation="no space left on device"), [4]])
    with pytest.raises(APIError, match="no space"):
        observe(ask)


@pytest.fixture(scope="module")
def driver(image: str) -> DockerDriver:
    return DockerDriver()


class RefusingEngine:
    """An engine that refuses removals, as when another client's are in progress.

    Those of others end meanwhile, if ``removed``.
    """

    def __init__(self, engine: Any, *, removed: bool) -> None:
        self.engine, self.removed = engine, removed

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def remove_container(self, identity: str, **options: Any) -> None:
        if self.removed:
            self.engine.remove_container(identity, **options)
        raise APIError("409", explanation="removal is already in progress")


@pytest.mark.docker
def test_containers_that_another_client_removes_are_gone_and_not_reported(
    start_run: Any, image: str
) -> None:
    with connect() as engine, start_run() as run:
        run.launch("w3", "entries:wait")
        with pytest.raises(HostError, match=r"cannot be removed: removal is already") as refused:
            remove_run(RefusingEngine(engine, removed=False), run.folder, patience_seconds=0.0)
        assert "docker rm -f testbed-" in refused.value.hint
        assert len(containers_of(engine, run.folder)) == 2
        contended = RefusingEngine(engine, removed=True)
        assert remove_run(contended, run.folder, patience_seconds=0.0)
        assert not remove_run(contended, run.folder)
