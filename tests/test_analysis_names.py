"""Tests that `paceline.analysis` has every name of `MDAnalysis.analysis`, and accepts its calls."""

import importlib
import inspect
import pickle
import pkgutil
import types
import warnings

import MDAnalysis as mda
import MDAnalysis.analysis
import numpy as np
import pytest
from MDAnalysis.analysis import backends as theirs_backends
from MDAnalysis.analysis.base import AnalysisBase as TheirsBase
from MDAnalysis.analysis.results import Results as TheirsResults
from MDAnalysisTests.datafiles import DCD, PSF

import paceline
import paceline.analysis
from paceline.errors import UnsupportedError
from paceline.mdanalysis.analyses import SingleFrameAnalysis

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    NAMES = [
        one.name
        for one in pkgutil.walk_packages(MDAnalysis.analysis.__path__, "MDAnalysis.analysis.")
        if ".legacy" not in one.name
    ]


def pair(name: str) -> tuple[types.ModuleType, types.ModuleType]:
    """Return a module of MDAnalysis and paceline's module of that name; skip what cannot be
    imported.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            theirs = importlib.import_module(name)
        except ImportError as error:
            pytest.skip(f"{name} needs a package: {error}")
        return theirs, importlib.import_module(name.replace("MDAnalysis.", "paceline."))


@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_every_module(name: str) -> None:
    theirs, ours = pair(name)
    public = [one for one in dir(theirs) if not one.startswith("_")]
    for one in public:
        value, other = getattr(theirs, one), getattr(ours, one)
        if isinstance(value, type) and issubclass(value, TheirsBase):
            assert_same_calls(value, other)
        elif inspect.isfunction(value):
            assert parameters(value) == parameters(other)[: len(parameters(value))]


def parameters(function) -> list[str]:
    return [
        p.name for p in inspect.signature(function).parameters.values() if p.kind != p.VAR_KEYWORD
    ]


def assert_same_calls(theirs: type, ours: type) -> None:
    """Check that paceline's class accepts the arguments of MDAnalysis's, in the same positions."""
    if theirs is TheirsBase:
        return
    theirs_init = parameters(theirs.__init__)
    assert parameters(ours.__init__)[: len(theirs_init)] == theirs_init
    theirs_run = parameters(theirs.run)
    assert parameters(ours.run)[: len(theirs_run)] == theirs_run


@pytest.fixture
def universe():
    return paceline.Universe(PSF, DCD)


def test_classes_of_mdanalysis_run_on_our_workers(universe) -> None:
    from paceline.analysis.align import AlignTraj
    from paceline.analysis.gnm import GNMAnalysis

    assert issubclass(GNMAnalysis, MDAnalysis.analysis.gnm.GNMAnalysis)
    select = "name CA and resid 1-20"
    theirs = MDAnalysis.analysis.gnm.GNMAnalysis(universe, select=select).run(stop=20).results
    own = {"backend": "multiprocessing", "n_workers": 2}
    for options in ({}, {"backend": "serial"}, {"backend": "threads", "n_workers": 2}, own):
        ours = GNMAnalysis(universe, select=select).run(stop=20, **options).results
        np.testing.assert_array_equal(ours.eigenvalues, theirs.eigenvalues)
        if options is not own:  # MDAnalysis before 2.11 concatenates them along the wrong axis
            np.testing.assert_array_equal(ours.eigenvectors, theirs.eigenvectors)
    assert pickle.loads(pickle.dumps(GNMAnalysis)) is GNMAnalysis
    assert AlignTraj.__module__ == "paceline.analysis.align"


def test_modules_are_found_in_every_way() -> None:
    import paceline.analysis.contacts
    from paceline.analysis import pca, rms
    from paceline.analysis.base import AnalysisFromFunction
    from paceline.analysis.gnm import GNMAnalysis
    from paceline.analysis.rdf import InterRDF

    assert rms.rmsd is MDAnalysis.analysis.rms.rmsd
    assert InterRDF is not MDAnalysis.analysis.rdf.InterRDF
    assert issubclass(GNMAnalysis, MDAnalysis.analysis.gnm.GNMAnalysis)
    assert paceline.analysis.contacts.Contacts.__module__ == "paceline.analysis.contacts"
    assert pca.PCA
    assert AnalysisFromFunction
    with pytest.raises(ImportError):
        importlib.import_module("paceline.analysis.nothing")
    with pytest.raises(AttributeError, match="nothing"):
        paceline.analysis.nothing  # noqa: B018
    with pytest.raises(ImportError, match="nothing"):
        from paceline.analysis.rms import nothing  # noqa: F401


class Frames(paceline.AnalysisBase):
    """Analysis written for MDAnalysis's base class."""

    def __init__(self, group, **options):
        super().__init__(group.universe.trajectory, **options)
        self.group = group

    def _prepare(self):
        self.results.radius = np.zeros(self.n_frames)

    def _single_frame(self):
        self.results.radius[self._frame_index] = self.group.radius_of_gyration()

    def _conclude(self):
        self.results.mean = self.results.radius.mean()


def test_subclasses_with_the_methods_of_mdanalysis(universe) -> None:
    assert issubclass(Frames, SingleFrameAnalysis)
    ours = Frames(universe.atoms, verbose=False).run(step=10)
    expected = [universe.atoms.radius_of_gyration() for _ in universe.trajectory[::10]]
    np.testing.assert_array_equal(ours.results.radius, expected)
    assert ours.results.mean == np.mean(expected)


class Radii:
    """Methods of MDAnalysis's interface, without the base class."""

    _prepare, _single_frame = Frames._prepare, Frames._single_frame

    def __init__(self, group, **options):
        super().__init__(group.universe.trajectory, **options)
        self.group = group


class WithMixin(Radii, paceline.AnalysisBase):
    """Analysis that inherits all methods from another class."""


class NamesItsBase(Frames):
    """Analysis that calls a method of a base class by the name of the class."""

    def __init__(self, group, **options):
        paceline.AnalysisBase.__init__(self, group.universe.trajectory, **options)
        self.group = group


@pytest.mark.parametrize("kind", [WithMixin, NamesItsBase])
def test_other_ways_to_derive_a_class_with_the_methods_of_mdanalysis(kind, universe):
    found = kind(universe.atoms).run(step=10).results
    np.testing.assert_array_equal(found.radius, Frames(universe.atoms).run(step=10).results.radius)


class Between(paceline.AnalysisBase):
    """Analysis with neither MDAnalysis's methods nor paceline's."""


def test_a_class_between_that_and_the_base_class_is_refused(universe):
    with pytest.raises(UnsupportedError, match=r"Late has _single_frame.*derive that base class"):
        type("Late", (Radii, Between), {})(universe.atoms)


class Both(Radii, paceline.AnalysisBase):
    """Analysis of blocks with further methods that have names of MDAnalysis's methods."""

    def __init__(self, group):
        paceline.AnalysisBase.__init__(self, group)

    def prepare(self):
        return Times()

    def finish(self, value):
        self.results.times = value


class Times:
    def compute(self, block):
        return block.times


def test_a_class_with_a_worker_part_is_one_of_paceline(universe):
    both = Both(universe.atoms).run(step=10)
    np.testing.assert_array_equal(both.results.times, both.times)
    assert not issubclass(Both, SingleFrameAnalysis)


CALLS = {
    "verbose": {"verbose": True},
    "n_parts": {"n_parts": 4, "n_workers": 2},
    "multiprocessing": {"backend": "multiprocessing", "n_workers": 2},
    "BackendSerial": {"backend": theirs_backends.BackendSerial(1)},
    "BackendMultiprocessing": {"backend": theirs_backends.BackendMultiprocessing(n_workers=2)},
    "unsupported_backend": {"backend": "serial", "unsupported_backend": True},
    "progressbar_kwargs": {"progressbar_kwargs": {"desc": "RMSD"}},
}


@pytest.mark.parametrize("options", CALLS.values(), ids=CALLS)
def test_our_analyses_take_the_calls_of_mdanalysis(universe, options) -> None:
    from paceline.analysis.rms import RMSD

    rmsd = RMSD(universe, select="name CA", verbose=False).run(2, 50, 4, **options)
    again = RMSD(universe, select="name CA").run(start=2, stop=50, step=4)
    np.testing.assert_array_equal(rmsd.results.rmsd, again.results.rmsd)
    assert (rmsd.start, rmsd.stop, rmsd.step, rmsd.n_frames) == (2, 50, 4, 12)
    assert "multiprocessing" in RMSD.get_supported_backends()
    assert rmsd.parallelizable


def test_what_scripts_touch_after_a_run(universe) -> None:
    from paceline.analysis.rms import RMSD, RMSF

    rmsd = RMSD(universe, select="name CA").run(frames=[1, 5])
    assert isinstance(rmsd.results, TheirsResults)
    assert (rmsd.start, rmsd.stop, rmsd.step) == (None, None, None)
    with pytest.warns(DeprecationWarning, match=r"results\.rmsd"):
        assert rmsd.rmsd is rmsd.results.rmsd
    with pytest.raises(AttributeError, match="nothing"):
        rmsd.nothing  # noqa: B018
    with pytest.raises(AttributeError, match="rmsd"):
        RMSF(universe.atoms).rmsd  # noqa: B018
    copy = pickle.loads(pickle.dumps(rmsd.results))
    np.testing.assert_array_equal(copy.rmsd, rmsd.results.rmsd)
    assert type(copy) is type(rmsd.results)


def test_attributes_that_mdanalysis_s_classes_have_after_a_run(universe, tmp_path) -> None:
    from paceline.analysis import align, rdf, rms

    rmsd = rms.RMSD(universe, select="name CA").run(stop=3)
    assert rmsd.mobile_atoms.n_atoms == rmsd.ref_atoms.n_atoms == 214
    ca = universe.select_atoms("name CA")
    theirs = MDAnalysis.analysis.rms.RMSF(ca).run(stop=30)
    with paceline.register():
        registered = MDAnalysis.analysis.rms.RMSF(ca).run(stop=30)
    for ours in (rms.RMSF(ca).run(stop=30), registered):
        np.testing.assert_allclose(ours.mean, theirs.mean, atol=1e-5)
        np.testing.assert_allclose(ours.sumsquares, theirs.sumsquares, rtol=1e-4)
    aligned = align.AlignTraj(universe, universe, select="name CA", filename=tmp_path / "a.dcd")
    assert (aligned.run(2, 20, 3).start, aligned.stop, aligned.step) == (2, 20, 3)
    sites = rdf.InterRDF_s(universe, [[ca[:1], ca[1:3]]], norm="none").run(stop=3)
    sites.get_cdf()
    with pytest.warns(DeprecationWarning, match=r"results\.cdf"):
        assert sites.cdf is sites.results.cdf


def test_selection_errors_are_mdanalysis_own(universe) -> None:
    from paceline.analysis.rms import RMSD

    with pytest.raises(mda.SelectionError, match="atoms") as caught:
        RMSD(universe, universe.atoms[:5])
    assert isinstance(caught.value, paceline.errors.SelectionError)
    assert isinstance(pickle.loads(pickle.dumps(caught.value)), mda.SelectionError)
