"""Tests of H5MD files written frame by frame: all readers read what was written, or there is no
file.
"""

import inspect
import os
import subprocess
import sys
import time
from pathlib import Path

import h5py
import MDAnalysis
import numpy as np
import pyh5md
import pytest
from helpers.disks import full_disk
from helpers.programs import HDF5_TOOLS, load_filters
from MDAnalysis.coordinates import H5MD
from MDAnalysis.coordinates.memory import MemoryReader
from MDAnalysis.units import get_conversion_factor
from MDAnalysisTests import datafiles

import paceline
from paceline.errors import AtomCountError, UnsupportedError, UnwritableError
from paceline.mdanalysis import h5md_writer

POSITION = "particles/trajectory/position/value"
LAYOUTS = [
    {},
    {"chunk": "auto", "for_": "both"},
    {"chunk": "7x100"},
    {"chunk": "contiguous", "n_frames": 30},
    {"compress": "gzip:1"},
    {"compress": "shuffle+gzip:4", "chunk": "16x100"},
    {"compress": "shuffle+zstd:3", "chunk": "16x100"},
    {"compress": "lz4"},
    {"compress": "shuffle+lzf", "chunk": "16x100"},
    {"align": 4096, "chunk": "4x100"},
]


def write(atoms, path, *, frames=slice(None), **options):
    """Write all frames of a group."""
    with paceline.H5MDWriter(path, len(atoms), **options) as writer:
        for _ in atoms.universe.trajectory[frames]:
            writer.write(atoms)


def read(path, n_atoms):
    universe = MDAnalysis.Universe.empty(n_atoms)
    universe.load_new(str(path), format="H5MD")
    return universe


@pytest.fixture(scope="module")
def moving() -> MDAnalysis.Universe:
    """Positions, velocities and forces of 60 atoms in 9 frames in memory; the cell is triclinic."""
    rng = np.random.default_rng(3)
    universe = MDAnalysis.Universe.empty(60, trajectory=True, velocities=True, forces=True)
    positions, velocities, forces = rng.normal(0, 30, (3, 9, 60, 3)).astype(np.float32)
    universe.load_new(
        positions,
        format=MemoryReader,
        velocities=velocities,
        forces=forces,
        dimensions=np.array([[40, 50, 60, 80, 90, 100 + k] for k in range(9)], dtype=np.float32),
        dt=2.0,
    )
    return universe


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_mdanalysis_reads_what_was_written(layout, universe, tmp_path):
    load_filters(layout)
    ca = universe.select_atoms("name CA")
    write(ca, tmp_path / "out.h5md", frames=slice(30), **layout)
    found = read(tmp_path / "out.h5md", len(ca))
    for ts, source in zip(found.trajectory, universe.trajectory[:30], strict=True):
        np.testing.assert_array_equal(ts.positions, ca.positions)
        assert (ts.time, ts.dimensions) == (source.time, None)
    assert os.listdir(tmp_path) == ["out.h5md"]


def test_velocities_forces_and_cells_are_kept(moving, tmp_path):
    write(moving.atoms, tmp_path / "out.h5md", chunk="4x60", compress="gzip:1")
    found = read(tmp_path / "out.h5md", 60)
    for ts, source in zip(found.trajectory, moving.trajectory, strict=True):
        for field in ("positions", "velocities", "forces"):
            np.testing.assert_array_equal(getattr(ts, field), getattr(source, field))
        np.testing.assert_allclose(ts.dimensions, source.dimensions, rtol=1e-6)
        assert ts.time == source.time


def test_only_what_is_asked_for_is_written(moving, tmp_path):
    write(moving.atoms, tmp_path / "out.h5md", velocities=False, forces=False)
    with h5py.File(tmp_path / "out.h5md") as file:
        assert set(file["particles/trajectory"]) == {"box", "position"}


def test_pyh5md_reads_what_was_written(moving, tmp_path):
    write(moving.atoms, tmp_path / "out.h5md", author="Ada")
    with pyh5md.File(str(tmp_path / "out.h5md"), "r") as file:
        assert file["h5md/author"].attrs["name"] == "Ada"
        particles = file.particles_group("trajectory")
        position = pyh5md.element(particles, "position")
        edges = pyh5md.element(particles["box"], "edges")
        assert list(particles["box"].attrs["boundary"]) == ["periodic"] * 3
        for k, ts in enumerate(moving.trajectory):
            np.testing.assert_array_equal(position.value[k], ts.positions)
            np.testing.assert_allclose(edges.value[k], ts.triclinic_dimensions, atol=1e-5)
            assert (position.step[k], position.time[k]) == (ts.frame, ts.time)


@pytest.mark.parametrize("tool", HDF5_TOOLS)
def test_tools_of_hdf5_find_nothing_wrong(tool, universe, tmp_path):
    path = tmp_path / "out.h5md"
    write(universe.select_atoms("name CA"), path, compress="shuffle+gzip:4", align=4096)
    done = subprocess.run([tool, path], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_what_the_topology_knows_is_kept(universe, tmp_path):
    group = universe.select_atoms("resid 10:20")
    write(group, tmp_path / "out.h5md", frames=slice(3))
    with h5py.File(tmp_path / "out.h5md") as file:
        particles = file["particles/trajectory"]
        np.testing.assert_array_equal(particles["mass"], group.masses)
        np.testing.assert_array_equal(particles["charge"], group.charges)
        assert {name: particles[name].attrs["unit"] for name in ("mass", "charge")} == {
            "mass": "u",
            "charge": "e",
        }
        kinds = {number: kind for kind, number in h5py.check_enum_dtype(
            particles["species"].dtype
        ).items()}  # fmt: skip
        assert [kinds[number] for number in particles["species"][:]] == group.types.tolist()
        atoms = file["parameters/atoms"]
        assert atoms["name"].asstr()[:].tolist() == group.names.tolist()
        assert atoms["resname"].asstr()[:].tolist() == group.resnames.tolist()
        assert atoms["resid"][:].tolist() == group.resids.tolist()
        bonds = file["connectivity/bonds"]
        found = {frozenset(pair) for pair in group.indices[bonds[:]].tolist()}
        assert found == {frozenset(pair) for pair in group.intra_bonds.to_indices().tolist()}
        assert file[bonds.attrs["particles_group"]] == particles


def test_a_file_is_its_own_topology(universe, tmp_path):
    protein = universe.select_atoms("resid 1:50")
    write(protein, tmp_path / "out.h5md", frames=slice(2))
    found = paceline.Universe(str(tmp_path / "out.h5md")).atoms
    for name in ("names", "types", "masses", "charges", "resids", "resnames", "segids"):
        np.testing.assert_array_equal(getattr(found, name), getattr(protein, name))
    assert len(found.bonds) == len(protein.intra_bonds)


def test_a_file_says_where_it_comes_from(universe, tmp_path):
    write(universe.atoms, tmp_path / "out.h5md", precision=0.001)
    with h5py.File(tmp_path / "out.h5md") as file:
        assert tuple(file["h5md"].attrs["version"]) == (1, 1)
        assert file["h5md/creator"].attrs["name"] == "paceline"
        assert file["h5md/creator"].attrs["version"] == paceline.__version__
        assert file["h5md/author"].attrs["name"]
        origin = {name: value.asstr()[()] for name, value in file["parameters/origin"].items()}
        assert origin["trajectory"] == universe.trajectory.filename
        assert origin["fingerprint"] == universe.trajectory.chain.files[0].fingerprint
        assert origin["topology"] == universe.filename
        assert file[POSITION].attrs["rounded_to_multiples_of"] == 2**-10
        units = {name: file[name].attrs["unit"] for name in (POSITION, POSITION[:-5] + "time")}
        assert list(units.values()) == ["Angstrom", "ps"]


def test_rounded_positions_are_within_half_the_precision_and_smaller(universe, tmp_path):
    options = {"compress": "shuffle+gzip:4", "frames": slice(20)}
    write(universe.atoms, tmp_path / "exact.h5md", **options)
    write(universe.atoms, tmp_path / "rounded.h5md", precision=0.01, **options)
    found = read(tmp_path / "rounded.h5md", universe.atoms.n_atoms)
    for ts, source in zip(found.trajectory, universe.trajectory[:20], strict=True):
        assert np.abs(ts.positions - source.positions).max() <= 0.005
    sizes = [(tmp_path / name).stat().st_size for name in ("rounded.h5md", "exact.h5md")]
    assert sizes[0] < 0.7 * sizes[1]


def test_a_reader_s_own_units_become_ours(tmp_path):
    theirs = MDAnalysis.Universe(datafiles.GRO, datafiles.TRR, convert_units=False)
    group = theirs.atoms[:500]
    write(group, tmp_path / "out.h5md", frames=slice(2))
    expected = MDAnalysis.Universe(datafiles.GRO, datafiles.TRR)
    found = read(tmp_path / "out.h5md", 500)
    for ts, source in zip(found.trajectory, expected.trajectory[:2], strict=True):
        np.testing.assert_allclose(ts.positions, source.positions[:500], rtol=1e-6)
        np.testing.assert_allclose(ts.velocities, source.velocities[:500], rtol=1e-6)
        np.testing.assert_allclose(ts.dimensions, source.dimensions, rtol=1e-6)


def test_what_else_a_frame_has_is_observed(moving, tmp_path):
    with paceline.H5MDWriter(tmp_path / "out.h5md", 60) as writer:
        for ts in moving.trajectory:
            ts.data["energy"] = 0.5 * ts.frame
            writer.write(moving.atoms)
    del moving.trajectory.ts.data["energy"]
    found = read(tmp_path / "out.h5md", 60)
    assert [ts.data["energy"] for ts in found.trajectory] == [0.5 * k for k in range(9)]


def test_observables_come_in_any_order(moving, tmp_path):
    with paceline.H5MDWriter(tmp_path / "out.h5md", 60) as writer:
        for ts in moving.trajectory:
            for name in ("energy", "volume") if ts.frame % 2 else ("volume", "energy"):
                ts.data.pop(name, None)
                ts.data[name] = len(name) + ts.frame / 2
            writer.write(moving.atoms)
    del moving.trajectory.ts.data["energy"], moving.trajectory.ts.data["volume"]
    with h5py.File(tmp_path / "out.h5md") as file:
        for name in ("energy", "volume"):
            expected = len(name) + np.arange(9) / 2
            np.testing.assert_array_equal(file[f"observables/{name}/value"], expected)


def test_frames_that_do_not_come_leave_no_room(moving, tmp_path):
    write(moving.atoms, tmp_path / "out.h5md", chunk="contiguous", n_frames=30)
    assert len(read(tmp_path / "out.h5md", 60).trajectory) == 9
    with pytest.raises(UnwritableError, match="frame 5: expected at most 5 frames"):
        write(moving.atoms, tmp_path / "few.h5md", chunk="contiguous", n_frames=5)
    assert os.listdir(tmp_path) == ["out.h5md"]


def test_names_of_changing_groups_are_not_written(universe, tmp_path):
    first, other = universe.atoms[:50], universe.atoms[50:100]
    with paceline.H5MDWriter(tmp_path / "out.h5md", 50) as writer:
        for k, _ in enumerate(universe.trajectory[:4]):
            writer.write(other if k == 2 else first)
    with h5py.File(tmp_path / "out.h5md") as file:
        assert "mass" not in file["particles/trajectory"]
        assert list(file["parameters/atoms"]) == []
        assert file["parameters/origin/atoms"].asstr()[()] == "not the same in all frames"
        universe.trajectory[2]
        np.testing.assert_array_equal(file[POSITION][2], other.positions)


def test_what_cannot_be_written_is_named_and_leaves_nothing(universe, moving, tmp_path):
    def fails(kind, words, atoms, change, **options):
        def write_four():
            with paceline.H5MDWriter(tmp_path / "out.h5md", len(atoms), **options) as writer:
                for _ in atoms.universe.trajectory[:3]:
                    writer.write(atoms)
                writer.write(change())

        with pytest.raises(kind, match=words):
            write_four()
        assert list(tmp_path.iterdir()) == []

    ca = universe.select_atoms("name CA")
    fails(AtomCountError, "expected 214 atoms, found 3341", ca, lambda: universe.atoms)
    fails(TypeError, "expected an AtomGroup or a Universe, found str", ca, lambda: "CA")

    def not_finite():
        universe.trajectory[3].positions[ca.indices[7], 1] = np.nan
        return ca

    fails(UnwritableError, r"out.h5md: frame 3: .*atom 7", ca, not_finite)

    def backwards():
        universe.trajectory[2]
        return ca

    fails(UnwritableError, "frame 3: expected a step after 3000, found 3000", ca, backwards)

    def without_velocities():
        moving.trajectory[3].has_velocities = False
        return moving.atoms

    words = "frame 3: expected positions, velocities, forces as in the first"
    fails(UnwritableError, words, moving.atoms, without_velocities)
    moving.trajectory.ts.has_velocities = True


def test_what_cannot_be_made_is_refused_at_once(tmp_path):
    def fails(kind, words, **options):
        with pytest.raises(kind, match=words):
            paceline.H5MDWriter(tmp_path / "out.h5md", 10, **options)

    fails(UnsupportedError, "needs n_frames", chunk="contiguous")
    fails(UnsupportedError, "contiguous storage cannot be compressed", n_frames=3,
          chunk="contiguous", compress="gzip:1")  # fmt: skip
    fails(UnsupportedError, "expected a compression", compress="zip")
    fails(UnsupportedError, "expected a chunk", chunk="8")
    fails(UnwritableError, "a precision must be", precision=-1.0)
    fails(UnwritableError, "at most 1 Å such as 0.001, found 1000; XTC", precision=1000)
    with pytest.raises(UnsupportedError, match="at least 1 atom"):
        paceline.H5MDWriter(tmp_path / "out.h5md", 0)
    (tmp_path / "out.h5md").touch()
    fails(FileExistsError, "exists")


MDANALYSIS = H5MD.H5MDWriter
#: For each keyword of MDAnalysis's writer that changes its file, values that paceline accepts, too.
KEYWORDS = [
    {},
    {"n_frames": 9},
    {"n_frames": 9, "chunks": False},
    {"chunks": (3, 20, 3)},
    {"compression": "gzip"},
    {"compression": "gzip", "compression_opts": 7, "chunks": (2, 60, 3)},
    {"compression": "lzf"},
    {"compression": 3},
    {"compression": 32015, "compression_opts": (5,)},
    {"compression": 32015},
    {"compression": 32004, "compression_opts": (0,)},
    {"velocities": False},
    {"positions": False, "forces": False},
    {"timeunit": "fs"},
    {"timeunit": "AKMA", "velocityunit": "A/AKMA"},
    {"lengthunit": "nm", "velocityunit": "nm/ps", "forceunit": "kJ/(mol*nm)"},
    {
        "lengthunit": "pm",
        "timeunit": "second",
        "velocityunit": "m/s",
        "forceunit": "kcal/(mol*Angstrom)",
    },
    {"forceunit": "N", "chunks": False, "n_frames": 9},
    {"author": "Ada", "author_email": "ada@example.org"},
    {"creator": "mine", "creator_version": "1.2"},
    {"driver": "stdio", "convert_units": True},
]

#: Group and attribute of each property that consists of names.
NAMES = {
    "author": ("author", "name"),
    "author_email": ("author", "email"),
    "creator": ("creator", "name"),
    "creator_version": ("creator", "version"),
}


def write_as_mdanalysis(atoms, path, **options):
    """Write the same with MDAnalysis's writer, with paceline's default units."""
    units = {
        "timeunit": "ps",
        "lengthunit": "Angstrom",
        "velocityunit": "Angstrom/ps",
        "forceunit": "kJ/(mol*Angstrom)",
    }
    with MDANALYSIS(str(path), len(atoms), **(units | options)) as writer:
        for _ in atoms.universe.trajectory:
            writer.write(atoms)
    writer.h5md_file.close()


def datasets(group):
    """Return the names and datasets of a group; linked datasets under each of their names."""
    for name, found in group.items():
        if isinstance(found, h5py.Group):
            yield from ((f"{name}/{inner}", one) for inner, one in datasets(found))
        else:
            yield name, found


@pytest.mark.parametrize("options", KEYWORDS, ids=str)
def test_mdanalysis_s_keywords_make_what_its_writer_makes(options, moving, tmp_path):
    load_filters(options)
    paths = [tmp_path / "theirs.h5md", tmp_path / "ours.h5md"]
    write_as_mdanalysis(moving.atoms, paths[0], **options)
    write(moving.atoms, paths[1], **options)
    with h5py.File(paths[0]) as theirs, h5py.File(paths[1]) as ours:
        for name, found in datasets(theirs["particles"]):
            mine = ours[f"particles/{name}"]
            assert mine.attrs.get("unit") == found.attrs.get("unit")
            if name.split("/")[-2] in ("position", "velocity", "force") and name.endswith("value"):
                for attribute in ("shape", "chunks", "compression", "compression_opts", "dtype"):
                    assert getattr(mine, attribute) == getattr(found, attribute), attribute
                np.testing.assert_array_equal(mine, found)
            else:
                atol = 1e-6 * np.abs(found[:]).max()
                np.testing.assert_allclose(mine, found, rtol=1e-6, atol=atol)
        for option, (group, attribute) in NAMES.items():
            for file in (theirs, ours) if option in options else ():
                assert file[f"h5md/{group}"].attrs[attribute] == options[option]
    fields = [field for field in ("positions", "velocities", "forces") if options.get(field, True)]
    universes = [read(path, 60) for path in paths]
    universes += [paceline.Universe(universes[0]._topology, str(path)) for path in paths]
    for ts, *others in zip(*(universe.trajectory for universe in universes), strict=True):
        for other in others:
            assert other.time == pytest.approx(ts.time, rel=1e-6)
            np.testing.assert_allclose(other.dimensions, ts.dimensions, rtol=1e-5)
        for field in fields:
            values = [getattr(frame, field) for frame in (ts, *others)]
            np.testing.assert_array_equal(values[0], values[1])
            np.testing.assert_array_equal(values[2], values[3])
            source = getattr(moving.trajectory[ts.frame], field)
            np.testing.assert_allclose(values[3], source, rtol=1e-6)


def test_no_keyword_of_mdanalysis_is_unknown():
    theirs = set(inspect.signature(MDANALYSIS).parameters) - {"kwargs"} | {"comm"}
    assert theirs <= set(inspect.signature(paceline.H5MDWriter).parameters)
    tested = set().union(*KEYWORDS)
    assert theirs - tested == {"filename", "n_atoms", "comm"}


@pytest.mark.parametrize(
    ("kind", "unit"),
    [(kind, unit) for kind, units in MDANALYSIS._unit_translation_dict.items() for unit in units],
)
def test_mdanalysis_s_units_are_known(kind, unit, moving, tmp_path):
    write(moving.atoms, tmp_path / "out.h5md", frames=slice(2), **{f"{kind}unit": unit})
    element = {"length": "position", "time": "position"}.get(kind, kind)
    name = f"particles/trajectory/{element}/{'time' if kind == 'time' else 'value'}"
    with h5py.File(tmp_path / "out.h5md") as file:
        spelling = MDANALYSIS._unit_translation_dict[kind][unit]
        assert file[name].attrs["unit"] == ("N" if unit == "Newton" else spelling)
        found = file[name][:]
    conversion, ours = h5md_writer._UNITS[kind]
    source = {"length": "positions", "velocity": "velocities", "force": "forces"}.get(kind, "time")
    values = np.array([getattr(ts, source) for ts in moving.trajectory[:2]])
    # MDAnalysis's writer accepts a unit to which it cannot convert.
    factor = get_conversion_factor(conversion, ours, unit.replace("*A)", "*Angstrom)"))
    np.testing.assert_array_equal(found, values * values.dtype.type(factor))


def test_other_units_round_in_angstroms_and_are_read(moving, tmp_path):
    path = tmp_path / "out.h5md"
    write(moving.atoms, path, lengthunit="3.405 Angstrom", timeunit="2.156 ps", precision=0.01)
    with h5py.File(path) as file:
        step = file[POSITION].attrs["rounded_to_multiples_of"]
        assert step == 2.0**-9 < 0.01 / 3.405
        assert not (file[POSITION][:] % step).any()
    found = paceline.Universe(str(path))
    for ts, source in zip(found.trajectory, moving.trajectory, strict=True):
        assert 0 < np.abs(ts.positions - source.positions).max() <= 0.005
        np.testing.assert_allclose(ts.dimensions, source.dimensions, rtol=1e-6)
        assert ts.time == pytest.approx(source.time)


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ('driver="mpio": expected the ranks that write the file as comm=', {"driver": "mpio"}),
        ("comm: expected a communicator of mpi4py, found object", {"comm": object()}),
        (
            "driver: expected none, mpio, or one of sec2, stdio, core, found 'split'",
            {"driver": "split"},
        ),
        ("convert_units=False: .*lengthunit=", {"convert_units": False}),
        (r"chunks: expected frames, atoms and 3, .*found \(1, 10, 1\)", {"chunks": (1, 10, 1)}),
        ("chunks: expected .*found 'a'", {"chunks": "a"}),
        ("a chunk cannot contain 11 atoms: there are 10", {"chunks": (1, 11, 3)}),
        ("expected one of chunks= and chunk=", {"chunks": (1, 10, 3), "chunk": "auto"}),
        ("needs n_frames", {"chunks": False}),
        ("compression: .*'lzf'", {"compression": "lzf", "compression_opts": 3}),
        (
            "compression: .*'szip'.*szip is read, not written",
            {"compression": "szip", "compression_opts": ("nn", 8)},
        ),
        ("compression: .*found 32001", {"compression": 32001}),
        ("compression: .*lz4.*found 32004", {"compression": 32004, "compression_opts": (9,)}),
        ("compression: .*zstd.*found 32015", {"compression": 32015, "compression_opts": 3}),
        ("found 'zstd:20'", {"compression": 32015, "compression_opts": (20,)}),
        ("compression: .*found 3 with", {"compression": 3, "compression_opts": 5}),
        ("compression: .*opts=10", {"compression": "gzip", "compression_opts": 10}),
        ("compression_opts: expected compression=", {"compression_opts": 4}),
        ("one of compression= and compress=", {"compression": "gzip", "compress": "gzip:1"}),
        ("at least one of positions", {"positions": False, "velocities": False, "forces": False}),
        ("lengthunit: unknown unit 'furlong'", {"lengthunit": "furlong"}),
        ("timeunit: 'nm' is not a unit of time", {"timeunit": "nm"}),
        ("velocityunit: 'nm' is not a unit of velocity", {"velocityunit": "nm"}),
        ("forceunit: ", {"forceunit": "kJ/mol"}),
        ("lengthunit: numbers of 32 bits cannot", {"lengthunit": "10+40 nm"}),
    ],
)
def test_keywords_that_something_else_replaces_are_named(words, options, tmp_path):
    with pytest.raises(UnsupportedError, match=words):
        paceline.H5MDWriter(tmp_path / "out.h5md", 10, **options)
    assert list(tmp_path.iterdir()) == []


def test_more_of_h5py_s_values(moving, tmp_path):
    for number, (options, chunks, level) in enumerate(
        [
            ({"chunks": True}, (9, 60, 3), None),
            ({"compression": True}, (1, 60, 3), 4),
            ({"compression": 0}, (1, 60, 3), None),
            ({"compression": False}, (1, 60, 3), None),
        ]
    ):
        write(moving.atoms, tmp_path / f"{number}.h5md", **options)
        with h5py.File(tmp_path / f"{number}.h5md") as file:
            assert file[POSITION].chunks == chunks
            assert file[POSITION].compression_opts == level


def test_filters_as_hdf5plugin_names_them(moving, tmp_path):
    plugin = pytest.importorskip("hdf5plugin")
    for options, expected in (
        (dict(plugin.Zstd(clevel=5)), (32015, (5,))),
        ({"compression": plugin.Zstd(clevel=2)}, (32015, (2,))),
        ({"compression": plugin.LZ4()}, (32004, ())),
    ):
        write(moving.atoms, tmp_path / "out.h5md", overwrite=True, **options)
        with h5py.File(tmp_path / "out.h5md") as file:
            number, _, values, _ = file[POSITION].id.get_create_plist().get_filter(0)
            assert (number, values) == expected
            found = file[POSITION][:]
        positions = [ts.positions.copy() for ts in moving.trajectory]
        np.testing.assert_array_equal(found, positions)


def test_another_creator_has_no_version_of_ours(moving, tmp_path):
    write(moving.atoms, tmp_path / "out.h5md", creator="mine")
    with h5py.File(tmp_path / "out.h5md") as file:
        assert dict(file["h5md/creator"].attrs) == {"name": "mine", "version": "unknown"}
        program = file["parameters/origin/program"].asstr()[()]
        assert program.startswith(f"paceline {paceline.__version__}")


def test_without_frames_there_is_no_file(tmp_path):
    with paceline.H5MDWriter(tmp_path / "out.h5md", 10):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_closed_file_takes_no_more(moving, tmp_path):
    writer = paceline.H5MDWriter(tmp_path / "out.h5md", 60)
    moving.trajectory[0]
    writer.write(moving)
    writer.close()
    writer.close()
    with pytest.raises(ValueError, match="closed"):
        writer.write(moving)
    assert len(read(tmp_path / "out.h5md", 60).trajectory) == 1


@pytest.mark.parametrize(
    "layout", [{}, {"compress": "gzip:1"}, {"chunk": "contiguous", "n_frames": 98}], ids=str
)
def test_a_full_disk_leaves_nothing(layout, universe, tmp_path):
    message = r"File too large: '.*/out\.h5md'"
    with full_disk(100_000), pytest.raises(OSError, match=message):
        write(universe.atoms, tmp_path / "out.h5md", **layout)
    assert list(tmp_path.iterdir()) == []


def test_killed_at_any_moment_it_leaves_a_whole_file_or_none(adk, tmp_path):
    # helpers/kill_writers.py does this at more moments, and for other writers of H5MD.
    out = tmp_path / "out.h5md"
    code = f"""
import paceline, sys, time, warnings
warnings.simplefilter("ignore")
universe = paceline.Universe({adk.topology!r}, {adk.trajectory!r})
print("ready", flush=True)
with paceline.H5MDWriter({str(out)!r}, 3341, compress="gzip:1", chunk="4x3341") as writer:
    for ts in universe.trajectory:
        writer.write(universe)
        if len(sys.argv) > 1 and ts.frame == 50:
            print("midway", flush=True)
            time.sleep(600)
"""

    def killed(when, *options):
        command = [sys.executable, "-c", code, *options]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "ready\n"
            when(process)
            process.kill()

    killed(lambda process: process.stdout.readline(), "hang")
    assert not out.exists()
    for seconds in np.random.default_rng(5).uniform(0, 0.6, 2):
        killed(lambda process, seconds=seconds: time.sleep(seconds))
        if out.exists():
            assert len(read(out, 3341).trajectory) == 98
            out.unlink()


def test_a_script_that_forgets_to_close_has_its_file(adk, tmp_path):
    out = tmp_path / "out.h5md"
    code = f"""
import paceline
universe = paceline.Universe({adk.topology!r}, {adk.trajectory!r})
writer = paceline.H5MDWriter({str(out)!r}, 3341, compress="gzip:1")
for ts in universe.trajectory[:5]:
    writer.write(universe)
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True)
    assert done.stderr == b""
    assert len(read(out, 3341).trajectory) == 5


def test_mdanalysis_s_own_writer_stays_its_own():
    assert MDAnalysis._MULTIFRAME_WRITERS["H5MD"].__module__ == "MDAnalysis.coordinates.H5MD"
    assert issubclass(paceline.H5MDWriter, MDAnalysis.coordinates.base.WriterBase)
    assert Path(sys.modules[paceline.H5MDWriter.__module__].__file__).name == "h5md_writer.py"
