"""Run the notebooks of MDAnalysis's User Guide with and without paceline, and compare the outputs.

    python tests/user_guide.py FOLDER [PATTERN …] [--frames 100000]

FOLDER contains the notebooks, like doc/source/examples/analysis in MDAnalysis's UserGuide; it is
not changed. PATTERN, such as "rms*", selects notebooks by name. Each notebook runs unchanged in a
plain kernel, and again in a kernel that `python -m paceline -m jupyter` starts. The script prints a
table for the manual: whether the outputs of all cells are equal, the seconds of the cells, and the
CPU seconds of the kernel and its processes, including the start. --verbose prints outputs that
differ.

With --frames, the trajectories of MDAnalysisTests in the notebooks (`DCD`, `XTC`, `waterDCD`,
`TRZ`) are replaced by XTC files that repeat their frames. Frames of `DCD` have 13 kB, those of
`XTC` 170 kB. Data that a notebook would download are always replaced by `DCD`; both are adenylate
kinase.
"""

import argparse
import io
import os
import re
import resource
import struct
import tempfile
import time
from base64 import b64decode
from collections.abc import Callable
from contextlib import nullcontext
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
import numpy as np
from matplotlib.image import imread
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from paceline.__main__ import kernels

#: Parts of outputs that differ from run to run: addresses, names of temporary files, seconds.
CHANGING = re.compile(r"0x[0-9a-f]{6,}|/tmp/\S+|\d+(\.\d+)? ?m?s\b|\d+\.\d+ seconds|[0-9a-f]{32}")
#: Numbers in texts; they may differ by rounding in single precision.
NUMBER = re.compile(r"[-+]?\d+\.?\d*(?:[eE][-+]?\d+)?")
TOLERANCE = 2e-6
#: Kinds of output that are ignored next to a text or an image: widgets have unique names.
WIDGETS = ("application/vnd.jupyter.widget-view+json", "text/html")
#: Trajectories that can be made longer, and their topologies.
TOPOLOGIES = {"DCD": "PSF", "XTC": "GRO", "waterDCD": "waterPSF", "TRZ": "TRZ_psf"}
#: Code before the first cell of a notebook, which replaces files.
FIRST_CELL = """
import sys, types
from MDAnalysis.tests import datafiles
vars(datafiles).update({replaced})
downloads = types.ModuleType("MDAnalysisData")
downloads.datasets = downloads.adk_equilibrium = types.ModuleType("MDAnalysisData.adk_equilibrium")
adk = types.SimpleNamespace(topology=datafiles.PSF, trajectory=datafiles.DCD)
downloads.datasets.fetch_adk_equilibrium = lambda adk=adk: adk
sys.modules |= {{one.__name__: one for one in (downloads, downloads.datasets)}}
del sys, types, datafiles, downloads, adk
"""
#: Time after which a cell counts as an error.
SECONDS_OF_A_CELL = 3600


class Outcome(NamedTuple):
    """Outputs of each cell, seconds of the cells, CPU seconds, and the error that ended the
    notebook.
    """

    outputs: list[list[str]]
    seconds: float
    cpu: float
    error: str


def run(path: Path, registered: bool, longer: Callable[[str], str] | None) -> Outcome:
    """Run the cells of a notebook in a separate folder, with longer trajectories."""
    notebook = nbformat.read(path, as_version=4)
    cells, used = notebook.cells, cpu_of_children()
    with tempfile.TemporaryDirectory() as folder, kernels([]) if registered else nullcontext():
        client = NotebookClient(
            notebook,
            timeout=SECONDS_OF_A_CELL,
            kernel_name="python3",
            resources={"metadata": {"path": folder}},
        )
        error, seconds = "", 0.0
        with client.setup_kernel(env=os.environ | {"PYTHONWARNINGS": "ignore"}):
            notebook.cells = [first_cell(cells, longer), *cells]
            client.execute_cell(notebook.cells[0], 0)
            for number, cell in enumerate(cells, 1):
                start = time.perf_counter()
                try:
                    client.execute_cell(cell, number)
                except CellExecutionError as raised:
                    error = f"{raised.ename}: {raised.evalue}".splitlines()[0]
                    break
                finally:
                    seconds += time.perf_counter() - start
    outputs = [outputs_of(cell) for cell in cells if cell.cell_type == "code"]
    return Outcome(outputs, seconds, cpu_of_children() - used, error)


def cpu_of_children() -> float:
    """Return the CPU seconds of child processes that have ended, including their children."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def first_cell(cells: list[Any], longer: Callable[[str], str] | None) -> Any:
    """Return the cell that provides longer trajectories, and data that would be downloaded."""
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    code = code.replace("adk_equilibrium", " DCD ")
    used = [name for name in TOPOLOGIES if longer and re.search(rf"\b{name}\b", code)]
    replaced = {name: longer(name) for name in used}
    return nbformat.v4.new_code_cell(FIRST_CELL.format(replaced=replaced))


def repeat_frames(name: str, n_frames: int, folder: Path) -> str:
    """Write a number of repeated frames of a trajectory as XTC; return the name of the file."""
    import MDAnalysis as mda
    from MDAnalysisTests import datafiles

    path = folder / f"{name}.xtc"
    if path.exists():
        return str(path)
    universe = mda.Universe(getattr(datafiles, TOPOLOGIES[name]), getattr(datafiles, name))
    once = folder / f"{name}-once.xtc"
    universe.atoms.write(str(once), frames="all")
    with mda.lib.formats.libmdaxdr.XTCFile(str(once)) as file:
        ends = [*file.offsets[1:], once.stat().st_size]
    frames = [once.read_bytes()[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    with path.open("wb") as written:
        for frame in range(n_frames):
            one = frames[frame % len(frames)]
            number_and_time = struct.pack(">if", frame, frame * universe.trajectory.dt)
            written.write(one[:8] + number_and_time + one[16:])
    return str(path)


def outputs_of(cell: Any) -> list[str]:
    """Return results, prints and images of a cell, without standard error."""
    found, printed = [], ""
    for output in cell.get("outputs", []):
        if output.output_type == "stream":
            printed += output.text * (output.name == "stdout")
        elif output.output_type in ("display_data", "execute_result"):
            data = {key: value for key, value in output.data.items() if key not in WIDGETS}
            if WIDGETS[0] not in output.data:
                found += [f"{key}: {value}" for key, value in sorted(data.items())]
    texts = [text for text in (printed, *found) if text]
    return [t if t.startswith("image/") else CHANGING.sub("…", t) for t in texts]


def alike(one: list[str], other: list[str]) -> bool:
    """Compare the outputs of a cell: numbers in single precision, images to a thousandth."""
    return len(one) == len(other) and all(map(alike_texts, one, other))


def alike_texts(one: str, other: str) -> bool:
    """Compare two outputs."""
    if one == other:
        return True
    kind, _, _ = one.partition(": ")
    if kind == "image/png":
        pictures = [
            imread(io.BytesIO(b64decode(text.partition(": ")[2].strip()))) for text in (one, other)
        ]
        return pictures[0].shape == pictures[1].shape and bool(
            np.abs(pictures[0] - pictures[1]).mean() < 1e-3
        )
    if "".join(NUMBER.sub("", one).split()) != "".join(NUMBER.sub("", other).split()):
        return False
    numbers = [np.array(NUMBER.findall(text), dtype=float) for text in (one, other)]
    return len(numbers[0]) == len(numbers[1]) and np.allclose(
        *numbers, rtol=TOLERANCE, atol=TOLERANCE
    )


def compare(plain: Outcome, ours: Outcome) -> tuple[str, list[int]]:
    """Return a short description of how the outputs compare, and the cells that differ."""
    if plain.error:
        return (f"stops without paceline too: {plain.error}"[:150]), []
    if ours.error:
        return f"stops: {ours.error}", []
    pairs = enumerate(zip(plain.outputs, ours.outputs, strict=True), 1)
    different = [number for number, (theirs, own) in pairs if not alike(theirs, own)]
    n_equal = sum(a == b for a, b in zip(plain.outputs, ours.outputs, strict=True))
    n_outputs = sum(map(len, plain.outputs))
    if different:
        return f"differ in {', '.join(f'cell {number}' for number in different)}", different
    if n_equal == len(plain.outputs):
        return f"all {n_outputs} equal", []
    return f"all {n_outputs} equal, numbers to {TOLERANCE:g}", []


def main() -> int:
    """Run the notebooks, and print the table; return 1 if an output differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("patterns", nargs="*", default=["*"])
    parser.add_argument("--frames", type=int, metavar="N", help="so many in each trajectory")
    parser.add_argument("--verbose", action="store_true", help="show the outputs that differ")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        longer = partial(repeat_frames, n_frames=arguments.frames, folder=Path(folder))
        return print_table(arguments, longer if arguments.frames else None)


def print_table(arguments: argparse.Namespace, longer: Callable[[str], str] | None) -> int:
    """Run the requested notebooks; return 1 if an output differs."""
    print(
        "| notebook | outputs | plain, s | with paceline, s | plain, CPU s | with paceline, CPU s |"
    )
    print("| --- | --- | ---: | ---: | ---: | ---: |", flush=True)
    n_wrong = 0
    for path in sorted(arguments.folder.rglob("*.ipynb")):
        if not any(fnmatch(path.stem, pattern) for pattern in arguments.patterns):
            continue
        plain = run(path, False, longer)
        ours = run(path, True, longer) if not plain.error else plain
        words, different = compare(plain, ours)
        if different:
            # Random numbers differ in every run.
            _, by_chance = compare(plain, run(path, False, longer))
            if set(different) <= set(by_chance):
                words, different = "equal, but for what differs in each plain run, too", []
        times = (plain.seconds, ours.seconds, plain.cpu, ours.cpu)
        shown = " | ".join("" if plain.error else f"{one:.1f}" for one in times)
        print(f"| {path.stem} | {words} | {shown} |", flush=True)
        n_wrong += not plain.error and bool(different or ours.error)
        if arguments.verbose:
            for number in different:
                print(f"cell {number}:", plain.outputs[number - 1], ours.outputs[number - 1], "\n")
    return min(n_wrong, 1)


if __name__ == "__main__":
    raise SystemExit(main())
