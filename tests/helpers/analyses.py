"""Every native analysis with typical atoms and parameters, for tests of all analyses."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import paceline
from helpers.toy_analysis import ToyExtent
from paceline.analysis.align import AverageStructure
from paceline.analysis.buried_area import BuriedArea
from paceline.analysis.clustering import Clustering
from paceline.analysis.contacts import ContactMap, Contacts
from paceline.analysis.dccm import CrossCorrelation
from paceline.analysis.density import DensityAnalysis
from paceline.analysis.dielectric import DipoleAutocorrelation
from paceline.analysis.diffusionmap import DistanceMatrix
from paceline.analysis.dihedrals import ChiAngles, Dihedral, Janin, Ramachandran
from paceline.analysis.distances import (
    Angles,
    AtomicDistances,
    CenterDistance,
    DistanceMap,
    DistanceMatrixSeries,
    MinimumDistance,
)
from paceline.analysis.dssp import DSSP
from paceline.analysis.groups import SelectedAtoms
from paceline.analysis.gyration import Gyration
from paceline.analysis.hydrogenbonds import HydrogenBondAnalysis
from paceline.analysis.leaflet import LeafletSeries
from paceline.analysis.msd import EinsteinMSD
from paceline.analysis.neighbors import CoordinationNumbers, NeighborList
from paceline.analysis.order import SCH, OrderParameter
from paceline.analysis.pca import PCA
from paceline.analysis.persistence_length import PersistenceLength
from paceline.analysis.polymer import Polymer
from paceline.analysis.rdf import InterRDF, InterRDF_s
from paceline.analysis.rms import RMSD, RMSF
from paceline.analysis.rotamers import Rotamers
from paceline.analysis.sasa import SASA
from paceline.analysis.water_bridges import WaterBridges
from paceline.analysis.waterdynamics import SurvivalProbability


class Case(NamedTuple):
    """How to create an analysis of a Universe, the arrays of its results, and its frames."""

    make: Callable[[Any], Any]
    results: Callable[[Any], list[np.ndarray]]
    #: True if frames must be at equal distances in time.
    equidistant: bool = False
    #: True if frames must be in increasing order.
    in_order: bool = False


def mean_distance(r, r0):
    """Return the mean distance of contacts, Å."""
    return r.mean()


def heights(block):
    """Return the heights of every tenth atom, Å."""
    return block.positions[:, ::10, 2]


def speeds(block):
    """Return the speeds of every tenth atom from differences of neighbouring frames, Å/ps."""
    rows = np.arange(len(block))
    before, after = np.maximum(rows - 2, 0), np.minimum(rows + 1, len(block) - 1)
    moved = block.positions[after, ::10] - block.positions[before, ::10]
    return np.linalg.norm(moved, axis=2) / (block.times[after] - block.times[before])[:, None]


def rmsd_and_gyration(universe):
    """Return two analyses of Cα atoms whose series are combined: RMSD and radius of gyration."""
    return RMSD(universe, select="name CA"), Gyration(universe.select_atoms("name CA"))


#: Analyses of adenylate kinase; groups overlap, and atoms are in random order.
ANALYSES = {
    "AverageStructure": Case(
        lambda u: AverageStructure(u, select="backbone", weights="mass", ref_frame=5),
        lambda results: [results.positions, results.rmsd, results.universe.atoms.positions],
    ),
    "ChiAngles": Case(lambda u: ChiAngles(u.residues[90:10:-7]), lambda results: [results.angles]),
    **{
        f"Clustering, {method}": Case(
            lambda u, method=method, given=given: Clustering(
                u, "name CA", method, weights="mass", **given
            ),
            lambda results: [
                *(results.labels, results.sizes, results.centers),
                results.universe.trajectory.get_array(),
            ],
        )
        for method, given in {
            "gromos": {"cutoff": 1.8},
            "leader": {"cutoff": 1.8},
            "k-medoids": {"n_clusters": 5},
        }.items()
    },
    "ContactMap": Case(
        lambda u: ContactMap(u.select_atoms("resid 30-70"), 4.0),
        lambda results: [results.counts, results.frequencies],
    ),
    "Contacts": Case(
        lambda u: Contacts(
            u, ("name CA", "name CB"), (u.select_atoms("name CA"), u.select_atoms("name CB"))
        ),
        lambda results: [results.timeseries],
    ),
    "Contacts by a function": Case(
        lambda u: Contacts(
            u,
            ("name OE*", "name NZ"),
            [(u.select_atoms("name OE*"), u.select_atoms("name NZ"))] * 2,
            method=mean_distance,
            radius=9,
        ),
        lambda results: [results.timeseries],
    ),
    "Dihedral": Case(
        lambda u: Dihedral([u.atoms[[9, 5, 7, 2]], u.atoms[[700, 2, 5, 9]], u.atoms[:4]]),
        lambda results: [results.angles],
    ),
    "Angles": Case(
        lambda u: Angles(u.atoms[50:10:-1], u.atoms[90:130], u.atoms[100:140]),
        lambda results: [results.angles],
    ),
    "AtomicDistances": Case(
        lambda u: AtomicDistances(u.select_atoms("name CA")[::-1], u.select_atoms("name CA")),
        lambda results: [results.distances],
    ),
    "CenterDistance": Case(
        lambda u: CenterDistance(u.select_atoms("resid 122-159"), u.atoms[700::-3]),
        lambda results: [results.distances],
    ),
    "CoordinationNumbers": Case(
        lambda u: CoordinationNumbers(u.select_atoms("resid 60-90")[::-1], cutoff=3.5),
        lambda results: [results.coordination, results.mean],
    ),
    "DistanceMatrix": Case(
        lambda u: DistanceMatrix(u, "name CA", weights="mass", superposition=True),
        lambda results: [results.dist_matrix],
    ),
    "DistanceMap": Case(
        lambda u: DistanceMap(u.select_atoms("name CA and resid 1-40")[::-1], u.atoms[:20]),
        lambda results: [results.mean, results.deviation],
    ),
    "DistanceMatrixSeries": Case(
        lambda u: DistanceMatrixSeries(u.select_atoms("name CA")[::-1], u.atoms[:20]),
        lambda results: [results.distances],
    ),
    "MinimumDistance": Case(
        lambda u: MinimumDistance(u.select_atoms("resid 122-159"), u.atoms[200::-1]),
        lambda results: [results.distances, results.pairs],
    ),
    "NeighborList": Case(
        lambda u: NeighborList(u.select_atoms("resid 60-90")[::-1], u.atoms[900:1400], 3.5),
        lambda results: [results.pairs, results.counts, results.offsets],
    ),
    "Gyration": Case(
        lambda u: Gyration(u.select_atoms("protein")[::-1], compound="residues"),
        lambda results: [results.rg, results.rg_components, results.shape_parameter],
    ),
    "Gyration of a group that changes": Case(
        lambda u: Gyration(u.select_atoms("around 5 resid 30", updating=True)),
        lambda results: [results.rg, results.gyration_moments, results.counts],
    ),
    "Correlation": Case(
        lambda u: paceline.Correlation(heights, u.select_atoms("name CB")),
        lambda results: [results.timeseries, results.by_series],
        equidistant=True,
    ),
    "DSSP": Case(
        lambda u: DSSP(u.select_atoms("resid 20-150")),
        lambda results: [results.dssp, results.dssp_ndarray],
    ),
    "DSSP, 9 letters": Case(
        lambda u: DSSP(u.select_atoms("resid 20-150"), variant="dssp4"),
        lambda results: [results.dssp, results.dssp_ndarray],
    ),
    "DensityAnalysis": Case(
        lambda u: DensityAnalysis(u.select_atoms("name CA")[::-1] + u.atoms[:700], delta=2.0),
        lambda results: [results.counts, results.density.grid],
    ),
    "DensityAnalysis of a group that changes": Case(
        lambda u: DensityAnalysis(u.select_atoms("prop z > 12", updating=True), delta=2.0),
        lambda results: [results.counts, results.density.grid],
    ),
    "DipoleAutocorrelation": Case(
        lambda u: DipoleAutocorrelation(u.select_atoms("resid 3-12")[::-1], make_whole=False),
        lambda results: [results.timeseries, results.by_axis, results.integral],
        equidistant=True,
    ),
    "EinsteinMSD": Case(
        lambda u: EinsteinMSD(u, "resid 20-60", "xz", compound="residues"),
        lambda results: [results.timeseries, results.msds_by_particle, results.delta_t_values],
        equidistant=True,
    ),
    "HydrogenBondAnalysis": Case(
        lambda u: HydrogenBondAnalysis(u, between=["resid 1-90", "resid 40-214"], d_a_cutoff=3.5),
        lambda results: [results.hbonds, results.counts, results.offsets],
    ),
    "InterRDF": Case(
        lambda u: InterRDF(u.select_atoms("name CA")[::-1], u.atoms[:700], norm="none"),
        lambda results: [results.count, results.rdf],
    ),
    "InterRDF of a group that changes": Case(
        lambda u: InterRDF(
            *(u.select_atoms("name CA")[::-1], u.select_atoms("around 6 resid 30", updating=True)),
            norm="density",
            exclude_same="residue",
        ),
        lambda results: [results.count, results.rdf],
    ),
    "InterRDF with intervals": Case(
        lambda u: InterRDF(
            *(u.select_atoms("name CA")[::-1], u.atoms[:700]), norm="none", errors=True
        ),
        lambda results: [results.rdf, results.rdf_interval, results.cdf_interval],
    ),
    "InterRDF of centers": Case(
        lambda u: InterRDF(
            *(u.select_atoms("resid 60-90"), u.atoms[2500::-1]),
            norm="density",
            compound=("residues", None),
            center="geometry",
        ),
        lambda results: [results.count, results.rdf],
    ),
    "InterRDF_s": Case(
        lambda u: InterRDF_s(
            u,
            [
                (u.select_atoms("name CA and resid 1-30")[::-1], u.atoms[:70]),
                (u.atoms[:70], u.select_atoms("resid 90")),
            ],
            norm="none",
            exclude_same="residue",
        ),
        lambda results: [*results.count, *results.rdf],
    ),
    "Janin": Case(
        lambda u: Janin(u.select_atoms("resname LYS ARG")), lambda results: [results.angles]
    ),
    "LeafletSeries": Case(
        lambda u: LeafletSeries(u, u.select_atoms("name CA and resid 1-120")[::-1], 5.0),
        lambda results: [
            *(results.components, results.sizes, results.leaflets, results.flip_flops),
        ],
    ),
    "OrderParameter": Case(
        lambda u: OrderParameter(
            *(u.select_atoms("name N")[::-1], u.select_atoms("name C")[::-1], (1, 2, -3)),
        ),
        lambda results: [results.timeseries, results.mean, results.error],
    ),
    "CrossCorrelation": Case(
        lambda u: CrossCorrelation(u.select_atoms("name CA and resid 1-40")),
        lambda results: [results.correlation, results.fluctuation],
    ),
    "PCA": Case(
        lambda u: PCA(u, "name CA and resid 1-40", align=True, n_components=5, n_projected=2),
        lambda results: [
            *(results.p_components, results.variance),
            *(results.cumulated_variance, results.projection),
        ],
    ),
    "Polymer": Case(
        lambda u: Polymer(u.select_atoms("protein and backbone and not name O")),
        lambda results: [results.end_to_end, results.end_to_end_vectors, results.rg],
    ),
    "PersistenceLength": Case(
        lambda u: PersistenceLength([u.select_atoms("name CA")[k : k + 15] for k in (40, 5, 90)]),
        lambda results: [
            *(results.bond_autocorrelation, results.internal_distances, results.fit),
            results.internal_distances_interval,
        ],
    ),
    "PersistenceLength of many chains": Case(
        lambda u: PersistenceLength(u.select_atoms("backbone and resid 3-50"), chains="residues"),
        lambda results: [results.bond_autocorrelation, results.bond_autocorrelation_interval],
    ),
    "Rotamers": Case(
        lambda u: Rotamers(u.residues[90:10:-7], max_chi=3),
        lambda results: [
            *(results.angles, results.populations, results.intervals),
            *(results.transitions, results.histogram),
        ],
    ),
    "RMSD": Case(
        lambda u: RMSD(u, select="backbone", groupselections=["resid 1-29"], weights="mass"),
        lambda results: [results.rmsd],
    ),
    "RMSF about the average": Case(
        lambda u: RMSF(u.select_atoms("name CA")[::-1] + u.atoms[:7], align="backbone"),
        lambda results: [results.rmsf, results.residue_rmsf],
    ),
    "RMSF with intervals": Case(
        lambda u: RMSF(u.select_atoms("name CA")[::-1], align="backbone", errors=True),
        lambda results: [results.rmsf, results.rmsf_interval, results.residue_rmsf_interval],
    ),
    "RMSF": Case(
        lambda u: RMSF(u.select_atoms("name CA")[::-1] + u.atoms[:7]),
        lambda results: [results.rmsf],
    ),
    "Ramachandran": Case(
        lambda u: Ramachandran(u.select_atoms("resid 2-99")), lambda results: [results.angles]
    ),
    "SelectedAtoms": Case(
        lambda u: SelectedAtoms(
            u.select_atoms("same residue as around 5 resid 30", "prop z > 12", updating=True)
        ),
        lambda results: [results.atoms, results.counts, results.offsets],
    ),
    "SurvivalProbability": Case(
        lambda u: SurvivalProbability(
            u, "name CA and around 9 resid 30", tau_max=6, window_step=3, intermittency=2
        ),
        lambda results: [results.sp_timeseries, results.sp_timeseries_data],
        equidistant=True,
    ),
    "TimeSeries with a halo": Case(
        lambda u: paceline.TimeSeries(speeds, u.select_atoms("name CB"), halo=(2, 1)),
        lambda results: [results.timeseries],
        in_order=True,
    ),
    "SCH": Case(
        lambda u: SCH(u.select_atoms("resname LYS LEU")[::-1], "x"),
        lambda results: [results.timeseries, results.mean],
    ),
    "ToyExtent": Case(
        lambda u: ToyExtent(u.select_atoms("name CA")[::-1], axis="x", least=30),
        lambda results: [results.extent],
    ),
    "BuriedArea": Case(
        lambda u: BuriedArea(
            u.select_atoms("resid 30-59")[::-1], u.select_atoms("resid 60-80"), n_points=60
        ),
        lambda results: [results.buried, results.areas, results.buried_of_residues],
    ),
    "WaterBridges": Case(
        lambda u: WaterBridges(
            u.select_atoms("resid 1-130 and not resname ARG LYS")[::-1],
            u.select_atoms("resid 100-214 and not resname ARG LYS"),
            water="resname ARG LYS",
            d_a_cutoff=3.7,
        ),
        lambda results: [results.bridges, results.counts, results.offsets],
    ),
    "SASA": Case(
        lambda u: SASA(
            u.select_atoms("resid 30-60")[::-1],
            surface=u.select_atoms("resid 1-80"),
            n_points=60,
            compound="residues",
        ),
        lambda results: [results.sasa, results.total],
    ),
}
