"""Write THIRDPARTY.md: the licences of other software in the wheel.

    python packaging/third_party.py [FILE]

Names and versions of the crates that are linked into the compiled module are those of Cargo.lock,
texts those of the crates' own files; a licence that is not in `ALLOWED` ends it with an error.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Licences that a wheel under BSD-3-Clause may hold; deny.toml has the same.
ALLOWED = {
    *("Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause"),
    *("BSL-1.0", "ISC", "MIT", "Unicode-3.0", "Unlicense", "Zlib"),
}
#: Platforms of wheels; crates for others are not linked.
PLATFORMS = (
    *("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "x86_64-apple-darwin"),
    *("aarch64-apple-darwin", "x86_64-pc-windows-msvc"),
)
#: Beginnings of texts that a crate brings for another choice than ours: Zstandard's GPL beside BSD.
NOT_CHOSEN = ("GNU GENERAL PUBLIC LICENSE",)
#: Beginnings of the names of files that hold licences.
NAMES = ("LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE")
HEAD = """# Licences of other software in the wheel

The compiled module of paceline holds the crates below, and Rust's standard library (Copyright (c)
The Rust Project contributors; MIT or Apache-2.0). Pages of results hold uPlot, a JavaScript library
in paceline/performance/uplot. Python packages that paceline needs are installed beside it and have
licences of their own.

This file is made by `make licences`.

| crate or library | version | licence | texts |
| --- | --- | --- | --- |
"""
#: Folder of the JavaScript library, whose first line has its version.
UPLOT = ROOT / "python" / "paceline" / "performance" / "uplot"


def linked() -> list[dict]:
    """Packages that the compiled module holds: neither for tests nor for building alone."""
    command = ["cargo", "metadata", "--locked", "--format-version", "1"]
    command += [part for platform in PLATFORMS for part in ("--filter-platform", platform)]
    written = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    metadata = json.loads(written)
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    todo = [key for key, one in packages.items() if one["name"] == "paceline-python"]
    found: dict[str, dict] = {}
    while todo:
        key = todo.pop()
        is_macro = any("proc-macro" in target["kind"] for target in packages[key]["targets"])
        if key in found or is_macro:
            continue
        found[key] = packages[key]
        for other in nodes[key]["deps"]:
            if any(kind["kind"] is None for kind in other["dep_kinds"]):
                todo.append(other["pkg"])
    foreign = [one for one in found.values() if one["source"] is not None]
    return sorted(foreign, key=lambda one: (one["name"], one["version"]))


def check_licence(package: dict) -> str:
    """Return the licence's expression, if one of its choices is allowed."""
    expression = (package["license"] or "").replace("/", " OR ")
    parts = [part.strip("() ") for part in re.split(r" OR | AND ", expression)]
    joins_all = " AND " in expression
    allowed = [part in ALLOWED for part in parts]
    if not (all(allowed) if joins_all else any(allowed)):
        raise SystemExit(
            f"{package['name']} {package['version']} has the licence {expression or 'none'!r}: "
            "if a wheel under BSD-3-Clause may hold it, add it to ALLOWED and to deny.toml"
        )
    return expression


def texts_of(package: dict) -> Iterator[str]:
    """Texts of a crate's files of licences, those of sources that it bundles included."""
    folder = Path(package["manifest_path"]).parent
    paths = [path for path in folder.rglob("*") if path.name.upper().startswith(NAMES)]
    for path in sorted(paths, key=lambda one: str(one.relative_to(folder))):
        if path.is_file():
            text = path.read_text("utf-8").strip()
            if not text.startswith(NOT_CHOSEN):
                yield "\n".join(line.rstrip() for line in text.splitlines())


def page() -> str:
    """Make the page: a table of crates and of uPlot, and every text once."""
    rows, numbers = [], {}
    for package in linked():
        texts = dict.fromkeys(texts_of(package))
        own = [numbers.setdefault(text, len(numbers) + 1) for text in texts]
        if not own:
            raise SystemExit(f"{package['name']} {package['version']} brings no text of a licence")
        cells = (package["name"], package["version"], check_licence(package))
        rows.append(f"| {' | '.join(cells)} | {', '.join(map(str, own))} |")
    text = (UPLOT / "LICENSE").read_text("utf-8").strip()
    version = re.search(r"\(v([\d.]+)\)", (UPLOT / "uPlot.iife.min.js").read_text("utf-8"))[1]
    rows.append(f"| uPlot | {version} | MIT | {numbers.setdefault(text, len(numbers) + 1)} |")
    texts = [f"## Text {number}\n\n```\n{text}\n```\n" for text, number in numbers.items()]
    return HEAD + "\n".join(rows) + "\n\n" + "\n".join(texts)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "THIRDPARTY.md"
    target.write_text(page(), encoding="utf-8")
