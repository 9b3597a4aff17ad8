"""The page of promises names tests and benchmarks that exist."""

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "promises.md"
#: Rows of its tables: the promise, and what holds it.
ROW = re.compile(r"^\| (?!promise |---)(.+?) \| (.+) \|$", re.MULTILINE)


def rows() -> list[tuple[str, str]]:
    return ROW.findall(PAGE.read_text(encoding="utf-8"))


@functools.cache
def names_in(path: Path) -> set[str]:
    """Names of the tests of a module, behind the names of their classes."""
    found = set()
    nodes = [("", node) for node in ast.parse(path.read_text(encoding="utf-8")).body]
    for within, node in nodes:
        if isinstance(node, ast.ClassDef):
            nodes += [(f"{within}{node.name}::", one) for one in node.body]
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            found.add(f"{within}{node.name}")
    return found


@pytest.mark.parametrize(("promise", "held"), rows(), ids=lambda text: text[:60])
def test_tests_that_are_named_exist(promise, held):
    tests = re.findall(r"`(test_\w+\.py)::([\w:]+)`", held)
    of_rust = re.findall(r"`(\w+)` in `([\w/.-]+\.rs)`", held)
    benchmarks = re.findall(r"`(?:python -m benchmarks[. ]|make )([\w-]+)`", held)
    assert tests or of_rust or benchmarks, promise
    # Nothing but names of tests and benchmarks stands between backquotes.
    n_files = len(re.findall(r"`benchmarks/\w+\.tsv`", held))
    names = len(tests) + 2 * len(of_rust) + len(benchmarks) + n_files
    assert held.count("`") == 2 * names, held
    for module, name in tests:
        assert name in names_in(ROOT / "tests" / module), f"{module}::{name}"
    for name, module in of_rust:
        assert f"fn {name}()" in (ROOT / "crates" / module).read_text(encoding="utf-8"), name
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for name in benchmarks:
        script = ROOT / "benchmarks" / f"bench_{name.removeprefix('bench_')}.py"
        assert script.exists() or f"\n{name}: " in makefile, name


def test_every_page_that_promises_something_is_linked():
    # Pages of tables, of figures and of words promise nothing of their own.
    silent = {"glossary.md", "many-ranks.md", "promises.md", "recipes.md"}
    silent |= {"maintaining.md", "user-guide-notebooks.md"}
    links = {link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", PAGE.read_text())}
    pages = {path.name for path in PAGE.parent.glob("*.md")} - silent
    formats = {f"formats/{path.name}" for path in (PAGE.parent / "formats").glob("*.md")}
    assert pages | formats <= links
