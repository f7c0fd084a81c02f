"""Make docs/pictures, for light and dark pages: ``python docs/site/pictures.py``.

Runs are simulated, so that pictures only change with the program, but for the live ones on the
dashboards. Chromium draws the pages; the figures of papers come from the results that are kept
beside their studies.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from dashboards import missing_packages, pages
from PIL import Image
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI, TerminalTheme
from rich.text import Text

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs/pictures"
GUIDE = ROOT / "docs/guides/own-algorithm.md"
TESTBED = (sys.executable, "-m", "testbed")

PAPERS = {
    "adacomp/fig1": "fig1",
    "slim_dp/fig3": "time",
    "adsp/fig4": "loss",
    "scadles/fig6": "top5",
}
"""A study of each paper, and the figure to show."""

COLOURS = 64
"""Of a picture that is kept; a drawing needs no more, a dashboard does."""

DARKEST = 19
"""The background of dark pages."""

LIGHT_TERMINAL = TerminalTheme(
    (255, 255, 255),
    (30, 30, 30),
    [(30, 30, 30), (176, 0, 32), (0, 110, 40), (140, 90, 0), (0, 70, 170), (130, 0, 130),
     (0, 105, 120), (90, 90, 90)],
)  # fmt: skip
SCHEMES = {"light": (LIGHT_TERMINAL, "1"), "dark": (DIMMED_MONOKAI, "0")}
"""A terminal's colours, and the number by which Chromium knows the scheme."""

DRAWING_COLOURS = {
    "light": {"INK": "#1b1f24", "LINE": "#57606a", "FILL": "#eef2f7"},
    "dark": {"INK": "#e6edf3", "LINE": "#8b949e", "FILL": "#21262d"},
}


def main() -> None:
    """Make all pictures."""
    packages = missing_packages() | ({"chromium"} if shutil.which("chromium") is None else set())
    if packages:
        sys.exit(f"Missing. Try: sudo apt install {' '.join(sorted(packages))}")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        runs_of_the_guides(folder)
        paper_figures(folder)
        page(folder)
        terminal(folder)
        shown = folder / "dashboards"
        shown.mkdir()
        for drawn in pages(testbed, shown, [*SCHEMES]):
            shot(drawn.file, drawn.name, size=drawn.size, shade=drawn.shade, colours=256)
    architecture()


def testbed(*arguments: str, folder: Path) -> str:
    """Run a command in a folder and return its output, with colours."""
    environment = {"FORCE_COLOR": "1", "COLUMNS": "120", "PATH": "/usr/bin:/bin"}
    state = {"XDG_STATE_HOME": str(folder / "state"), "HOME": str(Path.home())}
    return subprocess.run(
        (*TESTBED, *arguments),
        cwd=folder,
        check=True,
        text=True,
        stdout=subprocess.PIPE,
        env=environment | state,
    ).stdout


def runs_of_the_guides(folder: Path) -> None:
    """Draw the quickstart, and the runs of the guide to a first algorithm."""
    testbed("up", "quickstart", "--runtime", "simulated", "--name", "quickstart", folder=folder)
    keep_both(folder / "runs/quickstart/accuracy-ingress.png", "quickstart")
    for name, text in re.findall(r"^```\w+ (\S+\.\w+)\n(.*?)^```", GUIDE.read_text(), re.M | re.S):
        (folder / name).write_text(text, encoding="utf-8")
    testbed("up", "mine.yaml", "--name", "mine-1", folder=folder)
    asgd = ("--set", "algorithm={asgd: {learning_rate: 0.2}}")
    testbed("up", "mine.yaml", "--name", "asgd-1", *asgd, folder=folder)
    testbed("report", "mine-1", "asgd-1", "--figures", "figures", folder=folder)
    keep_both(next((folder / "figures").glob("*ingress*.png")), "own-algorithm")


def paper_figures(folder: Path) -> None:
    """Draw a figure of each paper from its kept results."""
    for study, figure in PAPERS.items():
        testbed("report", str(ROOT / f"scenarios/{study}.yaml"), folder=folder)
        (drawn,) = (folder / "runs").rglob(f"{figure}.png")
        keep_both(drawn, study.replace("/", "-"))
        shutil.rmtree(drawn.parent)


def page(folder: Path) -> None:
    """Take pictures of a run's page."""
    testbed("report", "quickstart", "--html", "page.html", folder=folder)
    for shade in SCHEMES:
        shot(folder / "page.html", f"report-{shade}", size=(1280, 1500), shade=shade)


def terminal(folder: Path) -> None:
    """Take pictures of `testbed top` at the end of a run with faults."""
    testbed("up", "faults", "--runtime", "simulated", "--name", "faults", folder=folder)
    shown = testbed("top", "faults", "--once", folder=folder)
    for shade, (theme, _) in SCHEMES.items():
        console = Console(record=True, width=120, file=(folder / "shown.txt").open("w"))
        console.print(Text.from_ansi(shown))
        html = console.export_html(theme=theme, inline_styles=True)
        (folder / "top.html").write_text(html, encoding="utf-8")
        height = 40 + 19 * len(shown.splitlines())
        shot(folder / "top.html", f"top-{shade}", size=(1200, height), shade=shade)


def architecture() -> None:
    """Write the drawing of how it works in both colours."""
    drawing = (ROOT / "docs/site/architecture.svg").read_text(encoding="utf-8")
    for shade, colours in DRAWING_COLOURS.items():
        text = re.sub("|".join(colours), lambda found: colours[found[0]], drawing)  # noqa: B023
        (PICTURES / f"architecture-{shade}.svg").write_text(text, encoding="utf-8")


def shot(
    page: Path, name: str, *, size: tuple[int, int], shade: str, colours: int = COLOURS
) -> None:
    """Take a picture of a page with Chromium."""
    file = page.with_suffix(".png")
    flags = ("--headless", "--no-sandbox", "--hide-scrollbars", "--virtual-time-budget=5000")
    scheme = f"--blink-settings=preferredColorScheme={SCHEMES[shade][1]}"
    window = f"--window-size={size[0]},{size[1]}"
    subprocess.run(
        ("chromium", *flags, scheme, window, f"--screenshot={file}", page.as_uri()),
        check=True,
        capture_output=True,
    )
    write(Image.open(file).convert("RGB"), name, colours)


def keep_both(figure: Path, name: str) -> None:
    """Write a figure on white as it is, and with its lightness reversed for dark pages."""
    image = Image.open(figure).convert("RGB")
    image.thumbnail((1000, 1000))
    write(image, f"{name}-light")
    pixels = np.asarray(image, dtype=np.int64)
    reversed_lightness = pixels + 255 - 2 * pixels.mean(axis=2, keepdims=True)
    dark = np.clip(reversed_lightness, DARKEST, 255).astype(np.uint8)
    write(Image.fromarray(dark), f"{name}-dark")


def write(image: Image.Image, name: str, colours: int = COLOURS) -> None:
    """Write a picture with few colours."""
    path = PICTURES / f"{name}.png"
    image.quantize(colours, dither=Image.Dither.NONE).save(path, optimize=True)
    sys.stdout.write(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
