"""Tests of frames that several threads compute: same bits for any number of threads."""

import warnings
from collections.abc import Mapping
from itertools import chain

import numpy as np
import pytest
from MDAnalysisTests.datafiles import DCD, GRO, PSF, TPR, XTC

import paceline
from paceline.analysis.contacts import ContactMap, Contacts
from paceline.analysis.density import DensityAnalysis
from paceline.analysis.groups import SelectedAtoms
from paceline.analysis.hydrogenbonds import HydrogenBondAnalysis
from paceline.analysis.lineardensity import LinearDensity
from paceline.analysis.neighbors import CoordinationNumbers, NeighborList
from paceline.analysis.rdf import InterRDF, InterRDF_s
from paceline.analysis.sasa import SASA
from paceline.errors import AnalysisError
from paceline.timing import Timings

N_THREADS = (2, 3, 5)


@pytest.fixture(scope="module")
def water():
    """Protein in water, 47,681 atoms in a triclinic cell."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return paceline.Universe(TPR, XTC)


def _bonds(u):
    return HydrogenBondAnalysis(
        u, donors_sel="name OW", hydrogens_sel="name HW1 HW2", acceptors_sel="name OW or protein"
    )


def _updating(u, selection):
    return SelectedAtoms(u.select_atoms(selection, updating=True))


ANALYSES = {
    "rdf": lambda u: InterRDF(*2 * (u.select_atoms("name OW"),), range=(0, 9)),
    "rdf of two groups": lambda u: InterRDF(
        u.select_atoms("name OW"), u.select_atoms("name HW1"), exclude_same="residue"
    ),
    "rdf beyond half of the cell": lambda u: InterRDF(
        u.select_atoms("protein"), u.select_atoms("name CA"), range=(0, 45)
    ),
    "rdf of sites": lambda u: InterRDF_s(
        u, [[u.select_atoms("resname ARG and name CZ"), u.select_atoms("name OW")]], nbins=5
    ),
    "neighbours of one group": lambda u: NeighborList(u.select_atoms("name OW"), cutoff=3.5),
    "neighbours of fewer": lambda u: NeighborList(
        u.select_atoms("protein"), u.select_atoms("name OW HW1"), 4.0, exclude_same="residue"
    ),
    "neighbours of more": lambda u: NeighborList(
        u.select_atoms("not protein"), u.select_atoms("protein"), 4.0, pbc=False
    ),
    "coordination": lambda u: CoordinationNumbers(*2 * (u.select_atoms("name OW"),), 3.5),
    "hydrogen bonds": _bonds,
    "contacts": lambda u: Contacts(
        u,
        *2 * [(u.select_atoms("name CA"), u.select_atoms("protein"))],
        method="soft_cut",
        radius=12.0,
    ),
    "map of contacts": lambda u: ContactMap(u.select_atoms("protein")),
    "sasa": lambda u: SASA(u.select_atoms("protein"), n_points=100, compound="atoms"),
    "density": lambda u: DensityAnalysis(
        u.select_atoms("name OW and around 8 protein", updating=True), delta=2.0
    ),
    "density along axes": lambda u: LinearDensity(u.select_atoms("not protein"), binsize=0.5),
    "shell": lambda u: _updating(u, "name OW and around 3.5 protein"),
    "layer": lambda u: _updating(u, "protein and around 3 resname SOL"),
    "sphere": lambda u: _updating(u, "name OW and sphlayer 3 20 resid 30"),
}


def bits(results):
    """Types, shapes and bytes of all arrays of results."""
    if isinstance(results, np.ndarray):
        return [(results.dtype, results.shape, results.tobytes())]
    if isinstance(results, Mapping):
        results = list(results.values())
    return [*chain.from_iterable(map(bits, results))] if isinstance(results, list) else []


@pytest.mark.filterwarnings("ignore::paceline.errors.PacelineWarning")
@pytest.mark.parametrize("name", ANALYSES)
def test_a_frame_has_the_same_bits_for_any_number_of_threads(name, water):
    serial = ANALYSES[name](water).run(stop=1, backend="serial")
    assert [block.threads for block in serial.timings.blocks] == [1]
    for n_threads in N_THREADS:
        split = ANALYSES[name](water).run(stop=1, n_workers=n_threads)
        assert bits(split.results) == bits(serial.results) != []
        # If there are fewer parts than threads, fewer threads are used.
        assert 2 <= split.timings.blocks[0].threads <= n_threads


@pytest.mark.parametrize(
    ("n_workers", "threads"), [(2, [1, 1, 1, 1, 1, 1, 2]), (4, [1, 1, 1, 1, 2, 1, 1])]
)
def test_only_the_last_blocks_share_idle_workers(n_workers, threads):
    protein = paceline.Universe(PSF, DCD).atoms
    timings = NeighborList(protein, cutoff=3.0).run(n_workers=n_workers, block_frames=16).timings
    blocks = sorted(timings.blocks, key=lambda block: block.block)
    assert [block.threads for block in blocks] == threads


def test_processes_split_a_frame(water):
    serial = InterRDF(*2 * (water.select_atoms("name OW"),)).run(stop=1, backend="serial")
    split = InterRDF(*2 * (water.select_atoms("name OW"),))
    split.run(stop=1, backend="processes", n_workers=2)
    assert split.timings.blocks[0].threads == 2
    assert bits(split.results) == bits(serial.results)


def test_a_frame_that_mdanalysis_reads_is_split():
    u = paceline.Universe(GRO)
    oxygens = u.select_atoms("name OW")
    assert InterRDF(oxygens, oxygens).run(n_workers=2).timings.blocks[0].threads == 2


def test_the_report_names_the_threads(water, tmp_path):
    oxygens = water.select_atoms("name OW")
    timings = InterRDF(oxygens, oxygens).run(stop=1, n_workers=2).timings
    assert str(timings).splitlines()[-1].startswith("threads: 1 frame on 2 threads in ")
    timings.to_csv(tmp_path / "timings.csv")
    assert Timings.from_csv(tmp_path / "timings.csv") == timings
    lines = (tmp_path / "timings.csv").read_text().splitlines()
    rows = [line.split(",") for line in lines if not line.startswith("#")]
    table = [",".join(row[: rows[0].index("threads")]) for row in rows]
    earlier = tmp_path / "earlier.csv"
    earlier.write_text("\n".join([line for line in lines if line.startswith("#")] + table) + "\n")
    assert [block.threads for block in Timings.from_csv(earlier).blocks] == [1]


@pytest.mark.parametrize("n_threads", [1, 3])
def test_an_error_is_the_first_of_the_frame(n_threads):
    positions = np.random.default_rng(4).uniform(0, 60, (1, 20_000, 3)).astype("f4")
    positions[0, [7_000, 19_000], 1] = 1e30, -1e30
    u = paceline.Universe.empty(20_000, trajectory=True)
    u.load_new(positions, dimensions=[60, 60, 60, 70, 80, 90])
    with pytest.raises(AnalysisError, match=r"an atom at \[\S+ 1e30, \S+\] Å is too far away"):
        NeighborList(u.atoms, cutoff=3.0).run(n_workers=n_threads)
