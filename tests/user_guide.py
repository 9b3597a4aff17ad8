"""Run the notebooks of MDAnalysis's User Guide with and without paceline, and compare the outputs.

    python tests/user_guide.py FOLDER [PATTERN …] [--frames 100000]

FOLDER has the notebooks, as doc/source/examples/analysis of MDAnalysis's UserGuide; nothing in it
is changed. PATTERN, as "rms*", chooses some by name. Each notebook runs unchanged in a plain
kernel, and again in one that `python -m paceline -m jupyter` starts. It prints a table for the
manual: whether the outputs of all cells are equal, the seconds that the cells took, and the
processor's seconds of the kernel and its processes, start included; --verbose shows the outputs
that differ.

With --frames, `DCD` of MDAnalysisTests, 98 frames of adenylate kinase, is in the notebooks an XTC
file that repeats these frames (13 kB each).
"""

import argparse
import io
import os
import re
import resource
import tempfile
import time
from base64 import b64decode
from contextlib import nullcontext
from fnmatch import fnmatch
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
#: Numbers of texts, and by how much they may differ: the rounding of single precision.
NUMBER = re.compile(r"[-+]?\d+\.?\d*(?:[eE][-+]?\d+)?")
TOLERANCE = 2e-6
#: Kinds of output that say nothing beside a text or an image: widgets have names of their own.
WIDGETS = ("application/vnd.jupyter.widget-view+json", "text/html")
#: Code before the first cell of a notebook that is to read more frames.
MORE_FRAMES = "import MDAnalysis.tests.datafiles as files; files.DCD = {!r}; del files"
#: A cell that takes longer is an error.
SECONDS_OF_A_CELL = 900


class Outcome(NamedTuple):
    """Outputs of each cell, seconds in cells, the processor's, and the error that ended it."""

    outputs: list[list[str]]
    seconds: float
    cpu: float
    error: str


def run(path: Path, registered: bool, trajectory: str = "") -> Outcome:
    """Run the cells of a notebook in a folder of its own, with a trajectory in the place of DCD."""
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
            if trajectory:
                notebook.cells = [nbformat.v4.new_code_cell(MORE_FRAMES.format(trajectory)), *cells]
                client.execute_cell(notebook.cells[0], 0)
            for number, cell in enumerate(cells, len(notebook.cells) - len(cells)):
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
    """Processor seconds of processes that have ended, and of their own that have."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def repeat_frames(n_frames: int, path: Path) -> str:
    """Write the frames of DCD again and again, so many; the file's name."""
    import MDAnalysis as mda
    from MDAnalysisTests.datafiles import DCD, PSF

    atoms = mda.Universe(PSF, DCD, in_memory=True).atoms
    trajectory = atoms.universe.trajectory
    with mda.Writer(str(path), atoms.n_atoms) as writer:
        for frame in range(n_frames):
            ts = trajectory[frame % trajectory.n_frames]
            ts.frame, ts.time = frame, float(frame)
            writer.write(atoms)
    return str(path)


def outputs_of(cell: Any) -> list[str]:
    """Results, prints and images of a cell; standard error has warnings and progress."""
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
    """Compare outputs of a cell: numbers to single precision, images to a thousandth."""
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
    """Say in a few words how the outputs compare, and where they differ."""
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
    """Run the notebooks, print the table; 1 where one differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("patterns", nargs="*", default=["*"])
    parser.add_argument("--frames", type=int, metavar="N", help="a trajectory of so many as DCD")
    parser.add_argument("--verbose", action="store_true", help="show the outputs that differ")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trajectory = ""
        if arguments.frames:
            trajectory = repeat_frames(arguments.frames, Path(folder, "adk.xtc"))
        return print_table(arguments, trajectory)


def print_table(arguments: argparse.Namespace, trajectory: str) -> int:
    """Run the notebooks that were asked for; 1 where one differs."""
    print(
        "| notebook | outputs | plain, s | with paceline, s | plain, CPU s | with paceline, CPU s |"
    )
    print("| --- | --- | ---: | ---: | ---: | ---: |", flush=True)
    n_wrong = 0
    for path in sorted(arguments.folder.rglob("*.ipynb")):
        if not any(fnmatch(path.stem, pattern) for pattern in arguments.patterns):
            continue
        plain = run(path, False, trajectory)
        ours = run(path, True, trajectory) if not plain.error else plain
        words, different = compare(plain, ours)
        if different:
            # Numbers by chance differ in every run.
            _, by_chance = compare(plain, run(path, False, trajectory))
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
