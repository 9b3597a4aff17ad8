"""Tests of integers and lengths as arguments of analyses."""

import re
import warnings

import MDAnalysis
import numpy as np
import pytest

import paceline
from paceline._util.arguments import check_selection, whole_number
from paceline.analysis.clustering import Clustering
from paceline.analysis.contacts import ContactMap, Contacts
from paceline.analysis.density import DensityAnalysis
from paceline.analysis.diffusionmap import DiffusionMap
from paceline.analysis.free_energy import free_energy_surface
from paceline.analysis.groups import SelectedAtoms
from paceline.analysis.hydrogenbonds import HydrogenBondAnalysis
from paceline.analysis.leaflet import LeafletSeries
from paceline.analysis.lineardensity import LinearDensity
from paceline.analysis.neighbors import CoordinationNumbers, NeighborList
from paceline.analysis.pca import PCA
from paceline.analysis.rdf import InterRDF, InterRDF_s
from paceline.analysis.rms import RMSD
from paceline.analysis.sasa import SASA
from paceline.analysis.waterdynamics import SurvivalProbability
from paceline.cli.universe_with_named_groups import GroupUniverse
from paceline.errors import PacelineWarning
from paceline.transform import fit

BOUNDS = "start", "stop", "step"
NEAR = "name CA and around 8 resid 30"


@pytest.mark.parametrize("value", [3, 3.0, np.float32(3), np.float64(3), np.int8(3), np.uint64(3)])
def test_numbers_with_a_whole_value_are_integers(value):
    found = whole_number("n", value, 1, 3)
    assert (found, type(found)) == (3, int)


@pytest.mark.parametrize(
    ("make", "keyword"),
    [
        (lambda ca: HydrogenBondAnalysis(ca.universe, d_a_cutoff=0.35).run(stop=1), "d_a_cutoff"),
        (lambda ca: NeighborList(ca, cutoff=0.35), "cutoff"),
        (lambda ca: CoordinationNumbers(ca, cutoff=0.35), "cutoff"),
        (lambda ca: ContactMap(ca, cutoff=0.35), "cutoff"),
        (lambda ca: SASA(ca, probe_radius=0.35), "probe_radius"),
        (lambda ca: Clustering(ca, cutoff=0.35), "cutoff"),
        (lambda ca: LeafletSeries(ca, cutoff=0.35), "cutoff"),
        (lambda ca: Contacts(ca.universe, (ca, ca), (ca, ca), radius=0.35), "radius"),
    ],
)
def test_lengths_that_may_be_in_nm_warn(make, keyword, universe):
    message = f"{keyword}=0.35 is in Å: did you mean {keyword}=3.5 (0.35 nm)?"
    with pytest.warns(PacelineWarning, match=re.escape(message)):
        make(universe.select_atoms("name CA"))


def test_sizes_of_bins_that_may_be_in_nm_warn(adk_in_water):
    water = paceline.Universe(*adk_in_water).select_atoms("name OW")
    water.universe.add_TopologyAttr("charges")
    with pytest.warns(
        PacelineWarning, match=r"binsize=0\.025 is in Å: did you mean binsize=0\.25 "
    ):
        LinearDensity(water, binsize=0.025)
    with pytest.warns(
        PacelineWarning, match=r"delta=0\.1 is in Å: did you mean delta=1 \(0\.1 nm\)"
    ):
        DensityAnalysis(water, 0.1, gridcenter=[20, 20, 20], xdim=4, ydim=4, zdim=4)
    with pytest.warns(PacelineWarning, match=r"radii are in Å, and the largest is 0\.17: "):
        SASA(water, radii={"O": 0.17})


@pytest.mark.parametrize("kind", [InterRDF, InterRDF_s])
def test_ranges_that_may_be_in_nm_warn(kind, adk_in_water):
    universe = paceline.Universe(*adk_in_water)
    water = universe.select_atoms("name OW")[:20]
    groups = (water, water) if kind is InterRDF else (universe, [(water, water)])
    match = r"range=\(0, 1\.5\) is in Å: did you mean range=\(0, 15\), the same in nm"
    with pytest.warns(PacelineWarning, match=match):
        kind(*groups, range=(0, 1.5))


@pytest.mark.parametrize(
    ("text", "in_nm"),
    [
        ("name OW and around 0.35 protein", "'around 3.5'"),
        ("name OW and (sphzone 0.6 (resid 10))", "'sphzone 6'"),
        ("sphlayer 0.2 0.6 resid 10", "'sphlayer 2 6'"),
        ("isolayer 0.2 0.6 resid 10", "'isolayer 2 6'"),
        ("cyzone 0.5 1.2 -1.2 resid 10", "'cyzone 5'"),
        ("cylayer 0 0.5 1.2 -1.2 resid 10", "'cylayer 0 5'"),
        ("point 0.1 0.2 0.3 0.35", "'point 1 2 3 3.5'"),
        ("around 0.9 protein", None),
        ("sphlayer 0.2 6 resid 10", None),
        ("cylayer 0 10 1.2 -1.2 resid 10", None),
        ("around 0 protein", None),
        ("name around or name around 0", None),
    ],
)
def test_selections_that_may_be_in_nm_warn(text, in_nm):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_selection(text)
    meant = [] if in_nm is None else [in_nm]
    assert [re.findall("mean (.*), the same in nm", str(one.message)) for one in caught] == (
        [[one] for one in meant]
    )


def test_selections_are_looked_at_wherever_they_are_given(universe):
    near = "name CA and around 0.35 resid 30"
    group = universe.select_atoms(near, updating=True)
    for make in (
        lambda: SelectedAtoms(group),
        lambda: SurvivalProbability(universe, near),
        lambda: RMSD(universe, select=f"name CA and not ({near})"),
        lambda: RMSD(universe, select="name CA").run(
            stop=1, transforms=[fit(f"name CA and not ({near})")]
        ),
        lambda: HydrogenBondAnalysis(universe, between=[near, "protein"]),
        lambda: HydrogenBondAnalysis(universe, acceptors_sel=f"name O* and not ({near})"),
        lambda: GroupUniverse(universe.filename).select_within(universe.atoms, f"not ({near})"),
    ):
        with pytest.warns(PacelineWarning, match="'around 0.35' in .* did you mean 'around 3.5'"):
            make()


def test_a_range_without_pairs_warns(tmp_path, adk_in_water):
    water = paceline.Universe(*adk_in_water).select_atoms("name OW")[:200]
    with pytest.warns(PacelineWarning, match=r"InterRDF: no pair of atoms is from 0\.1 to 1\.2 Å"):
        InterRDF(water, water, range=(0.1, 1.2)).run(stop=2)


@pytest.mark.parametrize(
    "value", [2.5, np.float32(2.5), np.nan, np.inf, "3", None, True, np.True_, [3], np.array([3.0])]
)
def test_others_are_refused(value):
    with pytest.raises(ValueError, match=r"^n must be a whole number, not "):
        whole_number("n", value)


def test_bounds_are_named():
    with pytest.raises(ValueError, match=r"^n must be at least 1 frames, not 0$"):
        whole_number("n", 0, 1, unit="frames")
    with pytest.raises(ValueError, match=r"^n must be from 1 to 4, not 5$"):
        whole_number("n", 5.0, 1, 4)


@pytest.fixture(scope="module")
def ran(universe):
    """Analyses after a run, by name."""
    near = universe.select_atoms(NEAR, updating=True)
    ca = universe.select_atoms("name CA")
    return {
        "universe": universe,
        "ca": ca,
        "bonds": HydrogenBondAnalysis(universe).run(stop=6),
        "selected": SelectedAtoms(near).run(stop=6),
        "clusters": Clustering(ca, cutoff=1.0).run(stop=20),
        "map": DiffusionMap(ca).run(stop=6),
    }


#: Calls with an integer, by name; the results are compared.
CALLS = {
    "SelectedAtoms tau_max": lambda ran, n: ran["selected"].time_correlation(tau_max=n).correlation,
    "SelectedAtoms gap": lambda ran, n: ran["selected"].stays(n)["last"],
    "HydrogenBondAnalysis tau_max": lambda ran, n: (
        ran["bonds"].time_correlation(tau_max=n).correlation
    ),
    "lifetime tau_max": lambda ran, n: ran["bonds"].lifetime(n),
    "lifetime window_step": lambda ran, n: ran["bonds"].lifetime(3, window_step=n),
    "lifetime intermittency": lambda ran, n: ran["bonds"].lifetime(3, intermittency=n),
    "members cluster": lambda ran, n: ran["clusters"].members(n),
    "transform n_eigenvectors": lambda ran, n: ran["map"].transform(n, 1),
    "DiffusionMap n_eigenvectors": lambda ran, n: (
        DiffusionMap(ran["ca"], n_eigenvectors=n).run(stop=6).results.coordinates
    ),
    "SurvivalProbability tau_max": lambda ran, n: (
        SurvivalProbability(ran["universe"], NEAR).run(n, stop=6).results.sp_timeseries
    ),
    "SurvivalProbability window_step": lambda ran, n: (
        SurvivalProbability(ran["universe"], NEAR, tau_max=2)
        .run(stop=6, step=n)
        .results.sp_timeseries
    ),
    "SurvivalProbability intermittency": lambda ran, n: (
        SurvivalProbability(ran["universe"], NEAR, tau_max=2, intermittency=n)
        .run(stop=6)
        .results.sp_timeseries
    ),
    "PCA n_components": lambda ran, n: (
        PCA(ran["ca"], n_components=n).run(stop=3).results.p_components
    ),
    "PCA n_projected": lambda ran, n: PCA(ran["ca"], n_projected=n).run(stop=3).results.projection,
    "SASA n_points": lambda ran, n: SASA(ran["ca"], n_points=n).run(stop=1).results.sasa,
    "InterRDF nbins": lambda ran, n: (
        InterRDF(ran["ca"], ran["ca"], n, norm="none").run(stop=1).results.rdf
    ),
    "InterRDF_s nbins": lambda ran, n: (
        InterRDF_s(ran["universe"], [(ran["ca"][:2],) * 2], n, norm="none").run(stop=1).results.rdf
    ),
    "Contacts residues_apart": lambda ran, n: (
        Contacts(ran["universe"], (ran["ca"],) * 2, (ran["ca"],) * 2, radius=8, residues_apart=n)
        .run(stop=2)
        .results.timeseries
    ),
    "Clustering n_clusters": lambda ran, n: (
        Clustering(ran["ca"], method="k-medoids", n_clusters=n).run(stop=6).results.labels
    ),
    "RMSD ref_frame": lambda ran, n: RMSD(ran["ca"], ref_frame=n).run(stop=2).results.rmsd,
    "free_energy_surface bins": lambda ran, n: (
        free_energy_surface([1.0, 2, 3], [2.0, 3, 3], bins=n).counts
    ),
    "TimeSeries halo": lambda ran, n: (
        paceline.TimeSeries(lambda block: block.times, ran["ca"], halo=(n, 0))
        .run(stop=6, backend="serial")
        .results.timeseries
    ),
    "run n_workers": lambda ran, n: RMSD(ran["ca"]).run(stop=2, n_workers=n).results.rmsd,
}


@pytest.mark.parametrize("name", CALLS)
def test_analyses_take_floats_that_are_whole(name, ran):
    wanted = CALLS[name](ran, 2)
    np.testing.assert_array_equal(CALLS[name](ran, 2.0), wanted)
    argument = name.split()[-1]
    for value in (2.5, "2"):
        with pytest.raises(ValueError, match=f"{argument} must be a whole number, not {value!r}"):
            CALLS[name](ran, value)


@pytest.mark.parametrize("bounds", [{"start": 2.0}, {"stop": "3"}, {"step": np.float64(2)}])
def test_bounds_of_frames_are_integers(bounds, ran, adk):
    """Check that bounds of frames must be integers, as in MDAnalysis: a float such as 2.0 is
    refused.
    """
    [(name, value)] = bounds.items()
    message = rf"^{name} must be an integer, not {re.escape(repr(value))}$"
    theirs = MDAnalysis.Universe(*adk)
    with pytest.raises(TypeError, match=f"{name} is not an integer"):
        theirs.trajectory.check_slice_indices(*(bounds.get(one) for one in BOUNDS))
    for call in (
        lambda: RMSD(ran["ca"]).run(**bounds),
        lambda: paceline.run([RMSD(ran["ca"])], **bounds),
        lambda: paceline.open(adk.trajectory)[slice(*(bounds.get(one) for one in BOUNDS))],
    ):
        with pytest.raises(TypeError, match=message):
            call()


def test_bounds_of_numpy_are_taken(ran):
    found = RMSD(ran["ca"]).run(start=np.int32(2), stop=np.uint8(9), step=np.int64(3))
    assert found.frames.tolist() == [2, 5, 8]
    assert (found.start, found.stop, found.step) == (2, 9, 3)
    with pytest.raises(ValueError, match=r"^step must not be 0$"):
        found.run(step=0)
