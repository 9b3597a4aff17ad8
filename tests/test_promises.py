"""Tests that the page of promises names tests and benchmarks that exist."""

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGE = DOCS / "developers" / "promises.md"
#: Table row: the promise, and the tests that verify it.
ROW = re.compile(r"^\| (?!promise |---)(.+?) \| (.+) \|$", re.MULTILINE)


@functools.cache
def names_in(path: Path) -> set[str]:
    """Return the names of the tests in a module, with the names of their classes."""
    found = set()
    nodes = [("", node) for node in ast.parse(path.read_text(encoding="utf-8")).body]
    for within, node in nodes:
        if isinstance(node, ast.ClassDef):
            nodes += [(f"{within}{node.name}::", one) for one in node.body]
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            found.add(f"{within}{node.name}")
    return found


def missing(held: str, makefile: str) -> list[str]:
    """Return the names in the second column of a row that do not exist."""
    tests = re.findall(r"`(test_\w+\.py)::([\w:]+)`", held)
    of_rust = re.findall(r"`(\w+)` in `([\w/.-]+\.rs)`", held)
    benchmarks = re.findall(r"`(?:python -m benchmarks[. ]|make )([\w-]+)`", held)
    files = re.findall(r"`(benchmarks/\w+\.tsv)`", held)
    if not (tests or of_rust or benchmarks):
        return ["a test or a benchmark"]
    # Only names of tests and benchmarks may be between backquotes.
    n_names = len(tests) + 2 * len(of_rust) + len(benchmarks) + len(files)
    found = [] if held.count("`") == 2 * n_names else [f"a name that can be read in: {held}"]
    for module, name in tests:
        path = ROOT / "tests" / module
        if not path.exists() or name not in names_in(path):
            found.append(f"{module}::{name}")
    for name, module in of_rust:
        path = ROOT / "crates" / module
        if not path.exists() or f"fn {name}()" not in path.read_text(encoding="utf-8"):
            found.append(f"{name} in {module}")
    for name in benchmarks:
        script = ROOT / "benchmarks" / f"bench_{name.removeprefix('bench_')}.py"
        if not script.exists() and f"\n{name}: " not in makefile:
            found.append(name)
    return found + [name for name in files if not (ROOT / name).exists()]


def test_named_tests_and_benchmarks_exist():
    rows = ROW.findall(PAGE.read_text(encoding="utf-8"))
    assert len(rows) > 100
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    wrong = {promise: lacks for promise, held in rows if (lacks := missing(held, makefile))}
    assert not wrong, wrong


def test_every_page_that_promises_something_is_linked():
    # Pages of tables and terms contain no promises.
    silent = {"glossary.md", "recipes.md", "how-do-i.md"}
    links = set(re.findall(r"\]\(\.\./([^)#]+)", PAGE.read_text(encoding="utf-8")))
    pages = {path.name for path in DOCS.glob("*.md")} - silent
    pages |= {f"formats/{path.name}" for path in (DOCS / "formats").glob("*.md")}
    assert pages <= links, pages - links
