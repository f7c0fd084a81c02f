"""Where Kafka and Java are searched, and the errors if they are missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import HostError
from testbed.host import kafka as host
from testbed.host.kafka import find_jars, find_java, find_kafka
from testbed.roles import kafka as roles


def unpack(folder: Path, version: str) -> Path:
    """A folder like an unpacked Kafka."""
    (folder / "libs").mkdir(parents=True)
    (folder / "libs" / f"kafka_2.13-{version}.jar").touch()
    (folder / "libs" / f"kafka-clients-{version}.jar").touch()
    (folder / "bin").mkdir()
    script = folder / "bin" / "kafka-server-start.sh"
    script.touch()
    script.chmod(0o755)
    return folder


def install(folder: Path, version: str) -> Path:
    """A folder like an installed Java."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "java").touch()
    (folder / "bin" / "java").chmod(0o755)
    (folder / "release").write_text(f'IMPLEMENTOR="X"\nJAVA_VERSION="{version}"\nSOURCE=""\n')
    return folder


def test_by_the_variable_with_or_without_libs(tmp_path: Path) -> None:
    kafka = unpack(tmp_path / "kafka", "4.2.0")
    java = install(tmp_path / "java", "17.0.15")
    found = find_kafka({"TESTBED_KAFKA": str(kafka), "JAVA_HOME": str(java)})
    assert (found.jars, found.version) == (kafka / "libs", "4.2.0")
    assert (found.java, found.java_version) == (java, "17.0.15")
    assert find_jars({"TESTBED_KAFKA": str(kafka / "libs")})[0] == kafka / "libs"


def test_by_the_path(tmp_path: Path) -> None:
    kafka = unpack(tmp_path / "kafka", "4.0.1")
    java = install(tmp_path / "java", "21.0.2")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "kafka-server-start.sh").symlink_to(kafka / "bin/kafka-server-start.sh")
    (tmp_path / "links" / "java").symlink_to(java / "bin/java")
    found = find_kafka({"PATH": str(tmp_path / "links")})
    assert (found.jars, found.java) == (kafka / "libs", java)


@pytest.mark.parametrize("variable", ["", "/nowhere"])
def test_no_kafka(variable: str, tmp_path: Path) -> None:
    with pytest.raises(HostError, match="Kafka not found") as told:
        find_jars({"TESTBED_KAFKA": variable, "PATH": str(tmp_path)})
    assert "export TESTBED_KAFKA=FOLDER" in told.value.hint


def test_an_unsupported_release(tmp_path: Path) -> None:
    kafka = unpack(tmp_path / "kafka", "3.1.0")
    with pytest.raises(HostError, match=r"kafka_2\.13-3\.1\.0\.jar is Kafka 3\.1\.0, expected"):
        find_jars({"TESTBED_KAFKA": str(kafka)})


def test_no_java(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="java not found on the PATH") as told:
        find_java({"PATH": str(tmp_path)})
    assert "apt install openjdk-17-jre-headless" in told.value.hint
    with pytest.raises(HostError, match=r"java not found in JAVA_HOME, /nowhere"):
        find_java({"JAVA_HOME": "/nowhere"})


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_402"])
def test_an_old_java(version: str, tmp_path: Path) -> None:
    java = install(tmp_path / "java", version)
    shown = version.removeprefix("1.")
    with pytest.raises(HostError, match=f"is Java {shown}, expected 17 or newer"):
        find_java({"JAVA_HOME": str(java)})


def test_a_java_without_a_version(tmp_path: Path) -> None:
    java = install(tmp_path / "java", "17")
    (java / "release").unlink()
    with pytest.raises(HostError, match="has no version"):
        find_java({"JAVA_HOME": str(java)})


def test_the_nodes_accept_the_release_that_is_started() -> None:
    """Each has its own number, as a device's process imports nothing of the host's Kafka."""
    assert roles.RELEASE == host.RELEASE
