"""Tests of known and unknown times in files, and of repeated frames."""

import pickle
import re
import warnings
from itertools import pairwise

import MDAnalysis
import numpy as np
import pytest
from helpers.timed_files import (
    LAMMPS,
    VMD,
    walk,
    write_dcd,
    write_dump,
    write_topology,
    write_xtc,
    write_xyz,
)
from MDAnalysisTests import datafiles

import paceline
from paceline.analysis.correlation import CurrentAutocorrelation, VelocityAutocorrelation
from paceline.analysis.dielectric import DipoleAutocorrelation
from paceline.analysis.msd import EinsteinMSD
from paceline.analysis.rms import RMSD, RMSF
from paceline.analysis.waterdynamics import SurvivalProbability
from paceline.cli import main
from paceline.errors import MissingDataError, PacelineWarning, UnsupportedError
from paceline.mdanalysis.reader import Reader
from paceline.trajectory.open import open_file

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning:MDAnalysis"),
]


@pytest.fixture
def top(tmp_path):
    return write_topology(tmp_path / "top.gro")


def sounds(path, **options):
    """Return a reader, after checking that it does not warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", PacelineWarning)
        return Reader(path, **options)


def said_of(path, **options):
    """Return the warnings of a reader."""
    with pytest.warns(PacelineWarning) as caught:
        Reader(path, **options)
    return [str(one.message) for one in caught]


def diffusion(top, path, step=1, **options):
    """Return the diffusion coefficient of the atoms, and the warnings of the run."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        universe = paceline.Universe(top, path, **options)
        msd = EinsteinMSD(universe, unwrap=None).run(step=step, backend="serial")
    said = [str(one.message) for one in caught if issubclass(one.category, PacelineWarning)]
    return msd, msd.diffusion_coefficient(), said


def test_frames_microseconds_apart_may_be_in_femtoseconds(tmp_path, top):
    """Check ProLIF's example, which has 6 ns between frames, written as 6e6 ps."""
    times = 1e5 + 6e6 * np.arange(40)
    path = write_xtc(tmp_path / "a.xtc", walk(), times)
    _, _, said = diffusion(top, path)
    expected = "its frames are 6 µs apart; if a program wrote times in fs, set the time"
    assert [expected in one for one in said] == [True]
    assert said[0].endswith("dt=6000 (--dt 6ns)")
    # Every fourth frame of a long simulation is no reason for a warning.
    path = write_xtc(tmp_path / "b.xtc", walk(), times / 10)
    assert diffusion(top, path, step=4)[2] == []
    assert diffusion(top, tmp_path / "a.xtc", dt=6000.0)[2] == []


# DCD files


@pytest.mark.parametrize(
    ("units", "delta", "every", "between"),
    [
        ("real", 1.0, 1000, 1.0),
        ("metal", 0.001, 1000, 1.0),
        ("electron", 0.001, 10, 1e-5),
        ("nano", 0.00045, 100, 45.0),
        ("micro", 2.0, 1, 2e6),
        ("lj", 0.005, 100, 0.5),
    ],
)
def test_dcd_files_of_lammps(tmp_path, top, units, delta, every, between):
    """Check a step in the units of the simulation, which the file does not state."""
    path = write_dcd(tmp_path / "a.dcd", walk(), LAMMPS, delta=delta, every=every)
    (said,) = said_of(path)
    assert "LAMMPS wrote it, and its header has steps in the units of the simulation" in said
    assert said.endswith("give dt= (--dt)")
    assert sounds(path, dt=2.0).times()[3] == 6.0
    reader = Reader(path, units=units) if units == "lj" else sounds(path, units=units)
    assert reader.dt == pytest.approx(between, rel=1e-6)
    np.testing.assert_allclose(reader.times(), np.arange(40) * between, rtol=1e-6)
    again = pickle.loads(pickle.dumps(reader))
    assert again[7].time == reader[7].time
    lengths = {"electron": 0.52917721092, "nano": 10.0, "micro": 1e4}
    np.testing.assert_allclose(reader[5].positions, walk()[5] * lengths.get(units, 1.0), rtol=1e-6)


def test_diffusion_in_a_dcd_file_of_lammps(tmp_path, top):
    path = write_dcd(tmp_path / "a.dcd", walk(), LAMMPS, delta=1.0, every=1000)
    _, right, said = diffusion(top, path, units="real")
    assert said == []
    known = diffusion(top, write_xtc(tmp_path / "a.xtc", walk(), np.arange(40.0)))[1]
    assert right.value == pytest.approx(known.value, rel=1e-3)
    assert "cm²/s (95 %" in str(right)
    _, unknown, said = diffusion(top, path)
    assert any("times between frames are counted in frames" in one for one in said)
    assert str(unknown).endswith("Å² per frame (95 %, 30 molecules)")
    # Each frame counts as 1 ps in this case.
    assert unknown.value == pytest.approx(right.value, rel=1e-6)


def test_units_are_for_dcd_files_of_lammps(tmp_path):
    path = write_dcd(tmp_path / "a.dcd", walk(), VMD)
    with pytest.raises(UnsupportedError, match=r"DCD files of LAMMPS.*pass dt"):
        Reader(path, units="real")
    path = write_dcd(tmp_path / "b.dcd", walk(), LAMMPS)
    with pytest.raises(UnsupportedError, match=r"units= .*must be one of lj, real"):
        Reader(path, units="ps")


@pytest.mark.parametrize(
    ("title", "delta", "is_known"),
    [
        (VMD, 1.0, False),
        (("CREATED BY SOMEONE",), 1.0, False),
        (("CREATED BY SOMEONE",), 0.0, False),
        (VMD, 0.02045, True),
        (("REMARKS FILENAME=a.dcd CREATED BY NAMD",), 0.0409, True),
    ],
)
def test_dcd_files_of_programs_that_know_no_times(tmp_path, top, title, delta, is_known):
    path = write_dcd(tmp_path / "a.dcd", walk(), title, delta=delta)
    assert (open_file(path).time_doubt is None) == is_known
    if is_known:
        assert sounds(path).time_axis.doubt is None
        return
    (said,) = said_of(path)
    assert f"steps of {delta}, which programs write that know no times" in said
    msd, found, said = diffusion(top, path, step=2)
    assert len(said) == 2
    np.testing.assert_array_equal(msd.results.delta_t_values, 2.0 * np.arange(20))
    assert (found.time_unit, found.start, found.stop) == ("frames", 4.0, 18.0)
    assert next(iter(msd.results.table.columns)) == "lag (frames)"
    assert "steps of" in msd.results.provenance["times not known"]
    msd, found, said = diffusion(top, path, step=2, dt=3.0)
    assert said == []
    assert (found.time_unit, found.start, found.stop) == ("ps", 12.0, 54.0)
    assert "times not known" not in msd.results.provenance


def test_a_dcd_file_of_vmd_among_those_of_mdanalysis():
    """Check DCD_NAMD_TRICLINIC, whose title names VMD's plugin, and whose step is 1."""
    for path in (datafiles.DCD, datafiles.DCD2, datafiles.DCD_NAMD_TRICLINIC):
        doubt = open_file(path).time_doubt
        assert (doubt is None) == (path != datafiles.DCD_NAMD_TRICLINIC)


def test_a_dcd_file_of_lammps_among_those_of_mdanalysis():
    """Check a step of 1 (1 fs): MDAnalysis reads 24.4 ps between frames instead of 0.5 ps."""
    (said,) = said_of(datafiles.LAMMPSdcd2)
    assert "LAMMPS wrote it" in said
    assert sounds(datafiles.LAMMPSdcd2, units="real").dt == pytest.approx(0.5)
    with pytest.warns(PacelineWarning):
        assert Reader(datafiles.LAMMPSdcd2).dt == pytest.approx(24.444105)


# Dumps of LAMMPS


@pytest.mark.parametrize(
    ("units", "time", "between"),
    [("real", 1000.0, 1.0), ("metal", 0.5, 0.5), ("si", 1e-12, 1.0), ("nano", 0.001, 1.0)],
)
def test_times_that_a_dump_states(tmp_path, units, time, between):
    path = write_dump(tmp_path / "a.dump", walk(8), units=units, time=time)
    for origin in ("scanned", "loaded"):
        reader = sounds(path)
        assert reader.file.index_origin == origin
        np.testing.assert_allclose(reader.times(), np.arange(8) * between)
        np.testing.assert_allclose([ts.time for ts in reader], np.arange(8) * between)
        assert reader[3].data["step"] == 1500
        assert reader.dt == pytest.approx(between)
    plain = write_dump(tmp_path / "b.dump", walk(8), time=time)
    (said,) = said_of(plain)
    assert "in the units of the simulation, which the file does not state" in said
    np.testing.assert_allclose(sounds(plain, units=units).times(), np.arange(8) * between)


@pytest.mark.parametrize("origin", ["scanned", "loaded"])
def test_steps_of_a_dump(tmp_path, origin):
    """Check times from steps: with known units, LAMMPS's default step is used."""
    path = write_dump(tmp_path / "a.dump", walk(8))
    if origin == "loaded":
        open_file(path, notes=False)
    (said,) = said_of(path)
    assert "the file has numbers of steps only" in said
    assert "a step counts as 1 ps; give dt= (--dt)" in said
    (said,) = said_of(path, units="real")
    assert "a step counts as 1 fs, the default of LAMMPS in units real" in said
    with pytest.warns(PacelineWarning):
        reader = Reader(path, units="real")
    np.testing.assert_allclose(reader.times(), 0.5 * np.arange(8))
    # As in MDAnalysis, dt is the time between steps.
    np.testing.assert_allclose(sounds(path, dt=0.002).times(), np.arange(8))


@pytest.mark.parametrize("kind", ["dump", "dump in real", "DCD"])
@pytest.mark.filterwarnings("ignore::paceline.errors.PacelineWarning")
def test_results_record_that_the_unit_of_lengths_is_not_known(kind, tmp_path):
    topology, path = datafiles.LAMMPSdata2, datafiles.LAMMPSdcd2
    if kind != "DCD":
        units = "real" if kind == "dump in real" else ""
        path = write_dump(tmp_path / "a.dump", walk(8), units=units)
        topology = write_topology(tmp_path / "a.gro")

    def recorded(**options):
        universe = paceline.Universe(topology, path, **options)
        return RMSD(universe.atoms).run(stop=2).record().get("lengths", "")

    assert recorded(dt=1.0).startswith("taken to be in Å") == (kind != "dump in real")
    assert recorded(units="real") == ""
    assert open_file(datafiles.DCD).length_doubt is None


def test_an_index_of_former_versions_is_made_anew(tmp_path):
    """Check that an index with steps, which does not show the times of the file, is not used."""
    path = write_dump(tmp_path / "a.dump", walk(8), units="real", time=1000.0)
    (index,) = {open_file(path).index_file}
    content = bytearray(index.read_bytes())
    # The byte of the layout that states whether frames contain times.
    at = content.index(bytes([30, 0, 0, 0])) - 1
    assert content[at] == 5
    content[at] = 1
    index.write_bytes(content)
    assert open_file(path).index_origin == "scanned"
    np.testing.assert_allclose(sounds(path).times(), np.arange(8))


def times_of(tmp_path, *arguments):
    """Return the times in the table of a command, and its messages."""
    table = tmp_path / "t.csv"
    assert main([*arguments, "-o", str(table), "--overwrite"]) == 0
    rows = [line.split(",") for line in table.read_text().splitlines() if line[:1] not in "#"]
    return [float(row[rows[0].index("time (ps)")]) for row in rows[1:]]


def test_dt_of_commands_is_between_frames(tmp_path, top, capsys):
    """Check that commands use dt as the time between frames, also for dumps, which have steps."""
    files = {
        "dump": write_dump(tmp_path / "a.dump", walk(6)),
        "dcd": write_dcd(tmp_path / "a.dcd", walk(6), LAMMPS),
        "xtc": write_xtc(tmp_path / "a.xtc", walk(6), np.arange(6.0)),
        "xyz": write_xyz(tmp_path / "a.xyz", walk(6)),
    }
    for kind, path in files.items():
        for steps in ([], ["--step", "2"]):
            command = ["rmsd", top, path, "--select", "all", "--dt", "2ps", *steps]
            expected = 2.0 * np.arange(6)[:: 2 if steps else 1]
            np.testing.assert_allclose(times_of(tmp_path, *command), expected, err_msg=kind)
            assert "not known" not in capsys.readouterr().err


def test_commands_say_that_times_are_not_known(tmp_path, top, capsys):
    files = {
        "a.dump": write_dump(tmp_path / "a.dump", walk()),
        "a.dcd": write_dcd(tmp_path / "a.dcd", walk(), VMD),
        "a.xyz": write_xyz(tmp_path / "a.xyz", walk()),
    }
    for name, path in files.items():
        table = tmp_path / "msd.csv"
        command = ["msd", top, path, "--select", "all", "--unwrap-particles", "none"]
        assert main([*command, "-o", str(table), "--overwrite"]) == 0
        said = [one for one in capsys.readouterr().err.splitlines() if "not known" in one]
        assert len(said) == 2, name
        assert name in said[0] or "frames are read by MDAnalysis (XYZReader)" in said[0]
        assert "EinsteinMSD" in said[1]
        assert all(one.endswith("give --dt") for one in said)
        text = table.read_text()
        assert "cm²/s" not in text
        assert "Å² per frame (95 %" in text
        assert "fit from 4 to 19 frames" in text
        assert "lag (frames)" in text
        assert "# times not known" in text
        assert main([*command, "--dt", "2ps", "-o", str(table), "--overwrite"]) == 0
        assert "not known" not in capsys.readouterr().err
        assert "fit from 8 to 38 ps" in table.read_text()
    assert main(["info", files["a.dcd"], "--json"]) == 0
    assert '"time_between_frames_ps": []' in capsys.readouterr().out
    assert main(["info", files["a.dump"]]) == 0
    assert "not known: the file has numbers of steps only" in capsys.readouterr().out


# Functions of time


def test_every_function_of_time_says_that_times_are_not_known(tmp_path):
    """Check that unknown times yield no diffusion coefficient and no conductivity."""
    from helpers.netcdf_files import values, write_scipy

    arrays = {name: array for name, array in values().items() if name != "time"}
    path = str(write_scipy(tmp_path / "a.nc", arrays))
    n_atoms = arrays["coordinates"].shape[1]
    universe = MDAnalysis.Universe.empty(n_atoms)
    with pytest.warns(PacelineWarning, match="contains no times"):
        universe.load_new(path, format=Reader)
    universe.add_TopologyAttr("charges", np.resize([1.0, -1.0], n_atoms))
    universe.add_TopologyAttr("masses", np.ones(n_atoms))
    universe.add_TopologyAttr("names", ["C"] * n_atoms)
    words = "the times of frames are not known .*: times between frames are counted in frames"

    def ran(analysis):
        with pytest.warns(PacelineWarning, match=rf"{type(analysis).__name__}: {words}"):
            return analysis.run(backend="serial").results

    found = ran(VelocityAutocorrelation(universe))
    np.testing.assert_array_equal(found.delta_t_values, np.arange(5))
    assert np.isnan(found.integral).all()
    assert np.isfinite(found.timeseries).all()
    found = ran(CurrentAutocorrelation(universe))
    assert np.isnan(found.conductivity).all()
    assert np.isfinite(found.timeseries).all()
    assert found.table.drawn is None
    found = ran(EinsteinMSD(universe, unwrap=None))
    np.testing.assert_array_equal(found.delta_t_values, np.arange(5))
    universe.add_TopologyAttr("bonds", [(k, k + 1) for k in range(0, n_atoms - 1, 2)])
    found = ran(DipoleAutocorrelation(universe.atoms[:6], make_whole=False))
    assert "integral over its first value (frames)" in found.table.columns
    found = ran(SurvivalProbability(universe, "prop x > -1000", tau_max=2))
    np.testing.assert_array_equal(found.tau, [0, 1, 2])
    assert "lag (frames)" in found.table.columns


def test_a_run_names_equal_times_and_how_to_set_others(tmp_path, capsys):
    files = [datafiles.PRMncdf, datafiles.NCDF]  # all times are 0
    options = ["--select", "name CA", "-o", f"{tmp_path / 'a.csv'}", "--end", "5"]
    assert main(["rmsd", *files, *options]) == 0
    words = "all 5 frames have the same time, 0 ps: figures and verdicts count frames; give --dt"
    assert words in capsys.readouterr().err
    assert "all 5 frames have the same time" in (tmp_path / "a.csv").read_text(encoding="utf-8")
    assert main(["rmsd", *files, *options, "--dt", "2ps", "--overwrite"]) == 0
    assert "the same time" not in capsys.readouterr().err


def test_figures_have_frames_along_their_axis(tmp_path, top):
    positions = walk(12)
    known = write_xtc(tmp_path / "a.xtc", positions, np.arange(12.0))
    unknown = write_dcd(tmp_path / "a.dcd", positions, VMD)
    with pytest.warns(PacelineWarning, match="such as VMD"):
        universe = paceline.Universe(top, unknown)
    results = RMSD(universe.atoms).run(backend="serial").results
    assert results.table.abscissa == "frame"
    assert results.plot().get_xlabel() == "frame"
    restored = pickle.loads(pickle.dumps(results))
    assert restored.table.abscissa == "frame"
    results = RMSD(paceline.Universe(top, known).atoms).run(backend="serial").results
    assert results.table.abscissa == "time (ps)"


@pytest.mark.parametrize("name", ["PDB_multiframe", "XYZ", "TRJ_bz2"])
def test_times_that_mdanalysis_invents(name, capsys):
    """Check that commands report MDAnalysis's warning about times."""
    tops = {"PDB_multiframe": "PDB_multiframe", "XYZ": "XYZ", "TRJ_bz2": "PRM"}
    files = [getattr(datafiles, tops[name]), getattr(datafiles, name)]
    command = ["msd", *files, "--select", "index 0:5", "--end", "6", "--unwrap-particles", "none"]
    assert main(command) == 0
    said = capsys.readouterr().err
    assert "the times of frames are not known: " in said
    assert "counts frames as 1 ps apart; give --dt" in said
    assert main([*command, "--dt", "2ps"]) == 0
    assert "times of frames" not in capsys.readouterr().err


def test_times_that_mdanalysis_knows():
    """Check that MDAnalysis's DCD and TRR readers know times; a Universe in memory gets them as
    arguments.
    """
    universe = MDAnalysis.Universe(datafiles.PSF, datafiles.DCD)
    for one in (universe, universe.copy()):
        if one is not universe:
            one.transfer_to_memory()
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "the times", PacelineWarning)
            warnings.filterwarnings("error", ".*counted in frames", PacelineWarning)
            EinsteinMSD(one, "name CA", unwrap=None).run(stop=10)


# Repeated frames


@pytest.fixture
def restarted(tmp_path):
    """A file to which a restart was appended, the same in two files, and the expected frames."""
    positions = walk(200)
    first, second = np.arange(120), np.arange(110, 200)
    # Repeated frames have different positions the second time.
    redone = positions[second] + np.float32(0.5)
    catted = np.concatenate([positions[first], redone])
    right = np.concatenate([positions[:110], redone])
    times = np.concatenate([first, second]) * 0.1
    return (
        write_xtc(tmp_path / "catted.xtc", catted, times),
        [
            write_xtc(tmp_path / "one.xtc", positions[first], first * 0.1),
            write_xtc(tmp_path / "two.xtc", redone, second * 0.1),
        ],
        write_xtc(tmp_path / "right.xtc", right, np.arange(200) * 0.1),
    )


def test_a_restart_that_was_appended(restarted, top, tmp_path, capsys):
    catted, _, right = restarted
    with pytest.warns(PacelineWarning, match=r"frame 120 at 11 ps follows frame 119 at 11\.9"):
        wrong = RMSF(paceline.Universe(top, catted).atoms).run(backend="serial")
    ours = paceline.Universe(top, catted, continuous=True)
    assert ours.trajectory.n_frames == 200
    np.testing.assert_allclose(ours.trajectory.times(), np.arange(200) * 0.1, atol=1e-5)
    expected = RMSF(paceline.Universe(top, right).atoms).run(backend="serial").results.rmsf
    found = RMSF(ours.atoms).run(backend="serial").results.rmsf
    np.testing.assert_array_equal(found, expected)
    assert np.abs(wrong.results.rmsf - expected).max() > 0.01
    again = pickle.loads(pickle.dumps(ours.trajectory))
    assert (again.n_frames, again[150].time) == (200, ours.trajectory[150].time)
    with paceline.open(catted, continuous=True) as trajectory:
        np.testing.assert_array_equal(trajectory.positions()[:, 0], _series(right))
    command = ["rmsf", top, catted, "--select", "all", "-o", str(tmp_path / "rmsf.csv")]
    assert main([*command, "--continuous"]) == 0
    text = (tmp_path / "rmsf.csv").read_text()
    assert re.search("frames analysed: 200 frames, .*every frame from 0 to 199", text)


def _series(path):
    """Return the positions of the first atom."""
    return Reader(path).timeseries(order="fac")[:, 0]


def test_repeats_within_and_between_files(restarted, top, tmp_path):
    """Check a chain whose first file itself has repeated frames."""
    catted, parts, right = restarted
    whole = Reader(right).timeseries(order="fac")
    third = write_xtc(tmp_path / "three.xtc", whole[150:], np.arange(150, 200) * 0.1)
    for files in ([catted, third], [third, catted], [*parts, third], [*parts[::-1], third]):
        ours = Reader(files, continuous=True)
        np.testing.assert_allclose(ours.times(), np.arange(200) * 0.1, atol=1e-5)
        np.testing.assert_array_equal(ours.timeseries(order="fac"), whole)
        assert pickle.loads(pickle.dumps(ours)).n_frames == 200


def test_stretches_of_one_file_between_those_of_another(tmp_path):
    positions, times = walk(60), np.arange(60.0)
    both = np.r_[0:20, 40:60]
    # The restart begins at 5 ps, and replaces all frames from there on.
    outer = np.r_[both, 50:60]
    first = write_xtc(tmp_path / "a.xtc", positions[outer], times[outer])
    inner = write_xtc(tmp_path / "b.xtc", positions[20:50], times[20:50])
    ours = Reader([inner, first], continuous=True)
    np.testing.assert_array_equal(np.diff(ours.times()) > 0, True)
    assert set(ours.times()) == set(np.r_[times[:20], times[20:50], times[50:]])
    np.testing.assert_allclose(ours.timeseries(order="fac"), positions, atol=0.006)


def test_frames_that_are_lost_are_named(tmp_path):
    """Check a restart whose times differ from those of the frames that it replaces."""
    times = np.r_[0:10, 5.5:8.5]
    path = write_xtc(tmp_path / "a.xtc", walk(len(times)), times)
    with pytest.warns(PacelineWarning, match=r"4 of .*a\.xtc.*6 to 9 ps.* has begun again"):
        ours = Reader(path, continuous=True)
    np.testing.assert_array_equal(ours.times(), [*range(6), 5.5, 6.5, 7.5])


def test_times_that_are_counted_are_not_compared(tmp_path):
    """Check frame numbers as times: they begin at 0 in each file."""
    names = [write_dcd(tmp_path / f"{k}.dcd", walk(10), VMD) for k in range(2)]
    with pytest.warns(PacelineWarning, match="all frames are kept, in the order of the files"):
        assert Reader(names, continuous=True).n_frames == 20


def test_a_file_with_each_frame_twice(tmp_path):
    times = np.repeat(np.arange(1000.0), 2)
    positions = np.repeat(walk(1000, 3), 2, axis=0)
    ours = sounds(write_xtc(tmp_path / "a.xtc", positions, times), continuous=True)
    np.testing.assert_array_equal(ours.times(), np.arange(1000))
    assert len(ours.chain.files) == 1


def test_an_error_about_times_names_the_frame(restarted, top):
    """Check times in single precision: rounding errors add up beyond the tolerance for one."""
    catted, _, _ = restarted
    universe = paceline.Universe(top, catted)
    with pytest.raises(UnsupportedError, match=r"frame 120 is at 11\.0 ps, expected 12"):
        EinsteinMSD(universe, unwrap=None).run(backend="serial")


@pytest.mark.parametrize("odd", [1, 12, 100, 199])
def test_one_frame_out_of_step_is_named(tmp_path, top, odd):
    times = np.arange(200) * 0.1
    times[odd] += 0.03
    universe = paceline.Universe(top, write_xtc(tmp_path / "a.xtc", walk(200), times))
    with pytest.raises(UnsupportedError, match=rf"frame {odd} is at "):
        EinsteinMSD(universe, unwrap=None).run(backend="serial")


# Frames without positions


def test_a_file_of_velocities_is_named(tmp_path, capsys):
    from helpers.netcdf_files import values, write_scipy

    arrays = {name: values()[name] for name in ("velocities", "time")}
    path = str(write_scipy(tmp_path / "mdvel.nc", arrays))
    n_atoms = arrays["velocities"].shape[1]
    top = write_topology(tmp_path / "top.gro", n_atoms)
    universe = paceline.Universe(top, path)
    with pytest.raises(MissingDataError, match=r"mdvel\.nc: .*positions"):
        RMSD(universe.atoms).run()
    table = str(tmp_path / "t.csv")
    for command in (
        ["rmsd", "--select", "all"],
        ["rmsf", "--select", "all"],
        ["density", "--select", "all"],
        ["selection", "--select", "around 3 index 0"],
        ["align", "--select", "all"],
        ["msd", "--select", "all"],
    ):
        out = str(tmp_path / "a.xtc") if command[0] == "align" else table
        assert main([command[0], top, path, *command[1:], "-o", out]) != 0
        assert "mdvel.nc: " in capsys.readouterr().err, command


def test_pairs_of_readers_share_their_doubt(tmp_path):
    """Check that the times of a chain are unknown if those of one file are."""
    known = write_xtc(tmp_path / "a.xtc", walk(5), np.arange(5.0))
    unknown = write_dcd(tmp_path / "b.dcd", walk(5), VMD)
    for files in pairwise([known, unknown, known]):
        with pytest.warns(PacelineWarning, match=r"b\.dcd: the times of frames are not known"):
            assert Reader(list(files)).time_axis.doubt is not None
