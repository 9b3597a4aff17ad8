"""Under paceline.mpi: every schedule and every collection gives the same bits as one thread."""

import itertools
import sys
from pathlib import Path

import numpy as np
from helpers.scans import PathLength
from helpers.stages import Spread

import paceline
from paceline.analysis.diffusionmap import DistanceMatrix
from paceline.analysis.groups import SelectedAtoms
from paceline.analysis.msd import EinsteinMSD
from paceline.analysis.rdf import InterRDF
from paceline.analysis.rms import RMSD, RMSF
from paceline.backends import MPI
from paceline.transform import nojump

universe = paceline.Universe(*sys.argv[1:3])
folder = Path(sys.argv[3])
oxygens = paceline.Universe(*sys.argv[4:6]).select_atoms("name OW")
ca = universe.select_atoms("name CA")
HARD = {"on_error": "skip", "frames": [*range(97, 0, -2), *range(0, 98, 2), 5, 5, -1]}


def gyration(block):
    return np.column_stack([block.positions.astype(float).std(axis=(1, 2)), block.dimensions])


def far(block):
    """Return atoms far from the middle; some frames have none."""
    rows, atoms = np.nonzero(np.linalg.norm(block.positions, axis=2) > 33)
    return np.bincount(rows, minlength=len(block)), block.positions[rows, atoms]


def numbers(where, **options):
    analyses = [
        RMSD(universe, select="backbone", weights="mass"),
        RMSF(ca[::-1] + universe.atoms[:7]),
        paceline.TimeSeries(gyration, universe.atoms[::3]),
        paceline.TimeSeries(lambda block: np.empty((len(block), 0)), ca),
        paceline.TimeSeries(lambda block: np.full(len(block), "2026-01-01", "M8[D]"), ca),
        RMSF(universe.atoms),
        InterRDF(ca[::-1], universe.atoms[:700], norm="none"),
        Spread(ca),
        paceline.RaggedTimeSeries(far, universe.atoms[::3]),
        paceline.RaggedTimeSeries(lambda block: (np.zeros(len(block), int), np.empty((0, 2))), ca),
        DistanceMatrix(ca, superposition=True),
    ]
    rmsd, rmsf, series, nothing, dates, all_rmsf, rdf, spread, ragged, none, matrix = paceline.run(
        analyses, backend=where, **HARD, **options
    )
    return [
        *(rmsd.results.rmsd, rmsf.results.rmsf, series.results.timeseries, series.times),
        *(nothing.results.timeseries, dates.results.timeseries, all_rmsf.results.rmsf),
        *(rdf.results.count, rdf.results.rdf, spread.results.spread),
        *(ragged.results.records, ragged.results.offsets, ragged.results.counts),
        *(none.results.records, none.results.offsets),
        np.array([frame for frame, _ in rmsd.damaged]),
        matrix.results.dist_matrix,
    ]


def moved(block):
    """Return displacements over two frames, or since the first frame."""
    before = np.maximum(np.arange(len(block)) - 2, 0)
    return block.positions - block.positions[before]


def followed(where, **options):
    """Return positions after two passes, in which ranks continue from each other's results, and
    displacements.
    """
    found = []
    for one in (
        paceline.TimeSeries(lambda block: block.positions, oxygens),
        paceline.TimeSeries(moved, oxygens, halo=(2, 1)),
    ):
        one.run(backend=where, transforms=[nojump()], start=1, block_frames=2, **options)
        found.append(one.results.timeseries.tobytes())
    return found


def correlated(where, **options):
    """Return displacements of parts of the atoms, updating groups, and path lengths."""
    msd = EinsteinMSD(oxygens[:500], unwrap="tor")
    high = oxygens.select_atoms("prop z > 20", updating=True)
    found = []
    for one in (msd, SelectedAtoms(high)):
        results = one.run(backend=where, block_frames=2, **options).results
        names = ("timeseries", "msds_by_particle") if one is msd else ("atoms", "offsets")
        found += [np.ascontiguousarray(results[name]).tobytes() for name in names]
    way = PathLength(oxygens[:500]).run(backend=where, block_frames=2, **options)
    return [*found, way.results.lengths.tobytes()]


def written(where, name):
    path = folder / name
    paceline.run([paceline.Write(ca, path), RMSF(ca)], backend=where, on_error="skip")
    return path.read_bytes()


def written_as_h5md(where, name):
    """Write in place, and in chunks that are sent to the first rank."""
    sound, files = ca[:100], []
    for compress in ("none", "gzip:1"):
        path = folder / f"{name}-{compress[:4]}.h5md"
        write = paceline.Write(sound, path, chunk="8x30", compress=compress)
        write.run(backend=where, frames=[*range(4, 16), *range(32, 50)])
        files.append(path.read_bytes())
    return files


wanted, wanted_bytes = numbers("serial"), written("serial", "serial.xtc")
wanted_h5md = written_as_h5md("serial", "serial")
wanted_followed, wanted_correlated = followed("serial"), correlated("serial")
ways = list(itertools.product(("dynamic", "static"), ("gather", "one-sided"), (1, 2)))
if sys.argv[6] == "pairs":
    ways = [ways[k] for k in (0, 3, 5, 6)]
for schedule, collect, n_workers in ways:
    where = MPI(schedule=schedule, collect=collect, n_workers=n_workers)
    for block_frames in (1, 64):
        for found, one in zip(numbers(where, block_frames=block_frames), wanted, strict=True):
            assert found.dtype == one.dtype
            assert found.shape == one.shape
            assert found.tobytes() == one.tobytes()
    options = {"checkpoint": folder / "checkpoint"} if n_workers == 2 else {}
    assert followed(where, **options) == wanted_followed
    assert correlated(where, **options) == wanted_correlated
    kept = numbers(where, checkpoint=folder / "checkpoint")
    assert [one.tobytes() for one in kept] == [one.tobytes() for one in wanted]
    assert written(where, f"{schedule}-{collect}-{n_workers}.xtc") == wanted_bytes
    assert written_as_h5md(where, f"{schedule}-{collect}-{n_workers}") == wanted_h5md
print("same bits")
