"""Cases that run scripts and commands."""

import contextlib
import io
from pathlib import Path

import MDAnalysis as mda
import numpy as np
from MDAnalysis.analysis.rdf import InterRDF as MDAnalysisRDF
from MDAnalysisTests.datafiles import DCD, GRO, PSF, XTC

import paceline
from benchmarks.right_values.case import Found, RightValue
from paceline.analysis.pca import PCA
from paceline.analysis.rdf import InterRDF
from paceline.cli import main
from paceline.report import report_of

#: Edge of the cell in all created files, Å.
EDGE = 20.0


def _lattice_without_cell(folder: Path) -> str:
    """Write a NetCDF file of a cubic lattice of 5 Å that fills a cell, without the cell."""
    positions = np.stack(np.meshgrid(*3 * [np.arange(0, EDGE, 5.0)]), axis=-1).reshape(1, -1, 3)
    universe = mda.Universe.empty(positions.shape[1], trajectory=True)
    universe.load_new(np.repeat(positions, 4, axis=0))
    name = str(folder / "lattice.nc")
    with mda.Writer(name, len(universe.atoms)) as writer:
        for _ in universe.trajectory:
            writer.write(universe)
    return name


def _neighbours(folder: Path) -> Found:
    """Count the nearest neighbours in a lattice whose cell a script sets once."""
    name = _lattice_without_cell(folder)
    found = []
    for reader, rdf in ((paceline.Universe, InterRDF), (mda.Universe, MDAnalysisRDF)):
        universe = reader.empty(int(EDGE / 5) ** 3, trajectory=True).load_new(name)
        universe.dimensions = [EDGE, EDGE, EDGE, 90, 90, 90]
        counts = rdf(universe.atoms, universe.atoms, nbins=1, range=(4.9, 5.1)).run()
        found.append(counts.results.count.sum() / len(universe.atoms) / 4)
    return Found(*found)


def _native_length(_: Path) -> Found:
    """Convert a length to the unit of an XTC file."""
    one = np.ones(1)
    ours, theirs = (
        made(GRO, XTC).trajectory.convert_pos_to_native(one, inplace=False)[0]
        for made in (paceline.Universe, mda.Universe)
    )
    return Found(float(ours), float(theirs))


def _answer(*arguments: str) -> Found:
    """Run a command that ends with a sentence."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.suppress(SystemExit):
        main(arguments)
    return Found(said.getvalue().strip())


def _frames_of_two_passes(_: Path) -> Found:
    """Return frames and workers in the report on an analysis with two passes."""
    ca = paceline.Universe(PSF, DCD).select_atoms("name CA")
    run = PCA(ca, n_projected=2).run(backend="threads", n_workers=2, block_frames=16)
    report = report_of(run.timings)
    most = "at most 2" if report.n_workers <= 2 else f"{report.n_workers}"
    return Found(f"{report.n_frames} frames on {most} workers")


CASES = [
    RightValue(
        "cell set once by a script: neighbours of a lattice",
        "",
        6.0,
        "each point of a cubic lattice has six, over the borders of the cell, too",
        _neighbours,
        1e-9,
    ),
    RightValue(
        "convert_pos_to_native of 1 Å, XTC",
        "nm",
        0.1,
        "XTC is in nm",
        _native_length,
        1e-12,
    ),
    RightValue(
        "timings of two passes over 98 frames, two threads",
        "",
        "98 frames on at most 2 workers",
        "the file has 98 frames",
        _frames_of_two_passes,
    ),
    RightValue(
        "option before the command",
        "",
        "--step=10 stands before the command",
        "it would be lost, and all frames read",
        lambda _: _answer("--step=10", "rmsd", GRO, XTC),
    ),
    RightValue(
        "URL in the place of a file",
        "",
        "ftp://host/md.xtc: expected a file of this machine, found a URL",
        "no file of that path was named",
        lambda _: _answer("info", "ftp://host/md.xtc"),
    ),
]
