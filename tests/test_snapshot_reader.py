"""Tests of frames that are read to the ranks that own their atoms, under mpiexec."""

import json
import shutil
from pathlib import Path

import h5py
import MDAnalysis
import numpy as np
import pytest
from helpers.h5md_files import OUR_UNITS, numbers, write_espresso
from helpers.lammps_files import dump as lammps_dump
from helpers.mpi import SCRIPTS, mpirun, needs_mpi
from MDAnalysisTests import datafiles

pytestmark = needs_mpi

FIELDS = ("positions", "velocities", "forces")


def keep(path, frame, **whole):
    """Save the content of a frame next to its file, for comparison on the ranks."""
    held = {name: value for name, value in whole.items() if value is not None}
    np.savez(f"{path}.frame{frame}.npz", frame=frame, **held)


def keep_timestep(path, universe, frame, step=None):
    """Save the values that MDAnalysis reads."""
    ts = universe.trajectory[frame]
    fields = {name: getattr(ts, name) for name in FIELDS if getattr(ts, f"has_{name}")}
    keep(
        path,
        frame,
        ids=np.arange(ts.n_atoms) + 1,
        dimensions=ts.dimensions,
        time=ts.time,
        step=ts.data["step"] if step is None else step,
        **fields,
    )


@pytest.fixture(scope="module")
def binaries(adk, adk_in_water, moving, tmp_path_factory) -> list[Path]:
    """A file of each binary format, and the content of some of their frames."""
    folder = tmp_path_factory.mktemp("binaries")
    files = []

    def add(topology, trajectory, frames, name=None, step=None):
        path = Path(shutil.copy(trajectory, folder / (name or Path(trajectory).name)))
        universe = MDAnalysis.Universe(str(topology), str(trajectory))
        for frame in frames:
            keep_timestep(path, universe, frame, None if step is None else step(frame))
        files.append(path)

    add(*adk_in_water, (7,))
    # Frames contain velocities, velocities and forces, or neither.
    add(*moving, (0, 1, 2))
    add(*adk, (3,), step=lambda frame: 1000 * (frame + 1))
    add(datafiles.PRM_NCBOX, datafiles.TRJ_NCBOX, (0, 4), "box.nc", step=lambda frame: frame)
    add(datafiles.TPR_xvf, datafiles.H5MD_xvf, (0, 2))
    return [*files, _shuffled(folder), _with_gaps(folder), _written(folder)]


def _shuffled(folder, name="shuffled.h5", atoms=None):
    """Write an H5MD file whose frames have atoms in different orders, with ids from 0.

    With `atoms`, only these are in all frames; the others come and go.
    """
    held = numbers(n_frames=3, n_atoms=101)
    random = np.random.default_rng(5)
    everywhere = np.arange(101) if atoms is None else atoms
    ids = [random.permutation(101) for _ in range(3)]
    if atoms is not None:
        others = np.setdiff1d(np.arange(101), atoms)
        ids = [one[~np.isin(one, others[frame::3])] for frame, one in enumerate(ids)]
    path = write_espresso(folder / name, held, ids, OUR_UNITS)
    for frame in range(3):
        vectors = (held.position, held.velocity, held.force)
        keep(
            path,
            frame,
            ids=everywhere,
            **{
                name: of[frame][everywhere].astype("f4")
                for name, of in zip(FIELDS, vectors, strict=True)
            },
            masses=1.0 + everywhere,
            dimensions=[*np.diagonal(held.edges[frame]), 90, 90, 90],
            time=held.time[frame],
            step=held.step[frame],
        )
    return path


def _with_gaps(folder):
    """Write an H5MD file in which atoms come and go, and ids have gaps."""
    path = _shuffled(folder, "gaps.h5", np.setdiff1d(np.arange(101), [0, 5, 6, 40, 77, 100]))
    with h5py.File(path, "r+") as file:
        ids = file["particles/atoms/id/value"]
        values = ids[:]
        for frame, row in enumerate(values):
            row[np.count_nonzero(file["particles/atoms/mass/value"][frame]) :] = -1
        filled = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        filled.set_fill_value(np.array(-1, "i4"))
        del file["particles/atoms/id/value"]
        space = h5py.h5s.create_simple(values.shape)
        made = h5py.h5d.create(
            file["particles/atoms/id"].id, b"value", h5py.h5t.NATIVE_INT32, space, filled
        )
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, values)
    return path


def _written(folder):
    """Write an H5MD file with paceline's `Writer`, including names, masses and charges."""
    assert mpirun(2, SCRIPTS / "snapshot_writing.py", folder) == (0, "", "")
    path = folder / "sorted.h5md"
    with h5py.File(path) as file:
        (group,) = file["particles"].values()
        for frame in range(3):
            keep(
                path,
                frame,
                ids=np.arange(1, 501),
                **{
                    name: group[element]["value"][frame]
                    for name, element in zip(FIELDS, ("position", "velocity", "force"), strict=True)
                },
                names=file["parameters/atoms/name"][:].astype(str),
                masses=group["mass"][:],
                charges=group["charge"][:],
                dimensions=[20.0, 25.0, 30.0, 90.0, 80.0, 70.0],
                time=group["position/time"][frame],
                step=group["position/step"][frame],
            )
    return path


@pytest.mark.parametrize(
    "n_ranks", [4, *(pytest.param(n, marks=pytest.mark.full) for n in (1, 2, 6))]
)
def test_atoms_of_every_format_come_to_their_owners(n_ranks, binaries):
    found = mpirun(n_ranks, SCRIPTS / "snapshot_reading.py", *binaries)
    assert found == (0, "read\n", "")


@pytest.fixture(scope="module")
def boxes(binaries, tmp_path_factory) -> list[Path]:
    """Files of an orthorhombic and a triclinic cell, and of a slab."""
    folder = tmp_path_factory.mktemp("boxes")
    cube = Path(shutil.copy(datafiles.DLP_CONFIG, folder / "CONFIG"))
    title, numbers, *rest = cube.read_text().splitlines(keepends=True)
    slab = folder / "slab.CONFIG"
    levcfg, _, *others = numbers.split()
    slab.write_text(
        "".join([title, "".join(f"{one:>10}" for one in (levcfg, 6, *others)), "\n", *rest])
    )
    return [cube, binaries[-1], slab]


@pytest.mark.parametrize("n_ranks", [4, *(pytest.param(n, marks=pytest.mark.full) for n in (1, 2))])
def test_ghosts_are_all_images_near_a_domain(n_ranks, boxes):
    assert mpirun(n_ranks, SCRIPTS / "snapshot_ghosts.py", *boxes) == (0, "read\n", "")


@pytest.fixture(scope="module")
def unreadable(adk, adk_in_water, damaged, tmp_path_factory) -> list[str]:
    """Unreadable files: without a cell, with NaN, damaged and unusual ones; and a valid file."""
    folder = tmp_path_factory.mktemp("unreadable")
    nan = folder / "nan.dcd"
    universe = MDAnalysis.Universe(datafiles.GRO)
    atoms = universe.atoms[:50]
    positions = atoms.positions
    positions[2, 0] = np.nan
    atoms.positions = positions
    atoms.write(nan)
    cut = folder / "cut.xtc"
    data = bytearray(Path(adk_in_water.trajectory).read_bytes())
    offsets = MDAnalysis.Universe(*adk_in_water).trajectory._xdr.offsets
    data[offsets[1] + 92 : offsets[1] + 108] = b"\xff" * 16
    cut.write_bytes(data)
    twice = _shuffled(folder, "twice.h5")
    with h5py.File(twice, "r+") as file:
        ids = file["particles/atoms/id/value"]
        ids[1, 3], ids[2, 3] = ids[1, 4], 1000
    gaps = _shuffled(folder, "many_gaps.h5")
    with h5py.File(gaps, "r+") as file:
        file["particles/atoms/id/value"][:] *= 2
    dump = folder / "md.dump"
    dump.write_text(lammps_dump())
    return [adk_in_water.trajectory, adk.trajectory, nan, cut, twice, gaps, dump]


@pytest.mark.parametrize("n_ranks", [1, 3])
def test_what_cannot_be_read_is_refused_on_every_rank(n_ranks, unreadable):
    found = mpirun(n_ranks, SCRIPTS / "snapshot_reading_errors.py", *unreadable)
    assert found == (0, "refused\n", "")


def keep_text(path, frame, lines, n_atoms, n_vectors, *, cell, time, step):
    """Save the values of a frame's lines, parsed by Python in double precision, sorted by id."""
    has_masses = len(lines[0].split()) > 2
    atoms = [
        lines[k : k + 1 + n_vectors] for k in range(0, n_atoms * (1 + n_vectors), 1 + n_vectors)
    ]
    labels = [atom[0].split() for atom in atoms]
    ids = np.array([int(words[1]) for words in labels])
    order = np.argsort(ids)
    vectors = np.array([[line.split() for line in atom[1:]] for atom in atoms], dtype=float)
    vectors[:, 2:] /= 100  # from Da·Å/ps² to kJ/(mol·Å)
    numbers = dict(zip(FIELDS, np.moveaxis(vectors[order], 1, 0), strict=False))
    if has_masses:
        numbers["masses"] = np.array([float(words[2]) for words in labels])[order]
        numbers["charges"] = np.array([float(words[3]) for words in labels])[order]
    keep(
        path,
        frame,
        ids=ids[order],
        names=np.array([words[0] for words in labels])[order],
        dimensions=MDAnalysis.lib.mdamath.triclinic_box(*cell) if cell is not None else None,
        time=time,
        step=step,
        **numbers,
    )


def keep_config(path, time, step):
    lines = path.read_text().splitlines()
    levcfg, imcon = map(int, lines[1].split()[:2])
    cell = None if imcon == 0 else np.array([line.split() for line in lines[2:5]], dtype="f4")
    atoms = lines[2 if imcon == 0 else 5 :]
    n_atoms = len(atoms) // (levcfg + 2)
    keep_text(path, 0, atoms, n_atoms, levcfg + 1, cell=cell, time=time, step=step)


def keep_history(path):
    lines = path.read_text().splitlines()
    keytrj, imcon, n_atoms = map(int, lines[1].split()[:3])
    at = 2
    for frame in range(3):
        words = lines[at].split()
        cell = None
        at += 1
        if imcon:
            cell = np.array([line.split() for line in lines[at : at + 3]], dtype="f4")
            at += 3
        size = n_atoms * (keytrj + 2)
        keep_text(
            path,
            frame,
            lines[at : at + size],
            n_atoms,
            keytrj + 1,
            cell=cell,
            time=float(words[6]),
            step=int(words[1]),
        )
        at += size


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> list[Path]:
    """DL_POLY files in the order of ids and in other orders, with lines of equal and varying
    lengths.
    """
    folder = tmp_path_factory.mktemp("texts")

    def copied(source, name):
        return Path(shutil.copy(source, folder / name))

    config = copied(datafiles.DLP_CONFIG, "CONFIG")
    keep_config(config, 10.0, 2000)
    lines = config.read_text().splitlines(keepends=True)
    atoms = np.array(lines[5:]).reshape(-1, 4)
    np.random.default_rng(3).shuffle(atoms)
    shuffled = folder / "shuffled.CONFIG"
    shuffled.write_text("".join([*lines[:5], *atoms.ravel()]))
    keep_config(shuffled, 10.0, 2000)
    trimmed = folder / "trimmed.CONFIG"
    trimmed.write_text("".join(f"{line.rstrip()}\n" for line in lines))
    keep_config(trimmed, 10.0, 2000)
    history = copied(datafiles.DLP_HISTORY, "HISTORY")
    keep_history(history)
    edited = copied(datafiles.DLP_HISTORY_order, "edited.HISTORY")
    keep_history(edited)
    return [config, shuffled, trimmed, history, edited]


@pytest.mark.parametrize("n_ranks", [3, pytest.param(2, marks=pytest.mark.full)])
def test_text_is_read_in_double_precision(n_ranks, texts):
    found = mpirun(n_ranks, SCRIPTS / "snapshot_reading.py", *texts)
    assert found == (0, "read\n", "")


def test_examples_run_on_a_rank():
    assert mpirun(1, SCRIPTS / "snapshot_examples.py") == (0, "examples\n", "")


@pytest.mark.parametrize(
    ("n_ranks", "name"),
    [
        (5, "md.nc"),
        pytest.param(8, "md.nc", marks=pytest.mark.full),
        pytest.param(16, "md.nc", marks=pytest.mark.full),
        pytest.param(8, "md.h5md", marks=pytest.mark.full),
    ],
)
def test_ranks_that_agree_do_not_gather_what_each_says(n_ranks, name, tmp_path):
    status, said, errors = mpirun(n_ranks, SCRIPTS / "snapshot_agreements.py", tmp_path / name)
    assert (status, errors) == (0, "")
    written, read = json.loads(said)
    for calls in (written, read):
        assert not {name for name in calls if name.startswith("Iallgather")}, calls
        assert sum(calls.values()) < 25
