"""Builds our images: the nodes' dependencies, then the package; and a broker's image.

With a registry     python:3.11-slim, and pip in the build uses its index and that of torch;
                    a broker's image is pulled
Without             a Debian and wheels that docker/offline.sh builds on this host; Kafka's jars
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed import __version__
from testbed.errors import HostError
from testbed.host.kafka import find_jars
from testbed.runtimes.docker.engine import engine_faults, refused, socket_path
from testbed.runtimes.docker.image import (
    BASE,
    CONSTRAINTS,
    DEPENDENCIES,
    DOCKERFILE,
    GPU_WHEELS,
    KAFKA,
    KAFKA_BASE,
    KAFKA_DOCKERFILE,
    NODES,
    OFFICIAL_KAFKA,
    OFFLINE,
    PACKAGES,
    PART_LABEL,
    REQUIREMENTS,
    SOURCE_LABEL,
    STAGE,
    VERSION_LABEL,
    WHEELS,
    OwnImage,
    hash_sources,
    image_name,
    image_sources,
    labels_of,
    list_images,
    pack,
    part_name,
    remove_images,
)

if TYPE_CHECKING:
    from docker import APIClient

BASE_IMAGE = "python:3.11-slim"
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
GPU_TORCH_INDEX = "https://pypi.org/simple"
"""The index of torch builds for Linux with CUDA."""

KAFKA_LABEL = "org.edge-testbed.kafka"
"""The Kafka version in an image of ours."""

PROXIES = ("http_proxy", "https_proxy", "no_proxy")
REGISTRY_SECONDS = 20.0
SILENCE_SECONDS = 1800.0
"""How long a build step may print nothing: as long as pip may download."""

SHOWN_LINES = 12

NOT_SUPPORTED = "is not supported"
"""Podman's answer to the question whether a registry has an image: it can only pull it."""


@contextmanager
def one_build(say: Callable[[str], None]) -> Iterator[None]:
    """Wait until no other build in the engine of DOCKER_HOST is active, and hold up later ones.

    At its end, a build removes all unnamed stages. The lock is the folder of the engine's socket,
    so it is shared by all users of the engine, and it ends with its holder.
    """
    folder = os.open(Path(socket_path()).resolve().parent, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for the end of another build in this engine")
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


@dataclass(frozen=True)
class Builder:
    """Builds images in an engine; only a complete image gets a name."""

    engine: APIClient  # the engine's API
    offline: bool  # use no registry
    say: Callable[[str], None]  # receives what is done and why
    log: Callable[[str], None]  # receives every line of the engine's output

    def nodes(self, *, gpu: bool = False, base: str = "") -> str:
        """Build the image that contains this package, unless it exists; return its name.

        Args:
            gpu: with a torch that uses NVIDIA GPUs.
            base: the image to build on, which forces a build; empty for the default one.

        Raises:
            HostError: a part is unavailable, or the engine failed; the message says which and why.
        """
        sources = image_sources()
        source = hash_sources(sources)
        name = image_name(gpu=gpu, source=source)
        if labels_of(self.engine, name) is not None and not base:
            self.say(f"{name} exists already")
            return name
        variant = f"-{hashlib.sha256(base.encode()).hexdigest()[:6]}" if base else ""
        dependencies = f"{part_name(DEPENDENCIES, sources)}{variant}{'-gpu' if gpu else ''}"
        if labels_of(self.engine, dependencies) is None:
            kept = {image.reference for image in list_images(self.engine)}  # given, or another's
            arguments = self._find_inputs(sources, gpu=gpu, base=base)
            self.say("installing what nodes import")
            labels = {PART_LABEL: DEPENDENCIES}
            self._build(pack(sources), dependencies, arguments, labels, target=DEPENDENCIES)
            self._remove_inputs({*arguments.values()} - kept)
        self.say(f"adding testbed {__version__} ({source})")
        labels = {PART_LABEL: NODES, SOURCE_LABEL: source, VERSION_LABEL: __version__}
        self._build(pack(package_on(dependencies, sources)), name, {}, labels)
        return name

    def _remove_inputs(self, made: Collection[str]) -> None:
        """Remove what the dependencies were installed from, which would double their size.

        Packages are removed if they are among the images that this build has ``made``.
        """

        def is_needed(image: OwnImage) -> bool:
            return image.part != STAGE and not (image.part in PACKAGES and image.reference in made)

        with suppress(HostError):  # the dependencies are complete; `image prune` removes the rest
            for _ in remove_images(self.engine, is_needed):
                pass

    def kafka(self, environment: Mapping[str, str]) -> str:
        """Pull the official image of a broker or build ours; return its name.

        Args:
            environment: locates this host's Kafka; see ``find_jars``.

        Raises:
            HostError: neither is available, or the engine failed; says which and why.
        """
        reason = self._refusal(OFFICIAL_KAFKA)
        if not reason:
            self.say(f"pulling {OFFICIAL_KAFKA}")
            if labels_of(self.engine, OFFICIAL_KAFKA) is None:
                with engine_faults(f"pulling {OFFICIAL_KAFKA}"):
                    self.engine.pull(OFFICIAL_KAFKA)
            return OFFICIAL_KAFKA
        jars, version = find_jars(environment)
        sources = image_sources()
        name = part_name(KAFKA, sources)
        labels = labels_of(self.engine, name)
        if labels is not None and labels.get(KAFKA_LABEL) == version:
            self.say(f"{name} exists already, with Kafka {version}")
            return name
        self.say(f"no registry answers ({reason}): building {name} from Kafka {version} in {jars}")
        arguments = {"BASE_IMAGE": self._made_here(KAFKA_BASE, sources)}
        content = {f"libs/{jar.name}": jar.read_bytes() for jar in sorted(jars.glob("*.jar"))}
        context = pack({KAFKA_DOCKERFILE: sources[KAFKA_DOCKERFILE], **content})
        labels = {PART_LABEL: KAFKA, KAFKA_LABEL: version}
        self._build(context, name, arguments, labels, dockerfile=KAFKA_DOCKERFILE)
        return name

    def _find_inputs(self, sources: Mapping[str, bytes], *, gpu: bool, base: str) -> dict[str, str]:
        """Return the build arguments; create the images that they name if no registry answers."""
        wanted = base or BASE_IMAGE
        reason = self._refusal(wanted)
        if not reason:
            self.say(f"base: {wanted}")
            index = GPU_TORCH_INDEX if gpu else TORCH_INDEX
            return {"BASE_IMAGE": wanted, "TORCH_INDEX": index}
        if base:
            found = f"An image on {wanted} can only be built where a registry answers: {reason}."
            raise HostError(found)
        self.say(f"no registry answers ({reason}): creating the base image on this host")
        arguments = {"BASE_IMAGE": BASE, "WHEELS": GPU_WHEELS if gpu else WHEELS}
        return {name: self._made_here(part, sources) for name, part in arguments.items()}

    def _refusal(self, name: str) -> str:
        """Return why the engine can neither find nor pull an image; empty if it can."""
        from docker.errors import APIError
        from requests.exceptions import Timeout

        if self.offline:
            return "--offline was given"
        if labels_of(self.engine, name) is not None:
            return ""
        usual, self.engine.timeout = self.engine.timeout, REGISTRY_SECONDS  # firewalls are silent
        with engine_faults("asking the registry"):
            try:
                self.engine.inspect_distribution(name)
            except Timeout:
                return f"no answer about {name}"
            except APIError as error:
                if NOT_SUPPORTED in str(error.explanation):
                    return self._pull(name)
                if error.status_code in {401, 403, 404}:
                    raise HostError(
                        f"The registry has no image {name}, or denies access to it."
                    ) from error
                return error.explanation or str(error)
            finally:
                self.engine.timeout = usual
        return ""

    def _pull(self, name: str) -> str:
        """Pull an image; return why that fails, or an empty string."""
        from docker.errors import APIError

        self.say(f"pulling {name}")
        try:
            answers = list(self.engine.pull(name, stream=True, decode=True))
        except APIError as error:
            return error.explanation or str(error)
        return next((str(answer["error"]) for answer in answers if "error" in answer), "")

    def _made_here(self, part: str, sources: Mapping[str, bytes]) -> str:
        """Return an image built by this host, which takes minutes the first time."""
        name = part_name(part, sources)
        if labels_of(self.engine, name) is not None:
            self.say(f"{part}: {name}, built earlier")
        else:
            self.say(f"{part}: built by docker/offline.sh")
            with made_here(part, sources, torch_index=TORCH_INDEX) as archive:
                import_archive(self.engine, archive, name, part)
        return name

    def _build(
        self,
        context: io.BytesIO,
        name: str,
        arguments: Mapping[str, str],
        labels: Mapping[str, str],
        *,
        dockerfile: str = DOCKERFILE,
        target: str | None = None,
    ) -> None:
        context.seek(0)
        proxies = {key: os.environ[key] for key in PROXIES if key in os.environ}
        with engine_faults(f"building {name}"):
            answers = self.engine.build(
                fileobj=context,
                custom_context=True,
                dockerfile=dockerfile,
                tag=name,
                target=target,
                buildargs={**proxies, **arguments},
                labels=dict(labels),
                # An image built on this host needs no network, and so no bridge of the engine.
                network_mode=None if "TORCH_INDEX" in arguments else "none",
                rm=True,
                forcerm=True,
                decode=True,
                timeout=SILENCE_SECONDS,
            )
            follow(answers, name, self.log)


def package_on(dependencies: str, sources: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the sources with a Dockerfile of the last stage only, on an image that exists.

    An engine without BuildKit builds all stages of a file, whether or not the last one needs them.
    """
    _, _, last = sources[DOCKERFILE].rpartition(b"FROM dependencies\n")
    return {**sources, DOCKERFILE: f"FROM {dependencies}\n".encode() + last}


def follow(answers: Iterable[dict[str, Any]], name: str, log: Callable[[str], None]) -> None:
    """Forward the engine's output until the build ends; if it failed, raise its last lines."""
    said: deque[str] = deque(maxlen=SHOWN_LINES)
    failure = ""
    for answer in answers:  # to the end even after a failure, or the connection stays open
        for line in answer.get("stream", "").splitlines():
            if line.strip():
                said.append(line)
                log(line)
        failure = answer.get("error", failure)
    if failure:
        raise refused(f"building {name}", "\n  ".join([*said, failure]))


def import_archive(engine: APIClient, archive: Path, name: str, part: str) -> None:
    """Create an image of one layer from a tar archive; HostError if the engine fails or is full."""
    repository, _, tag = name.partition(":")
    with engine_faults(f"importing {name}"):
        answer = engine.import_image(str(archive), changes=[f"LABEL {PART_LABEL}={part}"])
        lines = [json.loads(line) for line in answer.splitlines() if line.strip()]
        for line in lines:
            if error := line.get("error"):
                raise refused(f"importing {name}", error)
        # Not with the import, in which Podman ignores the tag.
        engine.tag(lines[-1]["status"], repository, tag)


WORK_PREFIX = "edge-testbed-image-"
GRACE_SECONDS = 10.0
SHOWN_LINES = 12


@contextmanager
def made_here(part: str, sources: Mapping[str, bytes], *, torch_index: str) -> Iterator[Path]:
    """Yield a tar archive of BASE, WHEELS, GPU_WHEELS or KAFKA_BASE, removed afterwards.

    Args:
        part: which of them.
        sources: the image's, with the script, the requirements and the constraints.
        torch_index: an index with CPU builds of torch, used in addition to pip's if it answers.

    Raises:
        HostError: a command is missing or failed; contains its last output, and the fix.
    """
    with tempfile.TemporaryDirectory(prefix=WORK_PREFIX, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)  # mmdebstrap may run as another user
        for file in (OFFLINE, CONSTRAINTS, REQUIREMENTS):
            (folder / Path(file).name).write_bytes(sources[file])
        process = subprocess.Popen(
            ["sh", folder / Path(OFFLINE).name, part, folder],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="backslashreplace",
            env={**os.environ, "PYTHON": sys.executable, "TORCH_INDEX": torch_index},
            process_group=0,
        )
        with process:
            try:
                said, _ = process.communicate()
            except BaseException:
                _end(process)
                raise
        if process.returncode:
            lines = [line for line in said.splitlines() if line.strip()][-SHOWN_LINES:]
            message = "\n  ".join([f"{OFFLINE} failed to create the {part}:", *lines])
            raise HostError(message, hint=_hint(part, torch_index))
        yield folder / "archive.tar"


def _hint(part: str, torch_index: str) -> str:
    if part == WHEELS:
        return f"It needs a package index with a CPU build of torch: {torch_index} or pip's own."
    if part == GPU_WHEELS:
        return f"It needs a package index with torch's build for CUDA: {GPU_TORCH_INDEX}."
    assert part in (BASE, KAFKA_BASE)
    install = "sudo apt install mmdebstrap"
    if os.geteuid() != 0:
        install += " uidmap; it needs root, or user namespaces and a range in /etc/subuid"
    return f"No registry answers, so mmdebstrap has to make the {part}: {install}."


def _end(process: subprocess.Popen[str]) -> None:
    """End the script and its children; they have a short time to clean up."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
