"""Tests of commands for structures, for liquids and for membranes."""

import itertools
import shutil

import MDAnalysis
import numpy as np
import pandas as pd
import pytest
from gridData import Grid
from MDAnalysis.analysis import align, rms
from MDAnalysisTests.datafiles import (
    DCD_TRICLINIC,
    GRO,
    PSF_TRICLINIC,
    RNA_PDB,
    RNA_PSF,
    TPR,
    TRR,
    XTC,
    Martini_membrane_gro,
)

import paceline
from paceline._util.launcher import INTERRUPTED
from paceline.analysis.align import AlignTraj, AverageStructure
from paceline.analysis.clustering import Clustering
from paceline.analysis.contacts import Contacts
from paceline.analysis.correlation import CurrentAutocorrelation, VelocityAutocorrelation
from paceline.analysis.density import DensityAnalysis
from paceline.analysis.described_analyses import class_of
from paceline.analysis.dielectric import DielectricConstant, DipoleAutocorrelation
from paceline.analysis.diffusionmap import DiffusionMap
from paceline.analysis.dihedrals import Dihedral
from paceline.analysis.distances import (
    Angles,
    AtomicDistances,
    CenterDistance,
    DistanceMap,
    DistanceMatrixSeries,
    MinimumDistance,
)
from paceline.analysis.groups import SelectedAtoms
from paceline.analysis.leaflet import LeafletSeries
from paceline.analysis.lineardensity import LinearDensity
from paceline.analysis.neighbors import CoordinationNumbers, NeighborList
from paceline.analysis.order import SCH, OrderParameter
from paceline.analysis.results import Results
from paceline.analysis.waterdynamics import SurvivalProbability
from paceline.contract.read_catalogue import catalogue
from paceline.timing import Timings

#: Selections for which an analysis is fast.
FEW = {"hbonds": "protein", "sasa": "resid 1-3", "contact-map": "resid 1-9", "msd": "name CA"}


COMMANDS = [entry for entry in catalogue().values() if entry["has_command"]]
#: Commands with one selection, whose class takes only the selection and options.
SIMPLE = (
    *("gyration", "ramachandran", "chi", "dssp", "hbonds", "sasa", "pca", "contact-map"),
    *("rmsd-matrix", "rmsf"),
)


@pytest.mark.parametrize("name", SIMPLE)
def test_each_computes_what_its_class_does(name, adk_xtc, tmp_path, run):
    entry = catalogue()[name]
    select = FEW.get(name, entry["select"])
    table, figure = tmp_path / "table.tsv", tmp_path / "figure.svg"
    arguments = ["--select", select, "-o", table, "--plot", figure, "--end", 5]
    status, out, err = run(name, *adk_xtc, *arguments)
    assert (status, out, err) == (0, "", "")
    universe = paceline.Universe(*adk_xtc)
    options = {one["keyword"]: one["default"] for one in entry["options"]}
    if entry["fits"]:
        options["align"] = True
    if "correlation" in entry["further"]:
        del options["tau_max"]  # this option applies only to that table
    wanted = class_of(name)(universe.select_atoms(select), **options).run(stop=5)
    found = pd.read_csv(table, sep="\t", comment="#", float_precision="round_trip")
    pd.testing.assert_frame_equal(found, wanted.results.to_dataframe(), check_exact=True)
    assert f"# select: {select}\n" in table.read_text(encoding="utf-8")
    assert "<svg" in figure.read_text(encoding="utf-8")


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry["name"])
def test_each_explains_itself(entry, run):
    status, out, _ = run(entry["name"], "--help")
    assert status == 0
    assert all(f"paceline {entry['name']} {example}" in out for example in entry["examples"])


def test_options_reach_the_class(adk_xtc, tmp_path, run):
    path = tmp_path / "rg.npz"
    options = ["--compound", "residues", "--max-memory", "4GiB", "-o", path, "--end", 2]
    assert run("gyration", *adk_xtc, *options)[0] == 0
    assert np.load(path)["rg"].shape == (2, 214)


def groups_of(universe, *selections):
    return [universe.select_atoms(select) for select in selections]


#: Options for a run of four frames.
FIT = ["--fit-range", 1, 3]

#: Arguments of commands, and the analysis that they request.
ASKED = {
    "msd": (
        ["--select", "name CA", "--msd-type", "xy", "--compound", "residues", *FIT],
        lambda u, a: class_of("msd")(a, msd_type="xy", compound="residues", fit_range=(1, 3)),
    ),
    "contacts": (
        ["--select", "name CA", "--select-2", "name CB", "--radius", 6, "--method", "radius_cut"],
        lambda u, a, b: Contacts(u, (a, b), (a, b), "radius_cut", 6.0),
    ),
    "cluster": (
        ["--select", "name CA", "--cutoff", 0.5, "--mass"],
        lambda u, a: Clustering(a, cutoff=0.5, weights="mass"),
    ),
    "diffusionmap": (
        ["--select", "name CA", "--epsilon", 4, "--n-eigenvectors", 2, "--mass"],
        lambda u, a: DiffusionMap(a, 4, n_eigenvectors=2, superposition=True, weights="mass"),
    ),
    "distances": (
        ["--select", "resid 1-5 and name CA", "--select-2", "resid 11-15 and name CA", "--no-pbc"],
        lambda u, a, b: AtomicDistances(a, b, pbc=False),
    ),
    "distances --between centers": (
        ["--select", "resid 1-5", "--select-2", "resid 11-15", "--weights", "none"],
        lambda u, a, b: CenterDistance(a, b, weights=None),
    ),
    "distances --between minimum": (
        ["--select", "resid 1-5", "--select-2", "resid 11-15"],
        lambda u, a, b: MinimumDistance(a, b),
    ),
    "distance-map": (
        ["--select", "resid 1-5", "--select-2", "resid 11-15"],
        lambda u, a, b: DistanceMap(a, b),
    ),
    "angles": (
        [
            *("--select", "resid 1-9 and name N", "--select-2", "resid 1-9 and name CA"),
            *("--select-3", "resid 1-9 and name C"),
        ],
        lambda u, a, b, c: Angles(a, b, c),
    ),
    "dihedrals": (
        [
            *("--select", "resid 13 and name N", "--select-2", "resid 13 and name CA"),
            *("--select-3", "resid 13 and name CB", "--select-4", "resid 13 and name CG"),
        ],
        lambda u, *four: Dihedral([sum(four[1:], four[0])]),
    ),
    "density": (
        ["--select", "name CA", "--gridcenter", 0, 0, 0, "--size", 40, 30, 30, "--delta", 5],
        lambda u, a: DensityAnalysis(a, 5.0, gridcenter=[0, 0, 0], xdim=40, ydim=30, zdim=30),
    ),
    "average": (
        ["--select", "name CA", "--mass", "--ref", 3],
        lambda u, a: AverageStructure(u, select="name CA", weights="mass", ref_frame=3),
    ),
}


#: Commands whose classes have their own tests.
LONG = {"angles", "distance-map", "distances --between minimum"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.full] if name in LONG else []) for name in ASKED],
)
def test_selections_reach_the_class(name, adk_xtc, tmp_path, run):
    arguments, make = ASKED[name]
    command, *more = name.split()
    table, figure = tmp_path / "table.tsv", tmp_path / "figure.svg"
    options = [*more, *arguments, "-o", table, "--plot", figure, "--end", 4]
    assert run(command, *adk_xtc, *options) == (0, "", "")
    universe = paceline.Universe(*adk_xtc)
    selections = [
        text for option, text in itertools.pairwise(arguments) if f"{option}".startswith("--select")
    ]
    wanted = make(universe, *groups_of(universe, *selections)).run(stop=4).results
    found = pd.read_csv(table, sep="\t", comment="#", float_precision="round_trip")
    pd.testing.assert_frame_equal(found, wanted.to_dataframe(), check_exact=True)
    header = table.read_text(encoding="utf-8")
    for number, text in enumerate(selections, start=1):
        assert f"# select{f'-{number}' * (number > 1)}: {text}\n" in header
    assert "<svg" in figure.read_text(encoding="utf-8")


def test_the_selections_of_hydrogen_bonds_are_recorded(adk_xtc, tmp_path, run):
    between = ["--between", "resid 1-40", "resid 41-80"]
    for options, lines in (
        ([], ["select: protein"]),
        (between, ["between: 'resid 1-40' and 'resid 41-80'"]),
        (
            ["--select", "resid 1-80", *between],
            ["select: resid 1-80", "between: 'resid 1-40' and 'resid 41-80'"],
        ),
    ):
        table = tmp_path / "table.csv"
        assert run("hbonds", *adk_xtc, *options, "-o", table, "--overwrite", "--end", 1)[0] == 0
        header = table.read_text(encoding="utf-8").splitlines()
        assert [one for one in header if one.startswith(("# select:", "# between:"))] == [
            f"# {line}" for line in lines
        ]


def test_groups_of_different_sizes_have_no_pairs(adk_xtc, run):
    groups = ["--select", "resid 1", "--select-2", "resid 5-6"]
    status, _, err = run("distances", *adk_xtc, *groups)
    assert status == 2
    assert "(--select: 19, --select-2: 38): change one" in err
    assert "--between centers" in err


def test_all_pairs_are_arrays(adk_xtc, tmp_path, run):
    select = ["--select", "resid 1-2", "--select-2", "resid 5-6", "--between", "all", "--end", 2]
    status, _, err = run("distances", *adk_xtc, *select)
    assert (status, "save them with -o FILE.npz" in err) == (2, True)
    assert run("distances", *adk_xtc, *select, "-o", tmp_path / "all.npz") == (0, "", "")
    universe = paceline.Universe(*adk_xtc)
    wanted = DistanceMatrixSeries(*groups_of(universe, "resid 1-2", "resid 5-6")).run(stop=2)
    found = np.load(tmp_path / "all.npz")["distances"]
    np.testing.assert_array_equal(found, wanted.results.distances)


@pytest.mark.parametrize("ending", ["dx", pytest.param("mrc", marks=pytest.mark.full)])
def test_a_density_is_written_for_other_programs(ending, adk_xtc, tmp_path, run):
    path = tmp_path / f"grid.{ending}"
    given = ["--select", "name CA", "--delta", 4, "--end", 3, "-o", path]
    assert run("density", *adk_xtc, *given) == (0, "", "")
    universe = paceline.Universe(*adk_xtc)
    density = DensityAnalysis(universe.select_atoms("name CA"), 4.0).run(stop=3).results.density
    found = Grid(str(path))
    np.testing.assert_allclose(found.grid, density.grid, rtol=1e-6)
    np.testing.assert_allclose(found.delta, density.delta, rtol=1e-6)
    assert run("density", *adk_xtc, *given)[0] == 2  # the file exists
    assert "or .mrc" in run("density", *adk_xtc, *given[:-1], tmp_path / "grid.ccp5")[2]


def test_an_average_is_written_as_a_structure(adk_xtc, tmp_path, run):
    path = tmp_path / "average.pdb"
    assert run("average", *adk_xtc, "--select", "name CA", "-o", path) == (0, "", "")
    universe = paceline.Universe(*adk_xtc)
    wanted = AverageStructure(universe, select="name CA").run().results
    found = MDAnalysis.Universe(str(path)).atoms
    np.testing.assert_allclose(found.positions, wanted.positions, atol=1e-3)
    # The reference is the average of frames superposed on the first one, as in MDAnalysis.
    aligned = MDAnalysis.Universe(*adk_xtc)
    align.AlignTraj(aligned, aligned, select="name CA", in_memory=True).run()
    rmsf = rms.RMSF(aligned.select_atoms("name CA")).run().results.rmsf
    np.testing.assert_allclose(wanted.rmsf, rmsf, rtol=1e-3)


def test_centers_of_clusters_are_written_as_structures(adk_xtc, tmp_path, run):
    path, table = tmp_path / "medoids.pdb", tmp_path / "clusters.csv"
    options = ["--method", "k-medoids", "--n-clusters", 3, "--structures", path, "-o", table]
    assert run("cluster", *adk_xtc, *options) == (0, "", "")
    universe = paceline.Universe(*adk_xtc)
    ca = universe.select_atoms("protein and name CA")
    frames = Clustering(ca, method="k-medoids", n_clusters=3).run().results.center_frames
    written = MDAnalysis.Universe(str(path))
    for model, frame in zip(written.trajectory, universe.trajectory[frames], strict=True):
        np.testing.assert_allclose(model.positions, frame.positions[ca.indices], atol=1e-3)
    table.unlink()
    status, _, err = run("cluster", *adk_xtc, *options)
    assert (status, "medoids.pdb" in err, table.exists()) == (2, True, False)
    status, _, err = run("cluster", *adk_xtc, *options[:4], "--structures", tmp_path / "a.cif")
    assert (status, "must end in .pdb, .gro, .xyz" in err) == (2, True)
    status, _, err = run("cluster", *adk_xtc)
    assert (status, "gromos needs --cutoff" in err) == (2, True)


def test_a_diffusion_map_and_its_eigenvalues(adk_xtc, damaged, tmp_path, run):
    table, figure, path = (tmp_path / name for name in ("values.csv", "values.svg", "map.npz"))
    options = ["--select", "name CA", "--epsilon", 4, "--step", 8]
    assert run("diffusionmap", *adk_xtc, *options, "-o", path, "--eigenvalues", table)[0] == 0
    universe = paceline.Universe(*adk_xtc)
    wanted = DiffusionMap(universe, 4, select="name CA", superposition=True).run(step=8)
    for name in ("eigenvalues", "eigenvectors", "coordinates"):
        np.testing.assert_array_equal(np.load(path)[name], wanted.results[name])
    found = pd.read_csv(table, comment="#", float_precision="round_trip")
    np.testing.assert_array_equal(found["eigenvalue"], wanted.eigenvalues)
    assert run("diffusionmap", *adk_xtc, *options, "--eigenvalues", figure)[0] == 0
    assert "number of the eigenvalue" in figure.read_text(encoding="utf-8")
    status, _, err = run("diffusionmap", *adk_xtc, *options, "--n-eigenvectors", 13)
    assert (status, "--n-eigenvectors 13: expected a number from 1 to 12" in err) == (2, True)
    status, _, err = run("diffusionmap", *adk_xtc, "--epsilon", 0)
    assert (status, "epsilon must be above 0, in Å²" in err) == (2, True)
    status, _, err = run("diffusionmap", *damaged[0], "--on-error", "skip")
    assert (status, "leave out damaged frames" in err) == (2, True)
    assert "did you mean 'paceline diffusionmap'?" in run("diffusion-map")[2]


def test_diffusion_coefficients_and_velocities(adk_xtc, tmp_path, run):
    table = tmp_path / "msd.csv"
    options = ["--select", "name CA", "--fit-range", 5, "0.02ns", "--msd-type", "xy", "-o", table]
    assert run("msd", *adk_xtc, *options) == (0, "", "")
    msd = class_of("msd")(paceline.Universe(*adk_xtc), "name CA", "xy").run()
    wanted = msd.diffusion_coefficient(5, 20)
    text = table.read_text(encoding="utf-8")
    assert f"# diffusion coefficient: {wanted}, fit from 5 to 20 ps" in text
    status, _, err = run("msd", *adk_xtc, *options[:2], "--unwrap-particles", "tor")
    words = (
        "frame 0: it has no cell, which --unwrap-particles needs; --unwrap-particles none leaves"
    )
    assert (status, words in err) == (1, True)
    status, _, err = run("msd", *adk_xtc, *options[:2], "--fit-range", 300, 400)
    assert (status, "found 0 from 300 to 400 ps" in err) == (2, True)
    files = [shutil.copy(path, tmp_path) for path in (GRO, TRR)]
    path = tmp_path / "velocities.npz"
    spectrum = tmp_path / "spectrum.csv"
    given = ["--select", "protein", "-o", path, "--plot", tmp_path / "velocities.svg"]
    status, out, err = run("velocity-autocorrelation", *files, *given, "--spectrum", spectrum)
    assert (status, out, "frames are 100 ps apart" in err) == (0, "", True)
    protein = paceline.Universe(*files).select_atoms("protein")
    series = VelocityAutocorrelation(protein).run().results
    for name in ("timeseries", "spectrum", "integral"):
        np.testing.assert_array_equal(np.load(path)[name], series[name])
    table = pd.read_csv(spectrum, comment="#", float_precision="round_trip")
    assert [*table] == ["frequency (THz)", "spectrum (Å²/ps)"]
    np.testing.assert_array_equal(table.to_numpy().T, [series.frequencies, series.spectrum])


def test_dipoles_and_currents(tmp_path, run):
    water = [shutil.copy(path, tmp_path) for path in (PSF_TRICLINIC, DCD_TRICLINIC)]
    table, figure = tmp_path / "dipole.csv", tmp_path / "dipole.svg"
    given = ["-o", table, "--plot", figure]
    assert run("dipole-autocorrelation", *water, *given) == (0, "", "")
    wanted = DipoleAutocorrelation(paceline.Universe(*water).atoms).run().results
    found = pd.read_csv(table, comment="#", float_precision="round_trip")
    pd.testing.assert_frame_equal(found, wanted.to_dataframe(), check_exact=True)
    assert "# relaxation time: not reached" in table.read_text(encoding="utf-8")
    assert "dipole autocorrelation ((e Å)²)" in figure.read_text(encoding="utf-8")
    files = [shutil.copy(path, tmp_path) for path in (TPR, TRR)]
    path, figure = tmp_path / "current.npz", tmp_path / "current.svg"
    options = ["--select", "resname NA+", "--temperature", 310, "-o", path, "--plot", figure]
    status, out, err = run("current-autocorrelation", *files, *options)
    assert (status, out, "the conductivity, its integral" in err) == (0, "", True)
    ions = paceline.Universe(*files).select_atoms("resname NA+")
    wanted = CurrentAutocorrelation(ions, 310).run().results
    for name in ("timeseries", "conductivity", "currents"):
        np.testing.assert_array_equal(np.load(path)[name], wanted[name])
    assert "conductivity up to this time (S/m)" in figure.read_text(encoding="utf-8")


def test_correlations_of_what_is_there(adk_xtc, tmp_path, run):
    table, figure = tmp_path / "correlation.csv", tmp_path / "correlation.png"
    given = ("-o", tmp_path / "o.csv", "--stop", 20, "--overwrite")
    options = ("--correlation", table, "--tau-max", 5)
    near = "name CA and around 8 resid 30"
    universe = paceline.Universe(*adk_xtc)
    ones = {
        ("hbonds",): class_of("hbonds")(universe.select_atoms("protein")),
        ("selection", "--select", near): SelectedAtoms(universe.select_atoms(near, updating=True)),
    }
    for (command, *select), analysis in ones.items():
        assert run(command, *adk_xtc, *select, *given, *options) == (0, "", "")
        analysis.run(stop=20)
        found = pd.read_csv(table, comment="#", float_precision="round_trip")
        for function in ("intermittent", "continuous"):
            wanted = analysis.time_correlation(function, tau_max=5)
            np.testing.assert_array_equal(found[function], wanted.correlation)
            np.testing.assert_array_equal(found["lag time (ps)"], wanted.tau)
        assert run(command, *adk_xtc, *select, *given, "--correlation", figure) == (0, "", "")
    status, _, err = run("hbonds", *adk_xtc, "-o", tmp_path / "no.csv", "--tau-max", 5)
    assert (status, "longest lag of --correlation: add --correlation" in err) == (2, True)
    assert not (tmp_path / "no.csv").exists()
    # The maximum lag is the number of frames, if it is below the default.
    assert run("hbonds", *adk_xtc, *given, "--stop", 4, "--correlation", table) == (0, "", "")
    assert len(pd.read_csv(table, comment="#")) == 4


def test_results_are_kept_where_there_is_no_correlation(adk_xtc, damaged, tmp_path, run):
    table, frequent, correlation = (tmp_path / f"{name}.csv" for name in "tfc")
    files = ("-o", table, "--correlation", correlation, "--overwrite")
    near = ("--select", "name CA and around 8 resid 30")
    nowhere = ("--select", "name CA and point 900 900 900 1")
    skipping = (*damaged[0], "--on-error", "skip")
    cases = [
        (("selection", *skipping, *near), "19 damaged frames were left out"),
        (("selection", *adk_xtc, *nowhere, "--stop", 9), "there are no atoms to correlate"),
        (("hbonds", *skipping, "--frequent", frequent), "19 damaged frames were left out"),
    ]
    for arguments, reason in cases:
        table.unlink(missing_ok=True)
        status, _, err = run(*arguments, *files)
        assert (status, reason in err, "other results are written" in err) == (2, True, True)
        assert len(pd.read_csv(table, comment="#")) in (9, 98)
        assert not correlation.exists()
    assert len(pd.read_csv(frequent, comment="#")) > 100


def test_membranes(adk_xtc, tmp_path, run):
    path = shutil.copy(Martini_membrane_gro, tmp_path)
    table, figure = tmp_path / "leaflets.npz", tmp_path / "leaflets.svg"
    options = ["--select", "name PO4", "--cutoff", 12, "-o", table, "--plot", figure]
    assert run("leaflets", "-s", path, "-f", path, *options)[:2] == (0, "")
    membrane = paceline.Universe(path)
    wanted = LeafletSeries(membrane, "name PO4", 12).run().results
    np.testing.assert_array_equal(np.load(table)["leaflets"], wanted.leaflets)
    assert "atoms of a leaflet" in figure.read_text(encoding="utf-8")
    table, figure = tmp_path / "order.csv", tmp_path / "order.svg"
    options = ["--select", "name C1A C2A", "--select-2", "name C2A C3A", "-o", table]
    assert run("order", "-s", path, "-f", path, *options, "--plot", figure)[:2] == (0, "")
    groups = (membrane.select_atoms(text) for text in ("name C1A C2A", "name C2A C3A"))
    wanted = OrderParameter(*groups).run().results.to_dataframe()
    found = pd.read_csv(table, comment="#", float_precision="round_trip")
    pd.testing.assert_frame_equal(found, wanted, check_exact=True)
    assert "C1A-C2A" in figure.read_text(encoding="utf-8")
    status, _, err = run("order", "-s", path, "-f", path, "--select", "name C1A")
    assert (status, "SCH needs bonds" in err) == (2, True)
    status, _, err = run("order", "-s", path, "-f", path, *options[:4], "--hydrogens", "name H*")
    assert (status, "--select-2 for other vectors" in err) == (2, True)
    carbons, means = tmp_path / "sch.csv", tmp_path / "means.csv"
    options = ["--select", "resname LYS", "--axis", "x", "--means", means]
    assert run("order", *adk_xtc, *options, "-e", 4, "-o", carbons) == (0, "", "")
    found = pd.read_csv(means, comment="#", float_precision="round_trip")
    assert list(found.columns)[:3] == ["carbon", "S_CH", "-S_CD"]
    wanted = SCH(paceline.Universe(*adk_xtc).select_atoms("resname LYS"), "x").run(stop=4).results
    found = pd.read_csv(carbons, comment="#", float_precision="round_trip")
    np.testing.assert_array_equal(found.iloc[:, 2:], wanted.timeseries)


def test_align_writes_a_trajectory_and_its_rmsd(adk_xtc, tmp_path, run):
    out, table, figure = (tmp_path / name for name in ("fit.xtc", "rmsd.csv", "rmsd.png"))
    given = ["-o", out, "--rmsd", table, "--plot", figure, "--ref", 4, "--end", 6]
    assert run("align", *adk_xtc, *given) == (0, f"{out}\n", "")
    universe = paceline.Universe(*adk_xtc)
    reference = universe.copy()
    reference.trajectory[4]
    again = tmp_path / "again.xtc"
    wanted = AlignTraj(universe, reference, "protein and name CA", again).run(stop=6)
    assert out.read_bytes() == again.read_bytes()
    found = pd.read_csv(table, comment="#", float_precision="round_trip")["RMSD (Å)"]
    np.testing.assert_array_equal(found, wanted.results.rmsd)
    assert found[4] == pytest.approx(0, abs=1e-5)
    assert figure.stat().st_size > 1000
    assert run("align", *adk_xtc, *given)[0] == 2  # the file exists


@pytest.mark.parametrize(
    ("command", "options", "last"),
    [
        ("align", ["-o", "fit.xtc", "--rmsd", "rmsd.csv", "--plot", "rmsd.svg"], "save_figure"),
        ("surface", ["-o", "surface.tsv", "--plot", "surface.svg"], "save"),
        ("convert", ["--end", 3, "--report", "run.csv"], "to_csv"),
    ],
)
def test_ctrl_c_leaves_none_of_the_files(
    command, options, last, adk_xtc, tmp_path, run, monkeypatch
):
    table = tmp_path / "series.csv"
    table.write_text("frame,time (ps),a,b\n0,0,1,2\n1,1,2,1\n2,2,1,1\n", encoding="utf-8")
    of_command = {"align": adk_xtc, "surface": [table], "convert": [*adk_xtc, "fit.dcd"]}[command]

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Timings if last == "to_csv" else Results, last, interrupt)
    assert run(command, *of_command, *options)[0] == INTERRUPTED
    assert list(tmp_path.iterdir()) == [table]


def test_densities_along_axes_and_dielectric_constants(tmp_path, run):
    water = [shutil.copy(path, tmp_path) for path in (PSF_TRICLINIC, DCD_TRICLINIC)]
    table, figure = tmp_path / "dielectric.csv", tmp_path / "dielectric.svg"
    options = ["--temperature", 310, "-o", table, "--plot", figure]
    assert run("dielectric", *water, *options) == (0, "", "")
    wanted = DielectricConstant(paceline.Universe(*water).atoms, 310).run().results
    found = pd.read_csv(table, comment="#", float_precision="round_trip")
    title = "dielectric constant so far"
    pd.testing.assert_frame_equal(found, wanted.to_dataframe(), check_exact=True)
    assert found[title].iloc[-1] == pytest.approx(wanted.eps_mean, rel=1e-10)
    half = DielectricConstant(paceline.Universe(*water).atoms, 310).run(stop=5).results.eps_mean
    assert found[title][4] == pytest.approx(half, rel=1e-10)
    line = f"# dielectric constant: {wanted.findings['dielectric constant']}"
    assert line in table.read_text(encoding="utf-8")
    assert "until time (ps)" in figure.read_text(encoding="utf-8")
    path = tmp_path / "density.tsv"
    assert run("lineardensity", *water, "--binsize", 4, "-o", path) == (0, "", "")
    density = LinearDensity(paceline.Universe(*water).atoms, binsize=4.0).run().results
    found = pd.read_csv(path, sep="\t", comment="#", float_precision="round_trip")
    wanted = density.to_dataframe().astype(float)
    pd.testing.assert_frame_equal(found, wanted, check_exact=True)


@pytest.mark.parametrize(
    ("command", "arguments", "words"),
    [
        ("contacts", ["--select", "name CA"], "--select-2"),
        ("angles", ["--select", "name N", "--select-2", "name CA"], "--select-3"),
        ("density", [], "--select"),
        ("density", ["--select", "name CA", "--size", 1, 2, 3], "both --gridcenter and --size"),
        (
            "density",
            ["--select", "name CA", "--gridcenter", 1, 2, 3, "--size", 1, 0, 3],
            "--size must be three lengths above 0, in Å, not [1.0, 0.0, 3.0]",
        ),
        ("align", [], "-o"),
        (
            "distances",
            ["--select", "name CA", "--select-2", "name CB"],
            "(--select: 214, --select-2: 194)",
        ),
        (
            "dihedrals",
            [
                *("--select", "name N", "--select-2", "name CA"),
                *("--select-3", "name CB", "--select-4", "name CG"),
            ],
            "equally many atoms, found 214, 214, 194",
        ),
    ],
)
def test_arguments_that_are_missing(command, arguments, words, adk_xtc, run):
    status, _, err = run(command, *adk_xtc, *arguments)
    assert status == 2
    assert words in err


def test_groups_that_change(adk_xtc, tmp_path, run):
    universe = paceline.Universe(*adk_xtc)
    files, text = (*adk_xtc, "--end", 5), "name CA and around 8 resid 30"
    out = tmp_path / "shell.npz"
    assert run("selection", *files, "--select", text, "-o", out)[0] == 0
    shell = SelectedAtoms(universe.select_atoms(text, updating=True)).run(stop=5).results
    for name in ("atoms", "counts", "offsets"):
        np.testing.assert_array_equal(np.load(out)[name], shell[name])
    out = tmp_path / "survival.npz"
    given = ("--select", text, "--tau-max", 2, "--intermittency", 1, "--residues", "-o", out)
    assert run("survival", *files, *given)[0] == 0
    wanted = SurvivalProbability(universe, text).run(2, 0, 5, None, True, 1).sp_timeseries
    np.testing.assert_array_equal(np.load(out)["sp_timeseries"], wanted)
    # There are as many lags as frames.
    status, table, _ = run("survival", *files, "--select", text, "--end", 5)
    assert (status, len(table.splitlines())) == (0, 6)
    status, _, err = run("survival", *files, "--select", "around x")
    assert status == 2
    assert "'around x' cannot be read as a selection" in err


def test_coordination_numbers(adk_xtc, tmp_path, run):
    universe, out = paceline.Universe(*adk_xtc), tmp_path / "near.npz"
    select = ("--select", "name NZ", "--select-2", "name O*")
    assert run("coordination", *adk_xtc, *select, "--cutoff", 4, "-o", out, "--end", 5)[0] == 0
    groups = [universe.select_atoms(text) for text in ("name NZ", "name O*")]
    wanted = CoordinationNumbers(*groups, cutoff=4).run(stop=5).results.coordination
    np.testing.assert_array_equal(np.load(out)["coordination"], wanted)


def test_neighbors(adk_xtc, tmp_path, run):
    universe, out, often = (
        paceline.Universe(*adk_xtc),
        tmp_path / "near.npz",
        tmp_path / "often.csv",
    )
    texts = "resid 30", "name O* N* and not resid 29:31"
    select = ("--select", texts[0], "--select-2", texts[1], "--frequent", often)
    assert run("neighbors", *adk_xtc, *select, "--cutoff", 4, "-o", out, "--end", 5)[0] == 0
    wanted = NeighborList(*map(universe.select_atoms, texts), cutoff=4).run(stop=5)
    np.testing.assert_array_equal(np.load(out)["pairs"], wanted.results.pairs)
    rows = [line.split(",") for line in often.read_text().splitlines() if line[0] != "#"]
    assert rows[0] == ["residues", "first", "second", "frames", "fraction of frames"]
    assert [[int(x) for x in row[1:4]] for row in rows[1:]] == [
        list(row) for row in wanted.count_by_residue()
    ]
    first, second = universe.residues[[int(x) for x in rows[1][1:3]]]
    assert rows[1][0] == f"{first.resname} {first.resid}–{second.resname} {second.resid}"


@pytest.mark.parametrize(
    ("name", "taken"), [("rmsd", "nucleic and name P"), ("gyration", "nucleic")]
)
def test_default_atoms_follow_the_system(name, taken, run, tmp_path):
    rna = (RNA_PSF, RNA_PDB)
    status, out, err = run(name, *rna)
    assert status == 0
    assert f"'{taken}' is used instead" in err
    assert run(name, *rna, "--select", taken) == (0, out, "")


def test_default_atoms_of_a_system_that_has_none_of_them(run, tmp_path):
    water = paceline.Universe(TPR, XTC).select_atoms("water").residues[:5]
    water.atoms.write(tmp_path / "water.gro")
    status, _, err = run("rmsd", tmp_path / "water.gro")
    assert (status, "no atoms match 'protein and name CA'" in err) == (2, True)


def test_default_atoms_that_are_not_there_say_what_to_give(adk_xtc, run):
    status, _, err = run("bilayer", *adk_xtc)
    assert (status, ", the default: set --select" in err) == (2, True)


def test_fit_takes_the_default_atoms_of_the_system(run):
    rna = (RNA_PSF, RNA_PDB)
    status, _, err = run("gyration", *rna, "--select", "nucleic", "--fit")
    assert status == 0
    assert "--fit: the default, 'protein and name CA', finds no atoms" in err
