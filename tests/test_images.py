"""Tests that distances to unintended nearest images warn."""

import re
import warnings

import MDAnalysis
import numpy as np
import pytest
from MDAnalysis.lib.mdamath import triclinic_vectors
from MDAnalysisTests import datafiles

import paceline
from paceline import _core
from paceline.analysis.distances import (
    AtomicDistances,
    CenterDistance,
    DistanceMap,
    DistanceMatrixSeries,
)
from paceline.analysis.kernels import least_width
from paceline.analysis.neighbors import CoordinationNumbers, NeighborList
from paceline.analysis.rdf import InterRDF, InterRDF_s
from paceline.block import PERIODIC
from paceline.cli import main
from paceline.errors import PacelineWarning


@pytest.fixture
def crystal(tmp_path):
    """A cubic cell of copper with four atoms. Each has twelve neighbours at 2.55 Å."""
    made = MDAnalysis.Universe.empty(4, trajectory=True)
    edge = 3.61
    made.atoms.positions = np.array([[0, 0, 0], [1, 1, 0], [1, 0, 1], [0, 1, 1]]) * edge / 2
    made.dimensions = [edge, edge, edge, 90, 90, 90]
    path = tmp_path / "cu.dcd"
    with MDAnalysis.Writer(str(path), 4) as writer:
        for _ in range(3):
            writer.write(made.atoms)
    return paceline.Universe(made._topology, path)


@pytest.fixture
def chain(tmp_path):
    """Atoms of a straight protein of 12 residues, 3.8 Å apart, wrapped in a cell of 30 Å."""
    made = MDAnalysis.Universe.empty(
        12, 12, atom_resindex=np.arange(12), residue_segindex=[0] * 12, trajectory=True
    )
    made.add_TopologyAttr("names", ["CA"] * 12)
    made.add_TopologyAttr("resnames", ["ALA"] * 12)
    made.add_TopologyAttr("resids", range(1, 13))
    made.atoms.positions = np.outer(3.8 * np.arange(12), [1, 0, 0]) % 30 + [0, 5, 5]
    made.dimensions = [30, 30, 30, 90, 90, 90]
    path = tmp_path / "chain.dcd"
    with MDAnalysis.Writer(str(path), 12) as writer:
        writer.write(made.atoms)
    return paceline.Universe(made._topology, path)


@pytest.mark.parametrize(
    "make",
    [
        lambda u: CoordinationNumbers(u.atoms, cutoff=2.6),
        lambda u: NeighborList(u.atoms, cutoff=2.6),
        lambda u: InterRDF(u.atoms, u.atoms, nbins=30, range=(0, 3)),
        lambda u: InterRDF(u.atoms, u.atoms[:2], nbins=30, range=(0, 3), norm="none"),
        lambda u: InterRDF_s(u, [(u.atoms[:1], u.atoms)], nbins=30, range=(0, 3)),
    ],
)
def test_pairs_beyond_half_the_cell_warn(make, crystal):
    with pytest.warns(PacelineWarning, match=r"half the smallest height of the cell, 1\.805 Å"):
        found = make(crystal).run()
    assert "1.805" in found.results.provenance["warnings"]


def test_neighbours_in_a_small_cell_are_too_few(crystal):
    with pytest.warns(PacelineWarning, match="pairs at larger distances are missing"):
        found = CoordinationNumbers(crystal.atoms, cutoff=2.6).run()
    assert found.results.coordination.tolist() == [[3] * 4] * 3  # of twelve images
    with warnings.catch_warnings():
        warnings.simplefilter("error", PacelineWarning)
        again = CoordinationNumbers(crystal.atoms, cutoff=2.6, pbc=False).run()
        CoordinationNumbers(crystal.atoms, cutoff=1.8).run()
    assert "warnings" not in again.results.provenance


def test_the_smallest_cell_of_all_frames_counts(tmp_path):
    made = MDAnalysis.Universe.empty(2, trajectory=True)
    made.atoms.positions = [[1, 1, 1], [3, 1, 1]]
    path = tmp_path / "breathes.trr"
    with MDAnalysis.Writer(str(path), 2) as writer:
        for edge in (40, 22, 40, 40, 40):
            made.dimensions = [edge, 40, 40, 90, 90, 90]
            writer.write(made.atoms)
    universe = paceline.Universe(made._topology, path)
    groups = universe.atoms[:1], universe.atoms[1:]
    changing = universe.select_atoms("prop x < 20", updating=True)
    for first in (groups[0], changing):
        with pytest.warns(PacelineWarning, match="the cell, 11 Å"):
            InterRDF(first, groups[1], range=(0, 15)).run()
    found = InterRDF(*groups, range=(0, 15)).run(frames=[0, 2, 3])
    assert "warnings" not in found.results.provenance


def test_heights_of_triclinic_cells():
    cells = np.array([[30, 40, 50, 60, 70, 80], [30, 40, 50, 90, 90, 90], [0] * 6], np.float32)
    a, b, c = triclinic_vectors(cells[0]).astype(float)
    pairs = (a, b, c), (b, c, a), (c, a, b)
    heights = [abs(one @ np.cross(u, v)) / np.linalg.norm(np.cross(u, v)) for one, u, v in pairs]
    found = _core.cells_of_dimensions(cells)
    assert least_width(found[:1]) == pytest.approx(min(heights), rel=1e-6)
    assert least_width(found[1:]) == pytest.approx(30)
    assert least_width(found[2:]) == np.inf
    # Along an axis without images, no neighbour is missing.
    for flags, width in ((0b110, 40), (0b100, 50), (0b001, 30), (0b000, np.inf)):
        found[1, PERIODIC] = flags
        assert least_width(found[1:2]) == pytest.approx(width)


@pytest.mark.parametrize("bonds", [True, False])
def test_distances_within_a_molecule_longer_than_half_the_cell(bonds, chain):
    if bonds:
        chain.add_TopologyAttr("bonds", [(k, k + 1) for k in range(11)])
    ends = chain.atoms[:1], chain.atoms[-1:]
    for analysis in (
        DistanceMap(chain.atoms),
        DistanceMap(*ends),
        DistanceMatrixSeries(chain.atoms),
        AtomicDistances(*ends),
        CenterDistance(chain.atoms[:3], chain.atoms[-3:], weights=None),
    ):
        text = r"in frame 0: \d+\.\d Å within the molecule, but \d+\.\d Å to the image"
        with pytest.warns(PacelineWarning, match=text):
            analysis.run()
    # The warning about the split molecule also contains numbers.
    within, to_image = re.findall(r"(\d+\.\d) Å", analysis.results.provenance["warnings"])[-2:]
    assert (float(within), float(to_image)) == pytest.approx((34.2, 4.2))


def test_distances_that_are_right_are_silent(chain):
    water = paceline.Universe(datafiles.TPR, datafiles.XTC)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PacelineWarning)
        DistanceMap(chain.atoms[:4]).run()
        DistanceMap(chain.atoms, pbc=False).run()
        AtomicDistances(chain.atoms[:3], chain.atoms[3:6]).run()
        # Separate molecules may be in any image.
        DistanceMap(water.select_atoms("name OW")[::400]).run(stop=2)
        DistanceMap(paceline.Universe(datafiles.GRO).select_atoms("name OW")[::400]).run()


def test_bins_of_the_command_are_a_tenth_of_an_angstrom(capsys):
    files = ["-s", datafiles.GRO, "-f", datafiles.XTC, "--end", "1"]
    for given, n_bins in (([], 150), (["--range", "2", "9"], 70), (["--nbins", "10"], 10)):
        assert main(["rdf", *files, "--select", "name NZ", *given]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len([line for line in lines if line[:1].isdigit()]) == n_bins
