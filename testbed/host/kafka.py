"""Apache Kafka and Java on this host, for a broker that runs without an engine."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import HostError

VARIABLE = "TESTBED_KAFKA"
SCRIPTS = ("kafka-server-start.sh", "kafka-server-start")
RELEASE = 4
"""Of Kafka: the first without ZooKeeper, whose broker accepts the properties that we write."""

MIN_JAVA = 17
GET_KAFKA = (
    f"Download Apache Kafka {RELEASE} from https://kafka.apache.org/downloads, unpack it, and "
    f"type: export {VARIABLE}=FOLDER. Streams with `transport: direct` do not need Kafka."
)
GET_JAVA = "Type: sudo apt install openjdk-17-jre-headless, or set JAVA_HOME."

_BROKER = re.compile(r"kafka_[\d.]+-(\d+)\.([\w.]+)\.jar")
_JAVA = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)([^"]*)"', re.MULTILINE)


@dataclass(frozen=True)
class KafkaFiles:
    """The files a broker is started from: a folder of jars, and one of a Java."""

    jars: Path
    java: Path
    version: str  # of Kafka
    java_version: str


def find_kafka(environment: Mapping[str, str]) -> KafkaFiles:
    """Find Kafka, by ``TESTBED_KAFKA`` or else by its scripts on the PATH, and Java.

    Raises:
        HostError: one of them is missing or too old; says how to install it.
    """
    jars, version = find_jars(environment)
    java, java_version = find_java(environment)
    return KafkaFiles(jars, java, version, java_version)


def find_jars(environment: Mapping[str, str]) -> tuple[Path, str]:
    """Return the folder of Kafka's jars, and the version of its broker; see ``find_kafka``."""
    given = environment.get(VARIABLE, "")
    if given:
        places = [Path(given).absolute() / "libs", Path(given).absolute()]
        searched = f"{VARIABLE} is {given}, which"
    else:
        scripts = (shutil.which(name, path=environment.get("PATH", "")) for name in SCRIPTS)
        places = [Path(one).resolve().parent.parent / "libs" for one in scripts if one]
        searched = f"{VARIABLE} is not set, and the {SCRIPTS[0]} on the PATH"
    for place in places:
        for jar in sorted(place.glob("kafka_*.jar")):
            if found := _BROKER.fullmatch(jar.name):
                release, rest = int(found[1]), found[2]
                if release != RELEASE:
                    raise HostError(
                        f"{jar} is Kafka {release}.{rest}, expected Kafka {RELEASE}.",
                        hint=GET_KAFKA,
                    )
                return place, f"{release}.{rest}"
    raise HostError(
        f"Kafka not found for the streams' broker: {searched} has no folder `libs` with the jars "
        f"of Kafka {RELEASE}.",
        hint=GET_KAFKA,
    )


def find_java(environment: Mapping[str, str]) -> tuple[Path, str]:
    """Return the folder of a Java that can run a broker, and its version; see ``find_kafka``."""
    home = environment.get("JAVA_HOME", "")
    path = f"{home}/bin" if home else environment.get("PATH", "")
    program = shutil.which("java", path=path)
    if program is None:
        where = f"in JAVA_HOME, {home}" if home else "on the PATH"
        raise HostError(f"java not found {where}, for the streams' broker.", hint=GET_JAVA)
    folder = Path(program).resolve().parent.parent
    try:
        found = _JAVA.search((folder / "release").read_text(encoding="utf-8"))
    except OSError:
        found = None
    if found is None:
        text = f"{folder} is not a Java {MIN_JAVA} folder: its file `release` has no version."
        raise HostError(text, hint=GET_JAVA)
    version = f"{found[1]}{found[2]}"
    if int(found[1]) < MIN_JAVA:
        raise HostError(
            f"{program} is Java {version}, expected {MIN_JAVA} or newer for the broker.",
            hint=GET_JAVA,
        )
    return folder, version
