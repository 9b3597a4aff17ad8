"""Imports go one way, in the order in which a frame travels. Read from the sources alone."""

import ast
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "python" / "paceline"
CRATES = ROOT / "crates"

#: Each name may import those of the groups before its own.
PYTHON_LAYERS = (
    ("_core", "errors"),
    ("launch", "machine", "pagecache"),
    ("files", "progress", "digest"),
    ("journal", "room", "stopping"),
    ("copying", "ordered", "shipped"),
    ("timing",),
    ("report",),
    ("pages",),
    ("leaves", "merging"),
    ("plan",),
    ("block",),
    ("frames",),
    ("indexed",),
    ("job",),
    ("outcome",),
    ("worker",),
    ("backends",),
    ("model",),
    ("collect",),
    ("hdf5",),
    ("opening",),
    ("restarts", "joining", "pieces"),
    ("chain",),
    ("coordinates",),
    ("series_reader", "turns"),
    ("reader",),
    ("foreign", "universe_frames"),
    ("trajectory", "universe", "subfile"),
    ("transform", "arrays"),
    ("passes",),
    ("identity",),
    ("checkpoint",),
    ("runner",),
    ("advice",),
    ("mpi",),
    ("analysis",),
    ("encoding",),
    ("convert", "h5md_writer", "snapshot"),
    ("scaling",),
    ("cli",),
)
#: A thing's method may hand it on to what shows it, imported when it is called.
SHOWN_BY = {("timing", "report")}
#: Only these know HDF5's library: how files are read, how they are made, and how they grow.
KNOW_H5PY = {
    *("hdf5/native.py", "hdf5/node.py", "hdf5/group.py", "hdf5/array.py", "hdf5/mpio.py"),
    *("hdf5/making.py", "hdf5/copies.py"),
    *(f"snapshot/containers/{name}.py" for name in ("h5md", "h5md_continued", "catalogue")),
}
#: Only these know MDAnalysis; a worker process loads the others, and so loads it never.
HEAVY = (
    "series_reader",
    "reader",
    "foreign",
    "trajectory",
    "universe",
    "universe_frames",
    "h5md_writer",
    "cli",
)

PYTHON_FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE) + sorted(
    path for path in PACKAGE.glob("*.py") if path.stem not in ("__init__", "__main__")
)


def level(layers: tuple[tuple[str, ...], ...], name: str) -> int:
    """Place of a module in the order; a module without a place fails the test."""
    for place, names in enumerate(layers):
        if name in names:
            return place
    raise AssertionError(f"{name!r} has no place in the order of imports; give it one")


def module_of(path: Path, folder: Path) -> str:
    """Layer that a file belongs to: the first part of its path."""
    return path.relative_to(folder).with_suffix("").parts[0]


def python_imports(path: Path, tree: ast.AST) -> Iterator[str]:
    """Dotted names of all that is imported, `from a import b` as a.b."""
    package = ("paceline", *path.relative_to(PACKAGE).parent.parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parent = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*parent, *([node.module] if node.module else [])))
            yield from (f"{module}.{alias.name}" for alias in node.names)


def at_module_level(node: ast.AST) -> Iterator[ast.stmt]:
    """Statements that run when the module is imported."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        yield from at_module_level(child)


@pytest.mark.parametrize("path", PYTHON_FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_python_imports_only_what_comes_before(path):
    here = module_of(path, PACKAGE)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    at_once = {
        name for statement in at_module_level(tree) for name in python_imports(path, statement)
    }
    for name in python_imports(path, tree):
        package, _, inner = name.partition(".")
        if package != "paceline":
            continue
        module = inner.partition(".")[0]
        if (here, module) in SHOWN_BY and name not in at_once:
            continue
        assert module == here or level(PYTHON_LAYERS, module) < level(PYTHON_LAYERS, here), (
            f"{path.relative_to(ROOT)} imports {name}: paceline.{here} comes before it"
        )


@pytest.mark.parametrize("path", PYTHON_FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_workers_load_no_mdanalysis(path):
    if module_of(path, PACKAGE) in HEAVY:
        return
    tree = ast.parse(path.read_text(encoding="utf-8"))
    forbidden = ("MDAnalysis", *(f"paceline.{name}" for name in HEAVY))
    loaded = [
        name
        for statement in at_module_level(tree)
        for name in python_imports(path, statement)
        if name.startswith(forbidden)
    ]
    assert not loaded, f"{path.relative_to(ROOT)} imports {loaded} at module level"


def test_few_modules_know_h5py():
    found = set()
    for path in PYTHON_FILES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if any(name.partition(".")[0] == "h5py" for name in python_imports(path, tree)):
            found.add(str(path.relative_to(PACKAGE)))
    assert found == KNOW_H5PY


@pytest.mark.parametrize("crate", sorted(path.name for path in CRATES.iterdir()))
def test_rust_modules_form_no_circle(crate):
    graph = rust_modules(CRATES / crate / "src")
    assert len(graph) > 1
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"{crate}: modules use each other in a circle: {' -> '.join(error.args[1])}")


def rust_modules(source: Path) -> dict[str, set[str]]:
    """Graph of a crate's modules: which other ones each uses, tests aside."""
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
    """Code of a file without its comments and without the tests at its end."""
    code = re.sub(r"//.*", "", path.read_text(encoding="utf-8"))
    return re.split(r"#\[cfg\(test\)\]\s*(?:#\[.*\]\s*)?mod \w+ \{", code)[0]


def rust_uses(code: str, depth: int) -> set[str]:
    """Names from the crate's root: `crate::{module, other::Thing}`, or `super::` that goes so far."""
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
