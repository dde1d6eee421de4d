"""Write docs/files.md, the list of all files, from what the files say at their beginning.

Run ``python docs/make_files.py`` after a file was added, renamed or described anew.
A test compares the page with what this program writes.
"""

from __future__ import annotations

import ast
import re
from itertools import groupby
from pathlib import Path

PAGE = Path(__file__).with_name("files.md")
PACKAGE = Path(__file__).parents[1] / "mtkit"
HEAD = """# Files

The first sentence of each file. [Architecture](architecture.md) says how they belong together.

"""
ROOMS = (
    *("", "cli", "prepare", "train", "translate", "translate/search", "translate/pytorch"),
    *("translate/glossary", "translate/html", "inspect", "check", "check/rules", "check/model"),
    *("convert", "serve", "documents", "score", "align", "parsing", "native", "native/src"),
    *("kernels", "base"),
)


def row(file: Path) -> str:
    """The line of the table for a module: its name, and the first paragraph of its docstring."""
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    first = " ".join(text.split("\n\n")[0].split()).removesuffix(".").replace("``", "`")
    return f"| `{file.name}` | {first} |"


def rows_of_cpp(folder: Path) -> list[str]:
    """Lines for C++: a header and its source together, and the first sentence of the first one."""
    files = sorted([*folder.rglob("*.h"), *folder.rglob("*.cpp")])
    files.sort(key=lambda file: (len(file.parts), file.stem, file.suffix == ".cpp"))
    rows = []
    for _, group in groupby(files, key=lambda file: file.with_suffix("")):
        names = list(group)
        comment = re.match(r"(?://.*\n)*", names[0].read_text(encoding="utf-8"))
        text = " ".join(re.sub("^// ?", "", comment[0] if comment else "", flags=re.M).split())
        joined = ", ".join(f"`{file.relative_to(folder)}`" for file in names)
        rows.append(f"| {joined} | {re.split(r'[.](?: |$)', text)[0]} |")
    return rows


def tables() -> str:
    """All tables, a heading and a table for each room."""
    parts = []
    for room in ROOMS:
        folder = PACKAGE / room
        if folder.name == "src":
            rows = rows_of_cpp(folder)
        else:
            files = sorted(folder.glob("*.py"))
            rows = [row(file) for file in files if not file.name.startswith("__")]
        heading = f"`{room}/`" if room else "Ground floor"
        parts.append("\n".join([f"## {heading}", "", "| file | what it has |", "|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def page() -> str:
    """The page as it should be."""
    return HEAD + tables()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
