"""Tests of any function of a block, and of the frames passed to it."""

import pickle
import threading

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from MDAnalysis.analysis import rms as theirs_rms

import paceline
from paceline.analysis.distances import DistanceMatrixSeries
from paceline.analysis.figures import draw
from paceline.analysis.rdf import InterRDF
from paceline.analysis.rms import RMSF
from paceline.analysis.saved_table_format import read_saved
from paceline.block import AtomAttributes
from paceline.errors import AnalysisError, PacelineWarning, UnsupportedError


def test_the_function_sees_what_mdanalysis_sees(where, universe, theirs):
    group = universe.select_atoms("resid 5 or resid 1")[::-1]

    def flat(block):
        return block.positions.reshape(len(block), -1)

    series = paceline.TimeSeries(flat, group).run(**where)
    same = theirs.atoms[group.indices]
    wanted = np.array([same.positions.ravel() for _ in theirs.trajectory])
    assert series.results.timeseries.dtype == np.float32
    assert np.array_equal(series.results.timeseries, wanted)
    np.testing.assert_allclose(
        series.results.times, [ts.time for ts in theirs.trajectory], rtol=1e-7
    )
    assert np.array_equal(series.results.frames, np.arange(98))


def test_a_block_has_the_atoms_attributes(universe):
    ca = universe.select_atoms("name CA")[::-1]

    def attributes(block):
        assert block.names.tolist() == ["CA"] * 214
        return np.broadcast_to(np.column_stack([block.masses, block.charges]), (len(block), 214, 2))

    found = paceline.TimeSeries(attributes, ca).run(stop=2).results.timeseries
    assert np.array_equal(found[1], np.column_stack([ca.masses, ca.charges]))


def test_a_block_knows_the_residues_of_its_atoms(where, universe):
    group = universe.select_atoms("resid 5:8 or resid 1")[::-3]
    seen = {name: getattr(group, name) for name in ("resids", "resnames", "segids", "resindices")}

    def residues(block):
        for name, values in seen.items():
            assert getattr(block, name).tolist() == values.tolist()
        heavy = np.isin(block.resnames, ["MET", "ARG"])
        return np.full(len(block), heavy.sum())

    found = paceline.TimeSeries(residues, group).run(stop=40, **where).results.timeseries
    assert (found == np.isin(group.resnames, ["MET", "ARG"]).sum()).all()


def test_threads_ask_for_residues_at_once():
    numbers, of_another = np.array([7, 8]), []

    class Slow:
        """Atoms that one thread expands while another thread requests them, too."""

        def __getitem__(self, rows):
            if not of_another:
                of_another.append(None)
                other = threading.Thread(
                    target=lambda: of_another.append(attributes["resids"].tolist())
                )
                other.start()
                other.join()
            return numbers[rows]

    attributes = AtomAttributes({"names": numbers}, np.array([0, 0, 1]), {"resids": Slow()})
    assert attributes["resids"].tolist() == [7, 7, 8]
    assert of_another == [None, [7, 7, 8]]
    assert list(attributes) == ["names", "resids"]
    assert len(attributes) == 2


def test_a_series_has_a_label_and_a_unit(universe):
    series = paceline.TimeSeries(
        lambda block: block.positions[:, 0, 0], universe.atoms, label="x of the first", unit="Å"
    ).run(stop=3)
    frame = series.results.to_dataframe()
    assert list(frame) == ["frame", "time (ps)", "x of the first (Å)"]
    assert series.results.plot().get_ylabel() == "x of the first (Å)"
    dataset = series.results.to_xarray()
    assert dataset["x of the first"].attrs == {"units": "Å"}
    assert dataset["x of the first"].dims == ("time",)
    assert dataset["time"].attrs == {"units": "ps"}
    np.testing.assert_array_equal(dataset["time"], series.results.times)
    assert dataset.attrs["analysis"] == "TimeSeries"


def test_a_name_with_brackets_is_no_unit(universe):
    atoms = universe.select_atoms("name CA")
    dataset = InterRDF(atoms, atoms, nbins=5, norm="none").run(stop=2).results.to_xarray()
    assert dataset["r"].attrs == {"units": "Å"}
    assert "" not in dataset
    density = paceline.TimeSeries(lambda block: block.times, atoms, label="g(t)").run(stop=2)
    assert density.results.to_xarray()["g(t)"].attrs == {}


def test_several_numbers_a_frame_are_arrays_of_xarray(universe):
    atoms = universe.atoms[:4]
    series = paceline.TimeSeries(lambda block: block.positions, atoms, label="place", unit="Å")
    results = pickle.loads(pickle.dumps(series.run(stop=3).results))
    dataset = results.to_xarray()
    assert dataset["place"].dims == ("time", "axis_1", "axis_2")
    assert dataset["place"].attrs == {"units": "Å"}
    np.testing.assert_array_equal(dataset["place"], results.timeseries)
    np.testing.assert_array_equal(dataset["time"], results.times)
    assert dataset["frame"].dims == ("time",)
    distances = DistanceMatrixSeries(atoms).run(stop=3).results
    assert distances.to_xarray()["distance"].shape == (3, 6)
    with pytest.raises(UnsupportedError, match=r"have no table.* use to_xarray\(\)"):
        results.to_dataframe()


@pytest.mark.parametrize("several", [False, True])
def test_arrays_of_xarray_can_be_netcdf(universe, several, tmp_path):
    row = 0 if not several else slice(2)
    series = paceline.TimeSeries(
        lambda block: block.positions[:, row, 0].astype(np.float16), universe.atoms, label="a/b"
    )
    results = series.run(stop=3).results
    dataset = results.to_xarray()
    assert dataset["a_b"].dtype == np.float32
    np.testing.assert_array_equal(dataset["a_b"], results.timeseries)
    dataset.to_netcdf(tmp_path / "series.nc")


@pytest.mark.parametrize(("label", "unit"), [("time", "ns"), ("time", None), ("frame", "µs")])
@pytest.mark.parametrize("several", [False, True])
def test_columns_that_differ_by_their_units_are_all_kept(universe, label, unit, several):
    row = 0 if not several else slice(2)
    results = (
        paceline.TimeSeries(
            lambda block: block.positions[:, row, 0], universe.atoms, label=label, unit=unit
        )
        .run(stop=3)
        .results
    )
    dataset = results.to_xarray()
    name = "time (ps)" if label == "time" and not unit else "time"
    np.testing.assert_array_equal(dataset[name], results.times)
    np.testing.assert_array_equal(dataset["frame"], results.frames)
    own = dataset[f"{label} ({unit})" if unit else label]
    np.testing.assert_array_equal(own, results.timeseries)
    assert own.attrs == ({"units": unit} if unit else {})
    if not several:
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
        assert results.to_arrow().column_names == [*dataset.variables]


def test_a_series_as_a_table_of_arrow(universe):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    series = paceline.TimeSeries(
        lambda block: block.positions[:, 0, 0], universe.atoms, label="x of the first", unit="Å"
    ).run(stop=3)
    table = series.results.to_arrow()
    assert table.column_names == ["frame", "time", "x of the first"]
    assert table.schema.types == [pyarrow.int64(), pyarrow.float64(), pyarrow.float32()]
    assert table.schema.field("frame").metadata is None
    assert table.schema.field("time").metadata == {b"unit": b"ps"}
    assert table.schema.field("x of the first").metadata == {
        b"unit": "Å".encode(),
        b"label": b"x of the first",
    }
    assert table.schema.metadata[b"analysis"] == b"TimeSeries"
    results = series.results
    arrays = (results.frames, results.times, results.timeseries)
    for name, values in zip(table.column_names, arrays, strict=True):
        np.testing.assert_array_equal(table[name].to_numpy(), values)


def test_numbers_that_arrow_does_not_take(universe):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")

    def as_column(kind):
        series = paceline.TimeSeries(
            lambda block: block.positions[:, 0, 0].astype(kind), universe.atoms, label="x"
        )
        return series.run(stop=3).results

    swapped = as_column(np.dtype("f8").newbyteorder())
    assert swapped.to_arrow()["x"].to_pylist() == swapped.timeseries.tolist()
    with pytest.raises(UnsupportedError, match="column 'x': Arrow has no type for complex64"):
        as_column(np.complex64).to_arrow()


def test_names_of_atoms_as_a_table_of_arrow(universe):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    results = RMSF(universe.select_atoms("name CA")).run(stop=5).results
    table, frame = results.to_arrow(), results.to_dataframe()
    assert table.num_columns == frame.shape[1]
    for column, title in zip(table.columns, frame, strict=True):
        assert column.to_pylist() == frame[title].tolist()


def test_what_makes_no_table_makes_none_of_arrow(universe):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    series = paceline.TimeSeries(lambda block: block.positions[:, 0], universe.atoms).run(stop=3)
    with pytest.raises(UnsupportedError, match="have no table"):
        series.results.to_arrow()


class TestReduce:
    """Tests of two functions that compute one value of all frames."""

    @staticmethod
    def total(block):
        return [len(block), block.positions.sum(axis=0, dtype=float)]

    @staticmethod
    def add(left, right):
        left[0] += right[0]
        left[1] += right[1]
        return left

    def test_sum_of_all_frames(self, where, universe, theirs):
        ca = universe.select_atoms("name CA")
        count, positions = paceline.Reduce(self.total, self.add, ca).run(**where).results.value
        assert count == 98
        again = paceline.Reduce(self.total, self.add, ca).run(backend="serial").results.value
        assert np.array_equal(positions, again[1])
        atoms = theirs.atoms[ca.indices]
        expected = sum(atoms.positions.astype(float) for _ in theirs.trajectory)
        np.testing.assert_allclose(positions, expected, rtol=1e-9, atol=1e-6)

    def test_earlier_frames_come_first(self, where, universe):
        found = paceline.Reduce(
            lambda block: block.frames.tolist(), lambda a, b: a + b, universe.atoms
        ).run(step=3, **where)
        assert found.results.value == list(range(0, 98, 3))

    def test_damaged_frames_are_left_out(self, damaged):
        system, frames = damaged
        atoms = paceline.Universe(*system).atoms[:3]
        found = paceline.Reduce(self.total, self.add, atoms).run(on_error="skip")
        assert found.results.value[0] == 98 - len(frames)

    @pytest.mark.parametrize("block_frames", [1, 64])
    def test_no_function_sees_a_leaf_without_frames(self, block_frames, damaged):
        """Check that the second leaf, in which all 16 frames are damaged, is not passed to a
        function.
        """
        atoms = paceline.Universe(*damaged[0]).atoms[:3]

        def largest(**options):
            one = paceline.Reduce(lambda block: block.positions.max(axis=0), np.maximum, atoms)
            return one.run(on_error="skip", block_frames=block_frames, **options).results.value

        assert np.isfinite(largest()).all()
        with pytest.raises(UnsupportedError, match=r"Reduce of .*: no frame could be read"):
            largest(start=16, stop=32)

    def test_errors(self, universe):
        with pytest.raises(TypeError, match="merges"):
            paceline.Reduce(self.total, None, universe.atoms)
        with pytest.raises(TypeError, match="function of a block"):
            paceline.Reduce(1, self.add, universe.atoms)
        with pytest.raises(paceline.errors.AnalysisError, match="Reduce of"):
            paceline.Reduce(lambda block: 1 / 0, self.add, universe.atoms).run()


def test_a_merge_without_a_value_is_an_error(adk_xtc):
    """Check that a merge without a value is an error, because the result would miss frames."""
    ca = paceline.Universe(*adk_xtc).select_atoms("name CA")

    def summed(block):
        return block.positions.sum(axis=0, dtype=float)

    def add(left, right):
        left += right

    frames = 3 * list(range(98))
    words = r"when blocks were merged: TypeError: merge returned None: it must return the merged"
    for merged in (paceline.Reduce(summed, add, ca), paceline.Scan(summed, add, summed, ca)):
        options = {"frames": frames} if isinstance(merged, paceline.Reduce) else {"block_frames": 4}
        with pytest.raises(AnalysisError, match=words):
            merged.run(**options)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i2", "u8", "?", "c16", "U3", "M8[s]"])
def test_rows_keep_their_dtype(dtype, universe):
    series = paceline.TimeSeries(lambda block: np.zeros((len(block), 2), dtype), universe.atoms)
    assert series.run(stop=40, n_workers=2).results.timeseries.dtype == np.dtype(dtype)


@pytest.mark.parametrize("dtype", ["f4", "i8", "?", "c8", "U3", "M8[s]"])
def test_frames_that_were_left_out_are_missing_in_any_dtype(dtype, damaged):
    system, frames = damaged
    atoms = paceline.Universe(*system).atoms[:3]
    series = paceline.TimeSeries(lambda block: np.ones((len(block), 2), dtype), atoms)
    found = series.run(frames=[*range(98), 3], on_error="skip").results.timeseries
    missing = found == "" if dtype == "U3" else pd.isna(found)
    assert np.array_equal(missing.all(axis=1), np.isin([*range(98), 3], frames))
    assert np.array_equal(missing.any(axis=1), missing.all(axis=1))
    assert found.dtype == ("f8" if dtype in ("i8", "?") else dtype)


def largest(block):
    """Return the largest distance in each frame; without frames there is none."""
    if not np.isfinite(block.positions).all():
        raise ValueError("positions are missing")
    return np.abs(block.positions).max(axis=(1, 2))


@pytest.mark.parametrize("frames", [None, [*range(16, 33)]])
@pytest.mark.parametrize("block_frames", [1, 16, 64])
def test_no_function_sees_a_block_without_frames(block_frames, frames, damaged, where):
    """Check that blocks without frames are not passed to a function; the first block may be one."""
    system, missing = damaged
    ca = paceline.Universe(*system).select_atoms("name CA")
    options = {"on_error": "skip", "frames": frames, "block_frames": block_frames, **where}
    found = paceline.TimeSeries(largest, ca).run(**options).results
    np.testing.assert_array_equal(np.isnan(found.timeseries), np.isin(found.frames, missing))
    scan = paceline.Scan(
        lambda block: len(block),
        lambda left, right: left + right,
        lambda block, before: (before or 0) + np.arange(len(block)) + 0 * largest(block),
        ca,
    )
    counts = scan.run(**options).results.timeseries
    kept = counts[~np.isnan(counts)]
    np.testing.assert_array_equal(kept, np.arange(len(kept)))


def test_a_block_without_frames_may_be_the_first_of_a_checkpoint(damaged, tmp_path):
    ca = paceline.Universe(*damaged[0]).select_atoms("name CA")
    path, stop = tmp_path / "run.ckpt", tmp_path / "stop"
    stop.touch()

    def interrupted(block):
        if stop.exists():
            raise RuntimeError("stopped")
        return largest(block)

    def run(**options):
        # Both blocks without frames precede the first block with frames.
        frames = [*range(16, 32), *range(16, 32), *range(32, 48)]
        options |= {"on_error": "skip", "frames": frames, "block_frames": 16, "backend": "serial"}
        return paceline.TimeSeries(interrupted, ca).run(**options).results.timeseries

    with pytest.raises(AnalysisError, match="stopped"):
        run(checkpoint=path)
    assert path.exists()
    stop.unlink()
    np.testing.assert_array_equal(run(checkpoint=path), run())


def test_rows_of_no_frames_have_no_shape(damaged):
    ca = paceline.Universe(*damaged[0]).select_atoms("name CA")
    one = paceline.TimeSeries(largest, ca)
    with pytest.raises(UnsupportedError, match="TimeSeries of largest: no frame could be read"):
        one.run(start=16, stop=32, on_error="skip")


def test_no_function_sees_a_damaged_frame_beside_others(damaged):
    system, frames = damaged
    ca = paceline.Universe(*system).select_atoms("name CA")

    def sizes(block):
        assert np.isfinite(block.positions).all()
        assert len(block.times) == len(block)
        return block.frames

    series = paceline.TimeSeries(sizes, ca).run(on_error="skip", backend="serial", block_frames=16)
    kept = np.setdiff1d(np.arange(98), frames)
    assert np.array_equal(series.results.timeseries[kept], kept)
    assert np.isnan(series.results.timeseries[frames]).all()


def test_masked_numbers_are_refused(universe):
    def masked(block):
        return np.ma.masked_less(block.frames, 3)

    def records(block):
        return np.ones(len(block), int), masked(block)

    message = r"frames 0 to 15: expected an array, found one with masked numbers"
    for kind, function in ((paceline.TimeSeries, masked), (paceline.RaggedTimeSeries, records)):
        one = kind(function, universe)
        with pytest.raises(AnalysisError, match=message):
            one.run(backend="serial", block_frames=16)
        one.run(start=3)  # no atom is masked


def test_records_that_cannot_be_missing_are_an_error(damaged):
    ca = paceline.Universe(*damaged[0]).select_atoms("name CA")

    def counted(block):
        return np.ones(len(block), dtype=[("count", int), ("mean", float)])

    series = paceline.TimeSeries(counted, ca)
    assert series.run(stop=3).results.timeseries["count"].sum() == 3
    with pytest.raises(AnalysisError, match=r"counted: rows of .* have no NaN for frames that"):
        series.run(stop=5, on_error="skip")


def test_a_function_may_fill_the_same_array_again(universe):
    out = np.empty(16)

    def fill(block):
        out[: len(block)] = block.frames
        return out[: len(block)]

    found = paceline.TimeSeries(fill, universe.atoms).run(backend="serial", block_frames=1)
    assert np.array_equal(found.results.timeseries, np.arange(98))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"start": 10},
        {"start": -10},
        {"stop": -3, "step": 7},
        {"stop": 1000},
        {"start": 50, "stop": 10, "step": -1},
        {"step": -3},
        {"frames": [3]},
        {"frames": [-1, 3, 3, 0, -98]},
        {"frames": np.array([5, 4, 3], dtype=np.uint8)},
        {"frames": np.arange(98) % 5 == 0},
        {"frames": [True] + [False] * 97},
    ],
)
def test_frames_are_chosen_as_in_mdanalysis(options, universe, theirs):
    def frames(block):
        return block.frames

    series = paceline.TimeSeries(frames, universe.atoms[:3]).run(**options)
    wanted = theirs_rms.RMSD(theirs.atoms[:3]).run(**options)
    assert np.array_equal(series.results.timeseries, wanted.results.rmsd[:, 0])
    assert np.array_equal(series.frames, wanted.frames)
    np.testing.assert_allclose(series.times, wanted.times, rtol=1e-7)
    assert series.n_frames == len(wanted.frames)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"frames": [98]}, IndexError, "frame 98 is out of range for 98 frames"),
        ({"frames": [0, -99]}, IndexError, "frame -99"),
        ({"frames": [0.5]}, ValueError, "integers or booleans"),
        ({"frames": [[1, 2]]}, ValueError, "one-dimensional"),
        ({"frames": True}, ValueError, "one-dimensional"),
        ({"frames": [True, False]}, ValueError, "2 booleans"),
        ({"frames": []}, ValueError, "no frames"),
        ({"start": 98}, ValueError, "no frames"),
        ({"step": 0}, ValueError, "step must not be 0"),
        ({"frames": [1], "stop": 3}, ValueError, "not both"),
        ({"on_error": "ignore"}, ValueError, "'ignore'"),
    ],
)
def test_impossible_frames_are_errors(options, error, words, universe):
    with pytest.raises(error, match=words):
        paceline.TimeSeries(lambda block: block.frames, universe.atoms).run(**options)


def test_several_analyses_read_their_atoms_once(adk_in_water):
    atoms = paceline.Universe(*adk_in_water).atoms
    left, right = atoms[:2000], atoms[1000:20000:3]

    def bytes_read(*groups):
        analyses = [paceline.TimeSeries(lambda block: block.times, group) for group in groups]
        paceline.run(analyses, backend="serial")
        return sum(block.bytes for block in analyses[0].timings.blocks)

    assert bytes_read(left, right) == bytes_read(left | right)
    assert bytes_read(left) < bytes_read(right)
    assert bytes_read(right, right) == bytes_read(right)


def test_labels_of_other_columns_are_refused(universe):
    atoms, function = universe.atoms, (lambda block: block.times)
    for make in (
        lambda: paceline.RaggedTimeSeries(function, atoms, label="frame"),
        lambda: paceline.RaggedTimeSeries(function, atoms, label="time (ps)"),
        lambda: paceline.TimeSeries(function, atoms, label="frame"),
        lambda: paceline.TimeSeries(function, atoms, label="time", unit="ps"),
    ):
        with pytest.raises(ValueError, match=r"already has a column '(frame|time \(ps\))'"):
            make()
    assert paceline.TimeSeries(function, atoms, label="frame", unit="1").label == "frame"


def test_several_analyses_are_given_back_as_they_came(universe):
    analyses = (paceline.TimeSeries(len, universe.atoms), universe)
    with pytest.raises(TypeError, match=r"found paceline\.universe\.Universe"):
        paceline.run(analyses)
    with pytest.raises(ValueError, match="empty"):
        paceline.run([])
    with pytest.raises(TypeError, match="found int"):
        paceline.TimeSeries(3, universe.atoms)


def ends(block):
    return block.positions[:, -1].astype(np.float64)


def test_several_numbers_of_a_frame_have_names(universe, tmp_path):
    ca = universe.select_atoms("name CA")
    found = paceline.TimeSeries(ends, ca, label=["x", "y", "turn"], unit=["Å", "Å", "°"]).run(
        stop=9
    )
    frame = found.results.to_dataframe()
    assert [*frame] == ["frame", "time (ps)", "x (Å)", "y (Å)", "turn (°)"]
    np.testing.assert_array_equal(frame.to_numpy()[:, 2:], found.results.timeseries)
    assert list(found.results.means) == ["x (Å)", "y (Å)", "turn (°)"]
    assert [one.partition(":")[0] for one in found.results.summary()] == ["x", "y", "turn"]
    above, below = found.results.plot().figure.axes
    legends = [[text.get_text() for text in one.get_legend().get_texts()] for one in (above, below)]
    assert [[name.partition(",")[0] for name in one] for one in legends] == [["x", "y"], ["turn"]]
    assert all(", mean " in name for one in legends for name in one)
    assert [above.get_ylabel(), below.get_ylabel()] == ["value (Å)", "turn (°)"]
    values = found.results.timeseries[:, 2]
    assert below.get_ylim()[0] > values.min() - np.ptp(values)
    found.results.save(tmp_path / "a.csv")
    assert "# mean of turn (°): " in (tmp_path / "a.csv").read_text(encoding="utf-8")
    saved = read_saved(tmp_path / "a.csv").table()
    assert [list(one.y) for one in saved.panels] == [["x (Å)", "y (Å)"], ["turn (°)"]]
    two = draw([saved, saved], Figure().subplots()).figure.axes
    assert [len(one.lines) for one in two] == [4, 2]
    same = paceline.TimeSeries(ends, ca, label="abc", unit="Å").run(stop=2)
    assert same.results.table is None
    one_unit = paceline.TimeSeries(ends, ca, label=list("abc"), unit="Å").run(stop=2)
    assert list(one_unit.results.table.y) == ["a (Å)", "b (Å)", "c (Å)"]


def test_names_that_are_not_as_many_as_numbers_are_reported(universe):
    ca = universe.select_atoms("name CA")
    with pytest.warns(PacelineWarning, match="label names 2 values per frame"):
        found = paceline.TimeSeries(ends, ca, label=["a", "b"]).run(stop=2)
    assert (found.results.table, found.results.timeseries.shape) == (None, (2, 3))


@pytest.mark.parametrize(
    ("label", "unit", "words"),
    [
        (["a", "b"], ["Å"], "equally many texts"),
        (["a", "a"], None, "different names"),
        ([], None, "different names"),
        (["a", "frame"], None, "already has a column 'frame'"),
        ("a", ["Å"], "unit must be a text"),
    ],
)
def test_names_without_sense_are_refused(label, unit, words, universe):
    with pytest.raises(ValueError, match=words):
        paceline.TimeSeries(ends, universe, label=label, unit=unit)
