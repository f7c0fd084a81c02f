"""Every figure and table of the four papers, and what came of it here: docs/papers.md.

    python scenarios/papers.py           # writes docs/papers.md
    python scenarios/papers.py --check   # says whether it is what would be written

docs/papers.yaml has the text and the rows; verdicts are those of the results that are kept.
"""

from __future__ import annotations

import difflib
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import yaml

from testbed.reports.table import markdown
from testbed.studies import load_study
from testbed.studies.found import FoundRun, Results, find_runs, kept_beside
from testbed.studies.tables import study_notes
from testbed.studies.verdicts import Judged, Verdict, judge

SCENARIOS = Path(__file__).resolve().parent
DATA = SCENARIOS.parent / "docs/papers.yaml"
PAGE = SCENARIOS.parent / "docs/papers.md"
NO_RUNS = SCENARIOS / "no-folder-of-runs"
"""Results are those that are kept, whatever else this machine has run."""

VERDICTS: tuple[Verdict, ...] = ("reproduced", "not reproduced", "not resolved", "not run")
TITLES = (
    "in the paper", "shows", "here", "size", "substitute", "seeds", "evidence", "verdicts",
    "posthoc", "arithmetic",
)  # fmt: skip
Row = Mapping[str, str]
Kept = Callable[[Path], Mapping[str, FoundRun]]


def page() -> str:
    """The whole page."""
    data = yaml.safe_load(DATA.read_text(encoding="utf-8"))
    parts = [data["introduction"]]
    kept = cache(kept_beside)  # studies of a folder share its kept runs
    for paper in data["papers"]:
        rows = [list(cells(row, kept)) for row in paper["rows"]]
        parts.append(f"## {paper['paper']}\n\n{paper['source']}.\n\n{markdown(TITLES, rows)}")
    return "\n".join(parts)


def cells(row: Row, kept: Kept = kept_beside) -> Iterator[str]:
    """A row of the page."""
    file = row.get("study") or row.get("by")
    judged, substitute = studied(row["study"], kept) if "study" in row else ([], "")
    yield row["figure"]
    yield row["shows"]
    yield f"[{file}](../scenarios/{file})" if file else "none"
    yield row["size"]
    yield row.get("substitute") or substitute or "none"
    yield seeds(judged)
    has_run = not judged or any(one.verdict != "not run" for one in judged)
    yield row.get("evidence", "none") if has_run else "none"
    for basis in ("", "posthoc", "arithmetic"):
        yield counted([one for one in judged if one.basis == basis])


def studied(name: str, kept: Kept) -> tuple[list[Judged], str]:
    """The verdicts of a study, and what stands for what the paper had."""
    study = load_study(SCENARIOS / name)
    judged = judge(Results(study, study, find_runs(study, NO_RUNS, kept)))
    return judged, " ".join(note.removeprefix("**SUBSTITUTE**: ") for note in study_notes(study))


def seeds(judged: Sequence[Judged]) -> str:
    """How many seeds the verdicts rest on."""
    numbers = sorted({one.seeds for one in judged if one.verdict != "not run"})
    return " or ".join(map(str, numbers))


def counted(judged: Sequence[Judged]) -> str:
    """How many verdicts there are of each kind."""
    found = Counter(one.verdict for one in judged)
    return ", ".join(f"{found[verdict]} {verdict}" for verdict in VERDICTS if found[verdict])


def main() -> int:
    """Write the page, or compare it."""
    made = page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(made, encoding="utf-8")
        return 0
    there = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    if made == there:
        return 0
    lines = difflib.unified_diff(there.splitlines(), made.splitlines(), "there", "now", lineterm="")
    print("\n".join(lines))
    print("docs/papers.md is not that of the kept results. Try: make papers", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
