"""Tests of HDF5 trajectories from opening to workers: every layout, by the core and by HDF5's
library.
"""

import math
import os
import pickle
import re
import subprocess
import sys
import warnings
from dataclasses import replace
from functools import partial
from itertools import product

import h5py
import MDAnalysis
import numpy as np
import pytest
from helpers.h5md_files import numbers, write_element, write_gromacs, write_simple
from helpers.programs import load_filters, without_filters
from MDAnalysisTests import datafiles

import paceline
from paceline.analysis.rms import RMSD, RMSF
from paceline.block import FIELDS, FrameBuffer
from paceline.contract import plan
from paceline.contract.source import extents_in
from paceline.errors import (
    DamagedFileError,
    FileChangedError,
    MissingDataError,
    PacelineWarning,
    UnsupportedError,
)
from paceline.hdf5 import open_any_convention, open_hdf5_trajectory
from paceline.hdf5.chunk_index import ChunkReader
from paceline.hdf5.dataset_description import read_series
from paceline.hdf5.file import File
from paceline.hdf5.h5py_reader import H5pyReader
from paceline.hdf5.open_hdf5_trajectory import is_hdf5
from paceline.hdf5.sandbox import run_in_sandbox
from paceline.mdanalysis.reader import Reader
from paceline.trajectory.open import open_file

HELD = numbers(n_frames=23, n_atoms=17)

#: Layouts that the core reads itself.
LAYOUTS = {
    "contiguous": {},
    "big-endian": {"dtype": ">f4"},
    "f64": {"dtype": "f8"},
    "frames": {"chunks": (1, 17, 3)},
    "mixed": {"chunks": (5, 4, 2)},
    "gzip": {"chunks": (1, 17, 3), "compression": "gzip"},
    "shuffle, gzip": {"chunks": (4, 17, 3), "compression": "gzip", "shuffle": True},
    "mixed, LZF": {"chunks": (5, 4, 2), "compression": "lzf"},
    "all filters": {
        "chunks": (5, 4, 2),
        "compression": "gzip",
        "shuffle": True,
        "fletcher32": True,
        "dtype": ">f8",
    },
    "zstd": {"chunks": (1, 17, 3), "compression": 32015, "compression_opts": (3,)},
    "shuffle, zstd": {
        "chunks": (5, 4, 2),
        "compression": 32015,
        "compression_opts": (7,),
        "shuffle": True,
        "fletcher32": True,
        "dtype": ">f8",
    },
    "shuffle, LZ4": {"chunks": (4, 17, 3), "compression": 32004, "shuffle": True},
    "LZ4 in blocks": {"chunks": (5, 4, 2), "compression": 32004, "compression_opts": (50,)},
}
#: Layouts that only HDF5's library can read, and the reasons.
FALLBACKS = {
    "float16": ({"dtype": "f2"}, "its numbers are float16"),
    "scale and offset": ({"chunks": (5, 17, 3), "scaleoffset": 3}, r"its filter .*\(6\)"),
    "external": ({"external": "numbers.bin"}, "external file"),
}
if h5py.h5z.filter_avail(h5py.h5z.FILTER_SZIP):
    szip = {"chunks": (5, 17, 3), "compression": "szip", "compression_opts": ("nn", 8)}
    FALLBACKS["szip"] = szip, r"its filter szip \(4\)"


def written(path, layout, **changes):
    load_filters(layout)
    layout = dict(layout)
    if "external" in layout:
        layout["external"] = [(path.parent / layout["external"], 0, h5py.h5f.UNLIMITED)]
        changes |= {"velocity": None, "force": None}
    return write_simple(path, **{**HELD._asdict(), **layout, **changes})


def stored(path, name="position"):
    """Return the values that h5py reads, as float32."""
    with h5py.File(path) as file:
        return file[f"particles/atoms/{name}/value"][:].astype(np.float32)


@pytest.fixture(params=LAYOUTS)
def path(request, tmp_path):
    return written(tmp_path / "a.h5md", LAYOUTS[request.param])


def test_every_layout_by_the_core(path):
    reader = Reader(path)
    assert not any(one.dataset.h5py_fallback for one in reader.file.chunk_index.elements.values())
    assert [reader.n_frames, reader.n_atoms, reader.file.format] == [23, 17, "H5MD"]
    for field, name in zip(FIELDS, ("position", "velocity", "force"), strict=True):
        shown = np.array([getattr(ts, field).copy() for ts in reader])
        assert np.array_equal(shown, stored(path, name))
    assert np.array_equal(reader.times(), HELD.time)
    assert [ts.data["step"] for ts in reader] == HELD.step.tolist()
    theirs = MDAnalysis.coordinates.H5MD.H5MDReader(str(path))
    for ts, other in zip(reader, theirs, strict=True):
        np.testing.assert_array_equal(ts.dimensions, other.dimensions)


@pytest.mark.parametrize("kind", FALLBACKS)
def test_other_layouts_by_hdf5_itself(kind, tmp_path):
    layout, why = FALLBACKS[kind]
    path = written(tmp_path / "a.h5md", layout)
    with pytest.warns(PacelineWarning, match=f"slower.*{why}"):
        reader = Reader(path, external=kind == "external")
    assert reader.file.chunk_index.elements["positions"].dataset.h5py_fallback
    shown = np.array([ts.positions.copy() for ts in reader])
    assert np.array_equal(shown, stored(path))
    universe = paceline.Universe(str(path), external=kind == "external")
    found = RMSF(universe.atoms[3:]).run(backend="threads", n_workers=3).results.rmsf
    assert np.array_equal(found, RMSF(universe.atoms[3:]).run(backend="serial").results.rmsf)


def test_virtual_datasets_and_links_to_other_files(tmp_path):
    path, other = tmp_path / "a.h5md", tmp_path / "b.h5md"
    written(path, {})
    written(other, {"chunks": (1, 17, 3)})
    with h5py.File(path, "a") as file:
        layout = h5py.VirtualLayout((23, 17, 3), "f4")
        layout[:] = h5py.VirtualSource(other.name, "particles/atoms/position/value", (23, 17, 3))
        unit = file["particles/atoms/position/value"].attrs["unit"]
        del file["particles/atoms/position/value"], file["particles/atoms/velocity/value"]
        made = file["particles/atoms/position"].create_virtual_dataset("value", layout)
        made.attrs["unit"] = unit
        file["particles/atoms/velocity/value"] = h5py.ExternalLink(
            other.name, "particles/atoms/velocity/value"
        )
    with pytest.warns(PacelineWarning, match="virtual"):
        reader = Reader(path, external=True)
    elements = reader.file.chunk_index.elements
    assert "another file" in elements["velocities"].dataset.h5py_fallback
    assert np.array_equal(reader[5].positions, stored(other)[5])
    assert np.array_equal(reader[6].velocities, stored(other, "velocity")[6])


BLOCKS = ([3, 4, 9, 22], [22, 5, 5, 0, 7], range(23))


def test_both_hands_say_the_same(path):
    file = open_file(path)
    for frames, judged, atoms in product(BLOCKS, (False, True), (None, np.array([0, 3, 16]))):
        compare_hands(file, np.array(frames), judged, atoms)


def compare_hands(file, frames, judged, atoms):
    blocks = []
    for kind in (ChunkReader, H5pyReader):
        n = file.n_atoms if atoms is None else len(atoms)
        block = FrameBuffer.allocate(frames, n, FIELDS, check_validity=judged)
        extents = extents_in(0, file, frames.astype(np.uint64))
        *_, damaged = kind(file.spec, atoms, 7).read(extents, block, required=7, skip=False)
        assert damaged == []
        blocks.append(block)
    for name in (*FIELDS, "validity", "dimensions", "times", "steps", "fields"):
        ours, theirs = (getattr(block, name) for block in blocks)
        assert (ours is None) == (theirs is None)
        assert ours is None or np.array_equal(ours, theirs, equal_nan=True)


def test_a_block_carries_its_own_part_of_the_tables_only(tmp_path):
    sizes = []
    for n_frames in (500, 5000):
        path = tmp_path / f"{n_frames}.h5md"
        write_simple(path, **numbers(n_frames=n_frames)._asdict(), chunks=(1, 9, 3))
        file = open_file(path)
        extents = extents_in(0, file, np.arange(10, 26, dtype=np.uint64))
        sizes.append(len(pickle.dumps((file.spec, extents))))
    assert sizes[1] - sizes[0] < 20
    assert sizes[1] < 6000


# Blocks and chunks

#: Frames of a chunk, and start and step of a run.
PARTED = [(16, 3, 1), (64, 63, 1), (64, 20, 1), (5, 3, 1), (16, 3, 3), (16, 5, 4), (25, 7, 2)]


def test_blocks_end_where_chunks_do():
    system = {"n_atoms": 3341, "n_wanted": 214, "frame_bytes": 12_000}
    for chunk, leaf in ((1, 16), (4, 16), (10, 10), (3, 12), (32, 16), (157, 157), (314, 157)):
        found = plan.make_plan(np.arange(5000), n_workers=2, chunk_frames=chunk, **system)
        assert found.leaf_frames == leaf
        assert found.block_frames % chunk == 0
        by_two = plan.make_plan(np.arange(0, 5000, 2), n_workers=2, chunk_frames=chunk, **system)
        assert by_two.block_frames % (chunk // math.gcd(chunk, 2)) == 0
    assert plan.make_plan(np.arange(9), n_workers=2, chunk_frames=64, **system).block_frames == 16
    at_random = np.array([5, 1, 7, 2])
    assert plan.make_plan(at_random, n_workers=2, chunk_frames=5, **system).leaf_frames == 16


@pytest.mark.parametrize(("chunk", "start", "step"), [*PARTED, (27, 200, 10), (2, 1, 1)])
def test_blocks_end_where_chunks_do_wherever_a_run_starts(chunk, start, step):
    frames = np.arange(start, 5000, step)
    system = {"n_atoms": 3341, "n_wanted": 214, "frame_bytes": 12_000, "n_workers": 2}
    found = plan.make_plan(frames, chunk_frames=chunk, **system)
    chunks_of = [set(found.frames[rows] // chunk) for rows in found.blocks()]
    assert len(chunks_of) > 8
    assert sum(map(len, chunks_of)) == len(set(frames // chunk))


@pytest.mark.parametrize(("chunk", "start", "step"), PARTED)
@pytest.mark.parametrize("n_frames", [1, 5, 300])
def test_leaves_are_the_same_in_blocks_of_any_size(chunk, start, step, n_frames):
    frames = np.arange(start, start + step * n_frames, step)
    found = set()
    for block_frames in (1, 40, 10**4, None):
        system = {"n_atoms": 3341, "n_wanted": 214, "frame_bytes": 12_000, "n_workers": 2}
        made = plan.make_plan(frames, chunk_frames=chunk, block_frames=block_frames, **system)
        blocks = list(made.blocks())
        rows = [row for block in blocks for row in range(block.start, block.stop)]
        assert rows == list(range(n_frames))
        assert [made.number(row) for row in rows] == [
            number for number, block in enumerate(blocks) for _ in range(block.start, block.stop)
        ]
        cuts = [made.leaves.cuts(block.start, block.stop - block.start) for block in blocks]
        assert all(np.diff(inner).min() > 0 for inner in cuts)
        per_block = made.block_frames // made.leaf_frames
        assert all(len(inner) - 1 == per_block for inner in cuts[:-1])
        leaves = [block.start + k for block, inner in zip(blocks, cuts, strict=True) for k in inner]
        found.add(tuple(sorted(set(leaves))))
    assert len(found) == 1


@pytest.mark.parametrize("step", [1, 3, 4])
def test_a_chunk_within_which_a_run_starts_is_read_for_one_block(step, tmp_path):
    path, some = tmp_path / "a.h5md", numbers(n_frames=400)._asdict()
    write_simple(path, **some, chunks=(16, 9, 3), compression="gzip")
    with h5py.File(path) as file:
        stored = file["particles/atoms/position/value"].id
        n_bytes = stored.get_storage_size() - stored.get_chunk_info(0).size
    file = open_file(path)
    frames = np.arange(21, 400, step)
    system = {"n_atoms": 9, "n_wanted": 9, "frame_bytes": 108, "n_workers": 2}
    found = plan.make_plan(frames, chunk_frames=file.chunk_frames, **system)
    read = []
    for block in map(found.frames.__getitem__, found.blocks()):
        # Each block is read by another worker, which has nothing cached from the previous block.
        reader, room = file.spec.open(None, 1), FrameBuffer.allocate(block, 9, ["positions"])
        extents = extents_in(0, file, block.astype(np.uint64))
        read.append(reader.read(extents, room, required=1, skip=False)[2])
    assert len(read) > 1
    assert sum(read) == n_bytes


def test_leaves_of_chunks_do_not_depend_on_who_computes():
    for chunk in (7, 64, 4000):
        leaves = {
            plan.make_plan(
                np.arange(n_frames),
                n_atoms=20_000,
                n_wanted=n_wanted,
                frame_bytes=100,
                n_workers=n_workers,
                chunk_frames=chunk,
            ).leaf_frames
            for n_frames in (100, 10**5)
            for n_wanted in (1, 20_000)
            for n_workers in (1, 64)
        }
        assert len(leaves) == 1


@pytest.mark.parametrize("together", [1, 2, 12, 100])
@pytest.mark.parametrize("chunk", [1, 7, 32, 10**6])
@pytest.mark.parametrize("block_frames", [None, 1, 50])
def test_blocks_do_not_part_what_a_writer_wants_together(together, chunk, block_frames):
    found = plan.make_plan(
        np.arange(10**4),
        n_atoms=50_000,
        n_wanted=50_000,
        frame_bytes=600_000,
        n_workers=2,
        block_frames=block_frames,
        chunk_frames=chunk,
        frames_together=together,
    )
    assert found.block_frames % together == 0


def test_chunks_that_memory_should_not_hold_are_read_again_and_that_is_said(tmp_path, monkeypatch):
    path = written(tmp_path / "a.h5md", {"chunks": (23, 17, 3), "compression": "gzip"})
    universe = paceline.Universe(str(path))
    wanted = RMSF(universe.atoms).run(backend="serial").results.rmsf
    monkeypatch.setattr(plan, "LARGEST_BLOCK_BYTES", 2000)
    monkeypatch.setattr(plan, "LARGEST_LEAF_BYTES", 2000)
    advice = re.escape(f"paceline repack {path} NEW.h5md --for frames writes")
    told = f"23 frames are stored as one chunk.* Each block of 16 frames .* up to 3 times.*{advice}"
    with pytest.warns(PacelineWarning, match=told):
        analysis = RMSF(universe.atoms).run(n_workers=2)
    np.testing.assert_allclose(analysis.results.rmsf, wanted, rtol=1e-12)


def test_chunks_too_large_to_be_kept_are_unpacked_once_a_block(tmp_path):
    n_atoms = 500_000
    position = np.zeros((6, n_atoms, 3))
    packed = {"chunks": position.shape, "compression": "gzip", "compression_opts": 1}
    path = tmp_path / "a.h5md"
    write_simple(
        path, position=position, velocity=None, force=None, edges=None, dtype="f8", **packed
    )
    with h5py.File(path, "a") as file:
        ids = file.create_group("particles/atoms/id")
        ids.create_dataset(
            "value",
            data=np.tile(np.arange(n_atoms, dtype="i4"), (6, 1)),
            chunks=(6, n_atoms),
            compression="gzip",
            compression_opts=1,
        )
        ids["step"] = file["particles/atoms/position/step"]
        n_bytes = sum(
            file[f"particles/atoms/{name}/value"].id.get_storage_size()
            for name in ("position", "id")
        )
    file = open_file(path, notes=False)
    assert file.chunk_index.ids is not None
    frames = np.arange(6)
    extents = extents_in(0, file, frames.astype(np.uint64))
    for judged, atoms in ((True, None), (False, np.array([5, 70]))):
        block = FrameBuffer.allocate(frames, 2, ["positions"], check_validity=judged)
        cost = file.spec.open(atoms, 1).read(extents, block, required=1, skip=False)
        assert cost[2] == n_bytes


def blocks_of_chunks(found, n_frames, chunk):
    """Return the maximum number of blocks that contain frames of the same chunk."""
    blocks = np.arange(n_frames) // found.block_frames
    chunks = np.split(blocks, range(chunk, n_frames, chunk))
    return max(len(np.unique(some)) for some in chunks)


@pytest.mark.parametrize(
    ("n_atoms", "n_wanted", "chunk"),
    [
        (10**6, 100, 25),  # a leaf of whole chunks would be too large
        (10**6, 10**6, 25),
        (3 * 10**5, 3 * 10**5, 100),
        (3341, 214, 64),
        (3341, 214, 15),
        (10**6, 10**6, 64),
    ],
)
def test_how_often_chunks_are_read_is_known(n_atoms, n_wanted, chunk):
    n_frames = 10_000
    found = plan.make_plan(
        np.arange(n_frames),
        n_atoms=n_atoms,
        n_wanted=n_wanted,
        frame_bytes=12 * n_wanted,
        n_workers=2,
        chunk_frames=chunk,
    )
    assert found.chunk_reads == blocks_of_chunks(found, n_frames, chunk)


# Same results on every backend


@pytest.fixture(scope="module")
def chunked(adk, tmp_path_factory):
    """Adenylate kinase in h5py's default chunks, which combine 13 frames; and its results."""
    path = tmp_path_factory.mktemp("chunked") / "adk.h5md"
    positions = MDAnalysis.Universe(*adk).trajectory.timeseries(order="fac")
    steps = np.arange(len(positions))
    write_simple(
        path,
        position=positions,
        velocity=None,
        force=None,
        edges=None,
        step=steps,
        time=steps * 1.0,
        chunks=True,
        compression="gzip",
        compression_opts=1,
    )
    universe = paceline.Universe(adk.topology, str(path))
    options = [{}, {"start": 3, "step": 4}, {"frames": [*range(97, 0, -2), 5, 5]}]
    return universe, options, [results(universe, backend="serial", **each) for each in options]


def results(universe, **how):
    ca = universe.select_atoms("name CA")
    series = paceline.TimeSeries(lambda block: block.positions[:, ::50, 1], ca[::-1])
    rmsd, rmsf, series = paceline.run([RMSD(ca), RMSF(universe.atoms), series], **how)
    return rmsd.results.rmsd, rmsf.results.rmsf, series.results.timeseries


@pytest.mark.parametrize("block_frames", [None, 1])
def test_same_bits(chunked, where, block_frames):
    universe, options, wanted = chunked
    for each, those in zip(options, wanted, strict=True):
        found = results(universe, block_frames=block_frames, **where, **each)
        for ours, others in zip(found, those, strict=True):
            assert np.array_equal(ours, others)


def test_the_same_numbers_as_of_another_format(chunked, adk):
    rmsd, rmsf, series = chunked[2][0]
    theirs = results(paceline.Universe(*adk))
    assert np.array_equal(rmsd[:, 2], theirs[0][:, 2])
    np.testing.assert_allclose(rmsf, theirs[1], rtol=1e-12)
    assert np.array_equal(series, theirs[2])


def test_worker_processes_load_no_h5py(chunked, adk, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        """
import sys
import warnings
import numpy as np
if __name__ == "__main__":
    import paceline
    def loaded(block):
        return np.full(len(block), len({"MDAnalysis", "h5py"} & set(sys.modules)))
    loaded = paceline.TimeSeries(loaded, paceline.Universe(*sys.argv[1:]).atoms)
    loaded.run(backend="processes", n_workers=2)
    print(loaded.results.timeseries.sum())
"""
    )
    files = [adk.topology, chunked[0].trajectory.filename]
    command = [sys.executable, str(script), *files]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "0\n"


# Chains, copies, and other readers


def test_files_of_several_formats_are_one_trajectory(chunked, adk):
    h5md = chunked[0].trajectory.filename
    chain = paceline.Universe(adk.topology, [adk.trajectory, h5md])
    assert chain.trajectory.n_frames == 196
    rmsf = RMSF(chain.atoms[:50]).run(step=3, n_workers=2).results.rmsf
    theirs = MDAnalysis.Universe(adk.topology, [adk.trajectory, adk.trajectory])
    positions = theirs.trajectory.timeseries(theirs.atoms[:50], step=3, order="fac").astype(float)
    np.testing.assert_allclose(rmsf, np.sqrt(positions.var(axis=0).sum(axis=1)), rtol=1e-6)


def test_copies_open_the_file_as_the_first_did(tmp_path):
    with h5py.File(tmp_path / "bare.h5", "w") as file:
        file["pos"] = HELD.position.astype("f4").reshape(23, 51)
    reader = Reader(tmp_path / "bare.h5", dataset="pos", units="nm")
    for copy in (pickle.loads(pickle.dumps(reader)), reader.copy()):
        assert np.array_equal(copy[9].positions, reader[9].positions)
        assert np.array_equal(copy[9].positions, HELD.position[9].astype("f4") * np.float32(10))


def test_a_file_that_changed_is_refused(path):
    universe = paceline.Universe(str(path))
    with h5py.File(path, "a") as file:
        file["particles/atoms/position/value"][3] = 0
        file["new"] = 1
    with pytest.raises(FileChangedError, match="changed since it was opened"):
        RMSF(universe.atoms).run()


@pytest.mark.parametrize("kind", ["mixed", "f64"])
def test_behind_mdanalysis_s_own_reader(kind, tmp_path):
    path = written(tmp_path / "a.h5md", LAYOUTS[kind])
    empty = MDAnalysis.Universe.empty(17, trajectory=False)
    theirs = empty.load_new(str(path), format="H5MD")
    theirs.trajectory[4]
    analysis = RMSD(theirs.atoms).run(n_workers=2)
    assert theirs.trajectory.frame == 4
    assert analysis.provenance["fingerprint"] == open_file(path).fingerprint
    wanted = RMSD(paceline.Universe(str(path)).atoms).run()
    assert np.array_equal(analysis.results.rmsd, wanted.results.rmsd)


def test_what_mdanalysis_pairs_by_row_is_left_to_it(tmp_path):
    path = written(tmp_path / "a.h5md", {}, velocity=None, force=None)
    with h5py.File(path, "a") as file:
        particles = file["particles/atoms"]
        # The file contains every second frame; MDAnalysis returns the data of frame 2k at frame k.
        particles["velocity/value"] = HELD.velocity[::2].repeat(2, axis=0)[:23].astype("f4")
        particles["velocity/value"].attrs["unit"] = "Angstrom ps-1"
        particles["velocity/step"] = np.arange(23) * 1000
    theirs = MDAnalysis.Universe.empty(17, trajectory=False).load_new(str(path), format="H5MD")
    with pytest.warns(PacelineWarning, match="frames are read by MDAnalysis"):
        RMSD(theirs.atoms).run()


#: Frames that are neither the first, nor the middle, nor the last.
BETWEEN = np.setdiff1d(np.arange(23), [0, 23 // 2, 22])


def permute(atoms):
    ids = np.tile(np.arange(17), (23, 1))
    ids[BETWEEN] = ids[BETWEEN, ::-1]
    write_element(atoms, "id", ids, step=atoms["position/step"], time=atoms["position/time"])


def shift(element, atoms):
    steps = atoms["position/step"][...]
    steps[BETWEEN] += 1
    del atoms[element]["step"]
    atoms[element]["step"] = steps


def set_value(name, value, atoms):
    values = atoms[name][...]
    values[BETWEEN] = value
    atoms[name][...] = values


def set_lengths(atoms):
    edges = atoms["box/edges"]
    lengths = np.diagonal(edges["value"][...], axis1=1, axis2=2).copy()
    lengths[BETWEEN, 2] = 0
    unit = edges["value"].attrs["unit"]
    del edges["value"]
    edges["value"] = lengths
    edges["value"].attrs["unit"] = unit


def series_of(universe):
    """Compute velocities, cells and times of all frames with an analysis."""
    numbers = lambda block: np.hstack([block.velocities[:, 3], block.dimensions])  # noqa: E731
    fields = ["positions", "velocities"]
    analysis = paceline.TimeSeries(numbers, universe.atoms, fields=fields)
    analysis.run(backend="serial")
    return np.column_stack([analysis.results.timeseries, analysis.times])


@pytest.mark.filterwarnings("ignore::paceline.errors.PacelineWarning")
@pytest.mark.parametrize(
    "change",
    [
        permute,
        partial(shift, "velocity"),
        partial(shift, "box/edges"),
        partial(set_value, "box/edges/value", np.eye(3) * 1e10),
        partial(set_value, "position/time", 1e16),
        set_lengths,
    ],
    ids=["ids", "steps", "steps of cells", "impossible cells", "impossible times", "flat cells"],
)
def test_numbers_are_those_that_mdanalysis_shows_between_the_compared_frames(change, tmp_path):
    path = written(tmp_path / "a.h5md", {})
    with h5py.File(path, "a") as file:
        change(file["particles/atoms"])
    theirs = MDAnalysis.Universe.empty(17, trajectory=False).load_new(str(path), format="H5MD")
    shown = [np.r_[ts.velocities[3], ts.dimensions, ts.time] for ts in theirs.trajectory]
    assert np.array_equal(series_of(theirs), shown)


def test_ids_that_mdanalysis_ignores_are_reported(tmp_path):
    path = written(tmp_path / "a.h5md", {})
    with h5py.File(path, "a") as file:
        permute(file["particles/atoms"])
    theirs = MDAnalysis.Universe.empty(17, trajectory=False).load_new(str(path), format="H5MD")
    with pytest.warns(PacelineWarning) as found:
        RMSD(theirs.atoms).run()
    messages = " ".join(str(one.message) for one in found)
    assert "MDAnalysis ignores the ids of atoms" in messages
    assert "frames are read by MDAnalysis (H5MDReader)" in messages


def test_a_system_that_tells_of_itself(tmp_path):
    path = tmp_path / "gromacs.h5md"
    write_gromacs(path, numbers())
    universe = paceline.Universe(str(path))
    assert (universe.filename, universe.trajectory.n_frames) == (str(path), 6)
    assert RMSF(universe.atoms).run().results.rmsf.shape == (9,)
    assert RMSF(universe.atoms).run().provenance["topology"] == str(path)


def test_real_files_of_mdanalysis():
    ours = paceline.Universe(datafiles.TPR_xvf, datafiles.H5MD_xvf)
    theirs = MDAnalysis.Universe(datafiles.TPR_xvf, datafiles.H5MD_xvf)
    assert type(ours.trajectory) is Reader
    for ts, other in zip(ours.trajectory, theirs.trajectory, strict=True):
        for name in (*FIELDS, "dimensions", "time"):
            np.testing.assert_array_equal(getattr(ts, name), getattr(other, name))


# Sandbox and verification


def test_recognised_by_content_also_behind_a_user_block(tmp_path):
    path = tmp_path / "of no telling name"
    with h5py.File(path, "w", userblock_size=2048) as file:
        file["pos"] = HELD.position.astype("f4")
    assert is_hdf5(path)
    universe = MDAnalysis.Universe.empty(17)
    universe.trajectory = Reader(path, dataset="pos", units={"length": "Angstrom"})
    assert np.array_equal(universe.trajectory[7].positions, HELD.position[7].astype("f4"))
    assert not is_hdf5(datafiles.XTC)


def test_questions_for_hdf5_are_refused_for_other_files():
    with pytest.raises(
        UnsupportedError,
        match=r"adk_oplsaa\.xtc: units= \(--units\) is for HDF5, DCD and LAMMPSDUMP files",
    ):
        Reader(datafiles.XTC, units="nm")


def test_where_the_core_is_wrong_hdf5_reads(tmp_path, monkeypatch):
    path = written(tmp_path / "a.h5md", {"velocity": None, "force": None})
    original = open_any_convention.read_chunk_index

    def shifted(opened, **asked):
        found = original(opened, **asked)
        element = found.elements["positions"]
        dataset = replace(element.dataset, offset=element.dataset.offset + 4)
        return replace(found, elements={"positions": replace(element, dataset=dataset)})

    monkeypatch.setattr(open_any_convention, "read_chunk_index", shifted)
    # Another process would not have this change.
    call = lambda function, path, **options: function(path, **options)  # noqa: E731
    monkeypatch.setattr(open_hdf5_trajectory, "run_in_sandbox", call)
    with pytest.warns(PacelineWarning, match="do not read the same numbers in frame"):
        reader = Reader(path)
    assert np.array_equal(reader[5].positions, stored(path)[5])


def test_numbers_that_only_some_frames_hold(tmp_path):
    path = written(tmp_path / "a.h5md", {"dtype": "f2"}, force=None)
    with h5py.File(path, "a") as file:
        velocity = file["particles/atoms/velocity"]
        unit, some = velocity["value"].attrs["unit"], velocity["value"][::4]
        for name in ("value", "step", "time"):
            del velocity[name]
        velocity["value"], velocity["step"] = some, HELD.step[::4]
        velocity["value"].attrs["unit"] = unit
    with pytest.warns(PacelineWarning, match="float16"):
        universe = paceline.Universe(str(path))
    moving = paceline.TimeSeries(
        lambda b: b.velocities[:, 0], universe.atoms, fields=["velocities"]
    )
    with pytest.raises(MissingDataError, match=r"a\.h5md: frame 1 has no velocities"):
        moving.run(backend="serial")
    moving.run(on_error="skip")
    assert [frame for frame, _ in moving.damaged] == [k for k in range(23) if k % 4]
    assert np.array_equal(moving.results.timeseries[4], stored(path, "velocity")[1, 0])


def test_links_and_attributes_as_plain_python(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        inner = file.create_group("g")
        inner["up"], inner["x"] = file["/"], np.arange(3)
        file["nowhere"], file["circle"] = h5py.SoftLink("/none"), h5py.SoftLink("/circle")
        file["elsewhere"] = h5py.ExternalLink("none.h5", "/x")
        file.attrs["fixed"], file.attrs["text"] = np.bytes_("a"), "b"
        file.attrs["list"], file.attrs["number"] = ["c", "d"], np.float32(2)
    with File(tmp_path / "a.h5") as file:
        assert file.root.attrs == {"fixed": "a", "text": "b", "list": ["c", "d"], "number": 2.0}
        assert [node.name for node in file.root.walk()] == ["/g", "/g/x"]
        assert file.root["g/up/g/up/g/x"].identity == file.root["g/x"].identity
        assert file.root.get("g/none") is None
        for name, why in (
            ("nowhere", "a link to /none that leads nowhere"),
            ("circle", "in a circle"),
        ):
            with pytest.raises(DamagedFileError, match=f"a.h5: /{name}: .*{why}"):
                file.root.get(name)
        with pytest.raises(UnsupportedError, match=r"/elsewhere is an external link to /x, .*none"):
            file.root.get("elsewhere")
    with File(tmp_path / "a.h5", external=True) as file:
        why = "/elsewhere: .* /x in file none.h5, which cannot be followed"
        with pytest.raises(DamagedFileError, match=why):
            file.root.get("elsewhere")


@pytest.mark.parametrize("swmr", [False, True])
def test_a_file_that_another_program_writes(swmr, tmp_path):
    path = tmp_path / "a.h5"
    code = f"""
import h5py, sys
file = h5py.File({str(path)!r}, "w", libver="latest")
file.create_dataset("x", (5,), maxshape=(None,), chunks=(1,))
if {swmr}:
    file.swmr_mode = True
file.flush()
print("ready", flush=True)
sys.stdin.read()
"""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as other:
        other.stdout.readline()
        with pytest.raises(UnsupportedError, match=r"another program(,| is writing it)"):
            open_file(path)
        other.stdin.close()
    with h5py.File(path, "a"), pytest.raises(UnsupportedError, match="this program has it open"):
        File(path)


def test_a_file_that_is_something_else_or_not_there(tmp_path):
    path = tmp_path / "b.h5md"
    path.write_bytes(b"something else")
    with pytest.raises(UnsupportedError, match=r"b\.h5md"):
        Reader(path)
    with pytest.raises(FileNotFoundError):
        Reader(tmp_path / "none.h5md")


# Reading through MPI-IO


@pytest.mark.parametrize(
    ("driver", "said"),
    [
        ("mpio", 'driver="mpio" is not used, because this h5py was built without MPI'),
        ("core", 'driver="core" is not used, because it changes no number'),
        ("stdio", 'driver="stdio" is not used'),
        ("sec2", None),
    ],
)
def test_drivers_of_h5py_change_nothing(driver, said, tmp_path):
    path = written(tmp_path / "a.h5md", {})
    if driver == "mpio" and h5py.get_config().mpi:
        pytest.skip("this h5py was built with MPI")
    for module in (paceline, MDAnalysis):
        with paceline.register(), warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            universe = module.Universe(paceline.Universe(path)._topology, path, driver=driver)
        assert type(universe.trajectory) is Reader
        found = [str(one.message) for one in given if "driver" in str(one.message)]
        assert len(found) == (said is not None)
        assert not found or said in found[0]
        assert np.array_equal(universe.trajectory[5].positions, stored(path)[5])


def test_other_drivers_and_a_lone_communicator_are_refused(tmp_path):
    path = written(tmp_path / "a.h5md", {})
    with pytest.raises(UnsupportedError, match="driver: expected none, mpio, or one of sec2"):
        Reader(path, driver="split")
    with pytest.raises(UnsupportedError, match=r'comm= requires files .* or driver="mpio"'):
        Reader(path, comm=object())
    with paceline.register(), pytest.raises(UnsupportedError, match="no driver, found driver='x'"):
        MDAnalysis.Universe(path, driver="x", comm=object())


@pytest.mark.skipif(not h5py.get_config().mpi, reason="this h5py was built without MPI")
@pytest.mark.parametrize("kind", ["contiguous", "all filters"])
def test_mpi_io_reads_the_same(kind, tmp_path):
    path = written(tmp_path / "a.h5md", LAYOUTS[kind])
    universe = paceline.Universe(str(path), driver="mpio")
    wanted = RMSF(paceline.Universe(str(path)).atoms[2:]).run().results.rmsf
    assert np.array_equal(universe.trajectory[5].positions, stored(path)[5])
    assert np.array_equal(RMSF(universe.atoms[2:]).run(n_workers=2).results.rmsf, wanted)


def test_a_program_ends_while_a_thread_asks_hdf5(tmp_path):
    """Check that the program does not wait for h5py's lock, held by a stopped thread for ever."""
    path = written(tmp_path / "a.h5md", FALLBACKS["scale and offset"][0])
    code = """
import sys, threading, time, warnings
warnings.simplefilter("ignore")
import paceline
trajectory = paceline.Universe(sys.argv[1]).trajectory
begun = threading.Event()
def read():
    while True:
        for frame in range(trajectory.n_frames):
            trajectory[frame]
            begun.set()
threading.Thread(target=read, daemon=True).start()
assert begun.wait(300)
time.sleep(0.2)
"""
    command = [sys.executable, "-c", code, str(path)]
    for _ in range(3):
        subprocess.run(command, check=True)


def test_filters_of_others(tmp_path):
    plugin = pytest.importorskip("hdf5plugin")
    chunks = {"chunks": (5, 17, 3)}
    ours = written(tmp_path / "zstd.h5md", {**chunks, **plugin.Zstd()})
    path = written(tmp_path / "bitshuffle.h5md", {**chunks, **plugin.Bitshuffle()})
    # A separate interpreter is needed, which has not imported it.
    code = (
        "import sys, paceline; from paceline.analysis.rms import RMSF; "
        "[print(RMSF(paceline.Universe(one).atoms).run().results.rmsf[0]) for one in sys.argv[1:]]"
    )
    command = [sys.executable, "-c", code, str(ours), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert re.findall(r"its filter .*", done.stderr)[0].startswith("its filter bitshuffle (32008)")
    wanted = np.sqrt(stored(path)[:, 0].astype(float).var(axis=0).sum())
    assert [float(line) for line in done.stdout.split()] == pytest.approx([wanted] * 2)
    shadow = tmp_path / "hdf5plugin.py"
    shadow.write_text("raise ImportError")
    command[2] = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {code}"
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert float(done.stdout) == pytest.approx(wanted)
    assert "UnsupportedError" in done.stderr
    assert "bitshuffle (32008), which HDF5 lacks here: pip install hdf5" in done.stderr


def test_steps_and_times_in_a_filter_that_hdf5_lacks(tmp_path, monkeypatch):
    load_filters("zstd")
    path, steps = tmp_path / "a.h5", np.arange(7) * 5
    zstd = {"compression": 32015, "compression_opts": (1,)}
    bzip2 = {"compression": 307, "compression_opts": (9,)}
    with h5py.File(path, "w") as file:
        file.create_dataset("step", data=steps, chunks=(3,), shuffle=True, **zstd)
        file.create_dataset("edges", data=np.ones((7, 3, 3)), chunks=(2, 3, 3), **zstd)
        file.create_dataset("parts", data=np.ones((7, 3)), chunks=(2, 1), **zstd)
        file.create_dataset("other", data=steps, chunks=(3,), **bzip2)
    with without_filters(monkeypatch), File(str(path)) as file:
        np.testing.assert_array_equal(read_series(file.root["step"]), steps)
        np.testing.assert_array_equal(read_series(file.root["edges"]), np.ones((7, 3, 3)))
        for name, words in (("parts", r"zstd \(32015\)"), ("other", r"bzip2 \(307\)")):
            with pytest.raises(UnsupportedError, match=f"/{name} .* {words}, .* pip install"):
                read_series(file.root[name])


def test_numbers_that_are_all_alike_take_next_to_no_bytes(tmp_path):
    load_filters("zstd")
    held = numbers(n_frames=8, n_atoms=20_000)._replace(position=np.zeros((8, 20_000, 3)))
    nothing = {"velocity": None, "force": None}
    storage = {"chunks": (8, 20_000, 3), "compression": 32015, "compression_opts": (3,)}
    path = write_simple(tmp_path / "a.h5md", **{**held._asdict(), **nothing}, **storage)
    with h5py.File(path) as file:
        assert file["particles/atoms/position/value"].id.get_storage_size() < 1_920_000 / 5000
    assert not paceline.Universe(str(path)).trajectory[7].positions.any()


def test_relative_paths_are_of_the_folder_of_now(tmp_path, monkeypatch):
    # The helper process that opens files may have been started in another folder.
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.h5").write_bytes(b"data")
        monkeypatch.chdir(tmp_path / name)
        assert run_in_sandbox(os.path.getsize, f"{name}.h5") == 4


@pytest.mark.parametrize("changes", [0, 2, 99])
def test_a_file_to_which_a_frame_is_written_is_opened_again(changes, tmp_path, monkeypatch):
    """A program may write between two reads of HDF5, so that they contradict each other."""
    path, tries = write_simple(tmp_path / "growing.h5md", **HELD._asdict()), []

    def meets_a_writer(function, path, **options):
        tries.append(os.stat(path).st_mtime_ns)
        if len(tries) <= max(1, changes):
            if changes:
                os.utime(path, ns=(0, len(tries)))
            raise DamagedFileError(f"{path}: another number of steps")
        return run_in_sandbox(function, path, **options)

    monkeypatch.setattr(open_hdf5_trajectory, "run_in_sandbox", meets_a_writer)
    if changes == 2:
        assert paceline.open(path).n_frames == 23
    else:
        with pytest.raises(DamagedFileError, match="another number of steps"):
            paceline.open(path)
    assert len(tries) == {0: 1, 2: 3, 99: open_hdf5_trajectory._TRIES}[changes]
