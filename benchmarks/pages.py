"""The published run, and the pages that show it.

``python -m benchmarks --publish`` stores the saved results as the record and writes the pages.
`make generate` writes them again from the record, and a test fails if they differ.
"""

import shutil
from pathlib import Path

from benchmarks import markdown
from benchmarks.results import Results
from scripts.markers import replaced

RECORD = Path(__file__).parent / "record.json"
README = Path(__file__).parent.parent / "README.md"
PAGE = README.parent / "docs" / "benchmarks.md"
IMAGE = "images/benchmarks.png"


def publish(saved: Path) -> list[Path]:
    """Store saved results as the record; returns the pages that were written."""
    shutil.copyfile(saved, RECORD)
    pages = generate()
    for path, text in pages.items():
        path.write_text(text, encoding="utf-8")
    return list(pages)


def generate() -> dict[Path, str]:
    """The pages with the figures of the record."""
    results = Results.load(RECORD)
    ratios = markdown.summary(results)
    goals, tables = markdown.goals(results), markdown.tables(results, IMAGE)
    return {
        PAGE: replaced(PAGE, {"ratios": ratios, "goals": goals, "tables": tables}),
        README: replaced(README, {"ratios": ratios}),
    }
