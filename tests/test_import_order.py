"""Tests of the sources: imports go only one way, in the order in which frames are processed."""

import ast
import functools
import gc
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "python" / "paceline"
CRATES = ROOT / "crates"

#: A package may import packages of earlier rows, and of its own row.
ORDER = (
    ("_core", "errors"),
    ("_util",),
    ("block",),
    ("contract",),
    ("performance",),
    ("model", "report", "timing"),
    ("hdf5",),
    ("trajectory",),
    ("transform",),
    ("engine",),
    ("backends",),
    ("mdanalysis",),
    ("checkpoint", "mdtraj", "mpi", "split_join", "universe"),
    ("incremental_run",),
    ("runner",),
    ("analysis",),
    ("live_runner", "torch"),
    ("snapshot",),
    ("advice",),
    ("cli",),
    ("__main__", "selftest"),
)
#: Modules that call HDF5's library.
KNOW_H5PY = {
    "hdf5/copy_rows.py",
    "hdf5/file.py",
    "hdf5/repack.py",
    "hdf5/dataset_writers.py",
    "snapshot/crash_safe_hdf5_writes.py",
    "snapshot/write_h5md.py",
}
#: Modules that import MDAnalysis; a worker process imports none of them.
HEAVY = ("cli", "mdanalysis", "universe")


@pytest.fixture(autouse=True)
def no_garbage_collection():
    """Disable finalizers during parsing: CPython 3.11 may count its recursion depth wrongly."""
    gc.disable()
    yield
    gc.enable()


PYTHON_FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def level(name: str) -> int | None:
    """Return the row of a module, or of its package."""
    while name:
        for row, names in enumerate(ORDER):
            if name in names:
                return row
        name = name.rpartition(".")[0]
    return None


def name_of(path: Path) -> str:
    """Return the dotted name of a module in the package."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


MODULES = {name_of(path): path for path in PYTHON_FILES} | {"_core": None}


@functools.cache
def imported(path: Path) -> set[str]:
    """Return the modules of the package that a module imports, also inside functions."""
    found = set()
    for name in python_imports(path, parsed(path)):
        package, _, inner = name.partition(".")
        while package == "paceline" and inner and inner not in MODULES:
            inner = inner.rpartition(".")[0]
        if package == "paceline" and inner:
            found.add(inner)
    return found - {name_of(path)}


def python_imports(path: Path, tree: ast.AST) -> Iterator[str]:
    """Yield the dotted names of all imports, with `from a import b` as a.b."""
    package = ("paceline", *path.relative_to(PACKAGE).parent.parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parent = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*parent, *([node.module] if node.module else [])))
            yield from (f"{module}.{alias.name}" for alias in node.names)


def at_module_level(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements that run when the module is imported."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        yield from at_module_level(child)


def test_every_module_has_a_row():
    without = [name for name in MODULES if level(name) is None]
    assert not without, without


def test_python_imports_only_what_comes_before():
    wrong = []
    for here, path in MODULES.items():
        for module in sorted(imported(path)) if path else ():
            below, above = level(module), level(here)
            if below is None or above is None:
                continue
            same = module.partition(".")[0] == here.partition(".")[0]
            if below > above or (below == above and not same):
                wrong.append(f"{here} imports {module}, which does not come before it")
    assert not wrong, wrong


def test_no_module_reaches_itself():
    # A package's __init__ re-exports names of its modules, which may import names of the package.
    graph = {name_of(path): imported(path) for path in PYTHON_FILES if path.stem != "__init__"}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"imports in a circle: {' -> '.join(error.args[1])}")


def test_no_package_has_a_name_twice():
    """Check names: module `a.b` is reachable as `a.b` only if nothing else in the package is named
    b.
    """
    wrong = {}
    for path in PACKAGE.rglob("__init__.py"):
        modules = {one.stem for one in path.parent.iterdir()}
        for node in parsed(path).body:
            if isinstance(node, ast.ImportFrom):
                taken = modules.intersection(alias.asname or alias.name for alias in node.names)
                if taken:
                    wrong[str(path.relative_to(ROOT)), node.lineno] = taken
    assert not wrong, wrong


def test_workers_load_no_mdanalysis():
    forbidden = ("MDAnalysis", *(f"paceline.{name}" for name in HEAVY))
    wrong = {}
    for path in PYTHON_FILES:
        if name_of(path).startswith(HEAVY):
            continue
        loaded = [
            name
            for statement in at_module_level(parsed(path))
            for name in python_imports(path, statement)
            if name.startswith(forbidden)
        ]
        if loaded:
            wrong[str(path.relative_to(ROOT))] = loaded
    assert not wrong, wrong


def test_few_modules_know_h5py():
    found = set()
    for path in PYTHON_FILES:
        names = python_imports(path, parsed(path))
        if any(name.partition(".")[0] == "h5py" for name in names):
            found.add(str(path.relative_to(PACKAGE)))
    assert found == KNOW_H5PY


def test_the_design_names_what_exists():
    page = (ROOT / "docs" / "developers" / "design.md").read_text(encoding="utf-8")
    folders = (PACKAGE, CRATES, ROOT)
    rows = re.findall(r"\| `(\S+\.(?:py|rs))` \| (.*) \|$", page, re.MULTILINE)
    assert len(rows) > 60
    wrong = {}
    for name, functions in rows:
        path = next((here / name for here in folders if (here / name).exists()), None)
        words = set(re.findall(r"\w+", path.read_text(encoding="utf-8"))) if path else set()
        if unknown := set(re.findall(r"\w+", functions)) - words:
            wrong[name] = unknown
    for name in re.findall(r"`([\w/]+\.(?:py|rs))`", page):
        found = (ROOT / name, *PACKAGE.rglob(name), *CRATES.rglob(name))
        if not any(path.exists() for path in found):
            wrong[name] = "no such file"
    assert not wrong, wrong


def test_rust_modules_form_no_circle():
    circles = {}
    for crate in sorted(path.name for path in CRATES.iterdir()):
        graph = rust_modules(CRATES / crate / "src")
        assert len(graph) > 1, crate
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            circles[crate] = " -> ".join(error.args[1])
    assert not circles, circles


def rust_modules(source: Path) -> dict[str, set[str]]:
    """Return the graph of a crate's modules: the modules that each uses, without tests."""
    root = rust_code(source / "lib.rs")
    reexported = {
        name: module
        for module, names in re.findall(r"\bpub use (?:self::|crate::)?(\w+)::([^;]+);", root)
        for name in re.findall(r"\w+", names)
    }
    graph: dict[str, set[str]] = {name: set() for name in re.findall(r"\bmod (\w+);", root)}
    for path in source.rglob("*.rs"):
        inside = path.relative_to(source).with_suffix("").parts
        here, depth = inside[0], len(inside) - (inside[-1] == "mod")
        if here in graph and "tests" not in inside:
            used = {reexported.get(name, name) for name in rust_uses(rust_code(path), depth)}
            graph[here] |= used & graph.keys() - {here}
    return graph


def rust_code(path: Path) -> str:
    """Return the code of a file without comments, and without the tests at its end."""
    code = re.sub(r"//.*", "", path.read_text(encoding="utf-8"))
    return re.split(r"#\[cfg\(test\)\]\s*(?:#\[.*\]\s*)?mod \w+ \{", code)[0]


def rust_uses(code: str, depth: int) -> set[str]:
    """Return names relative to the crate root: `crate::{module, other::Thing}`, or `super::`."""
    start = r"(?<![\w:])(?:crate::|" + "super::" * depth + ")"
    names = set(re.findall(start + r"(\w+)", code))
    for group in re.finditer(start + r"\{", code):
        nested, item = 1, ""
        for character in code[group.end() :]:
            nested += (character == "{") - (character == "}")
            if nested == 0:
                break
            item += character if nested == 1 else " "
        names.update(re.findall(r"(?:^|,)\s*(\w+)", item))
    return names


def test_nested_groups_are_read():
    code = "use crate::{error::{Error, Result}, index, read::Reader}; crate::atoms::Atoms::all(3)"
    assert rust_uses(code, 1) == {"error", "index", "read", "atoms"}
    assert rust_uses("use super::walk; use super::super::{xdr, cell::Cell};", 2) == {"xdr", "cell"}
