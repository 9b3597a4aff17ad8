"""On every rank: an invalid frame raises the same error on all ranks; the file is unchanged."""

import os
import sys
import warnings
from pathlib import Path

import numpy as np
from helpers.disks import full_disk
from mpi4py import MPI
from snapshot_system import ENDINGS, FIELDS, N_ATOMS, own_frame, write_frames

from paceline import _core
from paceline.errors import PacelineWarning, UnwritableError
from paceline.snapshot import Writer

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
folder = Path(sys.argv[1])
HISTORY, H5MD, NETCDF, DCD = SERIES = [
    folder / f"run.{end}" for end in ("HISTORY", "h5md", "nc", "dcd")
]
CONFIG = folder / "CONFIG"


def error_of(function):
    """Return the error of all ranks; an error of only some ranks fails the test."""
    try:
        function()
        found = "none"
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    told = world.allgather(found)
    assert len(set(told)) == 1, told
    return told[0]


def content(path):
    world.Barrier()
    data = path.read_bytes()
    world.Barrier()
    return data


def refused(words, path, given, follows=True):
    """Check that a frame is refused with these words, and that the file is unchanged and usable."""
    before = content(path)
    with Writer(world, path, N_ATOMS, append=True) as writer:
        found = error_of(lambda: writer.write(**given))
        assert words in found, (words, found)
        assert str(path) in found, found
        assert content(path) == before, words
        if follows:
            assert error_of(lambda: writer.write(**good)) == "none"
            assert writer.n_frames == 4
    if rank == 0:
        path.write_bytes(before)
    world.Barrier()


def with_first(name, value):
    """Return a frame with another value for the first atom of one rank."""
    values = good[name].astype("U20") if name == "names" else good[name].copy()
    if rank == fullest:
        values[0] = value
    return good | {name: values}


def on_one(**changes):
    """Return a frame in which one rank passes other values."""
    return good | (changes if rank == fullest else {})


class Broken:
    """Object like an array that raises its own error."""

    def __array__(self, *_, **__):
        raise RuntimeError("no numbers today")


for kind, path in zip(("HISTORY", "H5MD", "NetCDF", "DCD"), SERIES, strict=True):
    write_frames(path, kind, range(3))
write_frames(CONFIG, "CONFIG", range(1))
good = own_frame(world, 3, FIELDS["HISTORY"])
fullest = int(np.argmax(world.allgather(len(good["ids"]))))
taken, first = world.bcast((good["ids"][-1], good["ids"][0]), root=fullest)

# Wrong values of one rank.
for words, given in (
    (f"{first} is missing", with_first("ids", taken)),
    ("expected ids from 1 to 500, found 0", with_first("ids", 0)),
    (f"found {N_ATOMS + 1}", with_first("ids", N_ATOMS + 1)),
    (f"rank {fullest}: atom {first}: expected a name", with_first("names", "too long a name")),
    (f"rank {fullest}: atom {first}: expected a name", with_first("names", "N a")),
    (f"{first}", with_first("positions", [np.nan, 0, 0])),
    (f"{first}", with_first("velocities", [0, np.inf, 0])),
    (f"{first}", with_first("masses", 1e9)),
    ("expected positions of shape", on_one(positions=good["positions"][1:])),
    ("expected positions in rows of equal length", on_one(positions=[[1, 2, 3], [4, 5]])),
    (
        f"rank {fullest}: expected velocities without masked values, found 3 masked",
        on_one(velocities=np.ma.masked_less(np.r_[[[-1] * 3], good["velocities"][1:] ** 2], 0)),
    ),
    (
        "expected ids without masked values, found 1",
        on_one(ids=np.ma.masked_equal(good["ids"], first)),
    ),
    ("expected whole numbers", on_one(ids=good["ids"] + 0.5)),
    ("disagree about step", on_one(step=31)),
    ("disagree about time", on_one(time=31.0)),
    ("disagree about box", on_one(box=None)),
    ("disagree about fields", on_one(velocities=None)),
    ("disagree about masses", on_one(masses=None)),
    ("disagree about type", on_one(positions=good["positions"].astype(np.float64))),
    ("expected a box that has a volume", on_one(box=[1, 1, 1, 90, 90, 200])),
    ("expected a finite time", on_one(time=np.nan)),
    (f"rank {fullest}: no numbers today", on_one(velocities=Broken())),
    ("expected a number of ps as time, found None", on_one(time=None)),
    ("expected a whole number as step, found 1.5", on_one(step=1.5)),
    ("expected a whole number as step, found inf", on_one(step=np.inf)),
    ("expected a whole number as step, found '7'", on_one(step="7")),
    ("expected a step of 64 bits", good | {"step": 2**63}),
    ("expected positions, found None", on_one(positions=None)),
    ("expected a box that has a volume", on_one(box=[9, 9, 9, np.inf, 90, 90])),
):
    refused(words, HISTORY, given)

# Values that a file, or its frames, cannot represent.
bare = good | {"velocities": None}
turned = [[0, 9, 0], [9, 0, 0], [0, 0, 9]]
forces = good | {"forces": good["positions"]}
for words, path, given in (
    ("pass names", HISTORY, good | {"names": None}),
    ("expected positions, velocities, as its frames have", HISTORY, bare),
    ("expected positions, velocities, as its frames have", HISTORY, forces),
    ("expected a cell: one", HISTORY, good | {"box": None}),
    ("DCD contains positions, not velocities", DCD, good),
    ("expected a cell: one", DCD, bare | {"box": None}),
    ("first vector along x", DCD, bare | {"box": turned}),
    ("steps increase from frame to frame", H5MD, forces | {"step": 20}),
    ("expected a time that fits into float32", NETCDF, forces | {"time": 1e300}),
):
    refused(words, path, given, follows=False)
refused("expected finite masses", NETCDF, with_first("masses", np.nan), False)
refused(f"{first}", DCD, with_first("positions", [0, 0, np.nan]) | {"velocities": None}, False)

# Impossible options.
for words, options in (
    ("FileExistsError", {}),
    ("disagree about n_atoms", {"append": True, "n_atoms": 500 + (rank == 1)}),
    ("expected a method", {"append": True, "method": "quick"}),
    ("expected from 1 to", {"append": True, "writers": 99}),
    ("has no option dt", {"format": "DCD", "dt": 0.1}),
    ("expected a dt of more than 0 ps", {"append": True, "dt": -0.001}),
    ("expected a dt of more than 0 ps", {"append": True, "dt": "short"}),
    ("found 'a lot'", {"append": True, "buffer": "a lot"}),
    ("is too big for any machine", {"append": True, "buffer": 2**70}),
    ("title", {"append": True, "title": "long " * 20}),
    ("title", {"append": True, "title": "of two\nlines"}),
    ("without zero bytes", {"format": "H5MD", "overwrite": True, "title": "a\0b"}),
    ("append or overwrite", {"append": True, "overwrite": True}),
    ("n_atoms of at least 1, found 0", {"append": True, "n_atoms": 0}),
    ("whole number n_atoms", {"append": True, "n_atoms": 2**70}),
    ("expected a format out of", {"append": True, "format": "XTC"}),
):
    before, given = content(HISTORY), {"n_atoms": N_ATOMS} | options
    found = error_of(lambda given=given: Writer(world, HISTORY, **given))
    assert words in found, found
    assert content(HISTORY) == before
for path in SERIES:
    found = error_of(lambda path=path: Writer(world, path, N_ATOMS + 1, append=True))
    assert "expected 501 atoms, found 500" in found, found
(folder / "text.dcd").write_text("no trajectory")
for words, name in (
    ("contains one configuration", "CONFIG"),
    ("expected a name that ends in", "run.xyz"),
    ("does not exist", "nowhere/run.dcd"),
    ("DamagedFileError", "text.dcd"),
):
    found = error_of(lambda name=name: Writer(world, folder / name, N_ATOMS, append=True))
    assert words in found, found

# Too little space.
before = content(HISTORY)
with Writer(world, HISTORY, N_ATOMS, append=True, buffer="1 kB") as writer:
    found = error_of(lambda: writer.write(**good))
    assert "a buffer of 1000 bytes is not enough" in found, found
assert content(HISTORY) == before

# Too much space.
with Writer(world, folder / "much.h5md", N_ATOMS, n_frames=2**62) as writer:
    found = error_of(lambda: writer.write(**good))
    assert "no space for 4611686018427387904 frames" in found, found

# After an error of all ranks, shared resources are released.
try:
    with Writer(world, HISTORY, N_ATOMS, append=True, writers=np.int64(2)) as writer:
        writer.write(**with_first("ids", 0))
except UnwritableError:
    pass
assert not writer._comm.is_open, "a communicator is left behind"

# Records that overlap the header, or each other.
data = content(NETCDF)
# The time of the first record follows the header.
head = _core.Encoder("CDF-5", N_ATOMS, None, True, 7).head(0, 0.0, 0.0, 0, 0)
begin = len(head).to_bytes(8, "big")
for other in (64, int.from_bytes(begin, "big") + 8):
    if rank == 0:
        NETCDF.write_bytes(data.replace(begin, other.to_bytes(8, "big"), 1))
    changed = content(NETCDF)
    found = error_of(lambda: Writer(world, NETCDF, N_ATOMS, append=True))
    assert "DamagedFileError" in found, found
    assert "of the first record at byte" in found, found
    assert content(NETCDF) == changed
if rank == 0:
    NETCDF.write_bytes(data)

# A DCD file of CHARMM, whose cells have another form.
data = content(DCD)
if rank == 0:
    DCD.write_bytes(data[:84] + (40).to_bytes(4, "little") + data[88:])
world.Barrier()
found = error_of(lambda: Writer(world, DCD, N_ATOMS, append=True))
assert "UnsupportedError" in found, found
assert "stores cells as matrices" in found, found
world.Barrier()
if rank == 0:
    DCD.write_bytes(data)

# The name belongs to a folder.
for kind in ENDINGS:
    path = folder / f"folder{ENDINGS[kind]}"
    path.mkdir(exist_ok=True)
    for options in ({"overwrite": True}, {"append": True}):
        found = error_of(lambda path=path, options=options: Writer(world, path, 500, **options))
        assert "IsADirectoryError" in found or "one configuration" in found, found
        assert str(path) in found, found

# Another writer has the file open.
for path in (*SERIES, CONFIG, folder / "both.dcd"):
    linked = path.with_name("link" + path.suffix) if path.exists() else path
    if rank == 0 and linked != path:
        linked.hardlink_to(path)
    kind = {"append": True} if path != CONFIG else {"overwrite": True}
    if path == CONFIG:
        kind["format"] = "CONFIG"
    world.Barrier()
    with Writer(world, path, N_ATOMS, **kind):
        for other in (path, linked):
            found = error_of(lambda other=other, kind=kind: Writer(world, other, 500, **kind))
            assert "another writer of this program is writing" in found, found
    Writer(world, path, N_ATOMS, **kind).close()
    world.Barrier()
    if rank == 0 and linked != path:
        linked.unlink()

# Names of another system.
for path, kind in ((HISTORY, "HISTORY"), (H5MD, "H5MD")):
    given = own_frame(world, 3, FIELDS[kind])
    given["names"] = np.where(given["ids"] == 77, "K+", given["names"])
    refused("expected atom 77 to be 'Na+', found 'K+'", path, given, follows=False)

# The comparison continues after a refused frame.
with Writer(world, H5MD, N_ATOMS, append=True) as writer:
    for name, other in (("charges", 0.25), ("names", "K+"), ("masses", 1.5)):
        given = own_frame(world, 3, FIELDS["H5MD"])
        given[name] = np.where(given["ids"] == 77, other, given[name])
        found = error_of(lambda given=given: writer.write(**given))
        assert "belongs to another system: expected atom 77" in found, found

# Data that H5MD stores once.
for name in ("masses", "charges", "names"):
    changed = own_frame(world, 4, FIELDS["H5MD"])
    other = "K+" if name == "names" else 1.5
    changed[name] = np.where(changed["ids"] == 77, other, changed[name])
    before = content(H5MD)
    with Writer(world, H5MD, N_ATOMS, append=True) as writer:
        assert error_of(lambda: writer.write(**own_frame(world, 3, FIELDS["H5MD"]))) == "none"
        found = error_of(lambda changed=changed: writer.write(**changed))
        assert f"expected the {name} of earlier frames" in found, found
        assert error_of(lambda: writer.write(**own_frame(world, 4, FIELDS["H5MD"]))) == "none"
    if rank == 0:
        H5MD.write_bytes(before)

    for name, value in (("masses", 1.5), ("charges", 0.25)):
        other = own_frame(world, 3, FIELDS["H5MD"])
        other[name] = np.where(other["ids"] == 77, value, other[name])
        words = f"expected atom 77 to have, as its {name}, "
        refused(words, H5MD, other, follows=False)

# Bytes that a killed job left behind, more than a frame.
for path, kind in zip(SERIES, ("HISTORY", "H5MD", "NetCDF", "DCD"), strict=True):
    before = content(path)
    if kind != "H5MD":
        write_frames(path, kind, [3], append=True)
        expected = content(path)
        if rank == 0:
            path.write_bytes(before + 100_000 * b"x")
        world.Barrier()
        write_frames(path, kind, [3], append=True)
        assert content(path) == expected, kind
    # The name now belongs to another file, or to none.
    with Writer(world, path, N_ATOMS, append=True) as writer:
        given = own_frame(world, 4, FIELDS[kind])
        for replace in (lambda path=path: path.write_bytes(b"another"), lambda: None):
            world.Barrier()
            if rank == 0:
                path.unlink(missing_ok=True)
                replace()
            world.Barrier()
            found = error_of(lambda writer=writer, given=given: writer.write(**given))
            assert "FileChangedError" in found, found
            assert not path.exists() or content(path) == b"another"
    world.Barrier()
    if rank == 0:
        path.write_bytes(before)
    world.Barrier()

# The cost of a frame contains counts, such as the number of batches.
with Writer(world, folder / "cost.HISTORY", N_ATOMS) as writer:
    writer.write(**good)
    assert "n_batches=1" in repr(writer.costs[0]), writer.costs

# The disk is full, by a limit on these processes.
for kind in ENDINGS:
    path = CONFIG if kind == "CONFIG" else SERIES[["HISTORY", "H5MD", "NetCDF", "DCD"].index(kind)]
    before, given = content(path), own_frame(world, 3, FIELDS[kind])
    options = {"overwrite": True} if kind == "CONFIG" else {"append": True}
    options["method"] = "mpiio" if kind == "DCD" else "sorted"
    with Writer(world, path, N_ATOMS, **options) as writer:
        room = len(before) // 2 if kind == "CONFIG" else len(before) + 3000
        with full_disk(room):
            found = error_of(lambda writer=writer, given=given: writer.write(**given))
        assert "OSError" in found, found
        assert "None" not in found, found
        assert str(path) in found, found
        assert content(path) == before, kind
        assert error_of(lambda writer=writer, given=given: writer.write(**given)) == "none"
    assert content(path) != before
assert not [name for name in os.listdir(folder) if name.startswith(".")]

# A warning turned into an error is raised on all ranks, and the next frame can be written.
with warnings.catch_warnings():
    warnings.simplefilter("error", PacelineWarning)
    with Writer(world, folder / "uneven.dcd", N_ATOMS) as writer:
        for frame in range(2):
            writer.write(**own_frame(world, frame, FIELDS["DCD"]))
        given = own_frame(world, 2, FIELDS["DCD"], time=100.0)
        found = error_of(lambda: writer.write(**given))
        assert "will be read as one of" in found, found
        writer.write(**own_frame(world, 2, FIELDS["DCD"]))
        assert writer.n_frames == 3

# An error of a frame that is written in the background is raised by the next call.
writer = Writer(world, folder / "later.dcd", N_ATOMS, wait=False)
writer.write(**own_frame(world, 0, FIELDS["DCD"]))
writer.write(**own_frame(world, 1, FIELDS["DCD"], step=rank))
assert "disagree about step" in error_of(writer.close)
found = error_of(lambda: writer.write(**own_frame(world, 1, FIELDS["DCD"])))
assert found.startswith("ValueError: the writer is closed"), found
MPI.Query_thread = lambda: MPI.THREAD_SERIALIZED
found = error_of(lambda: Writer(world, folder / "other.dcd", N_ATOMS, wait=False))
assert "wait=False needs an MPI" in found, found
if rank == 0:
    print("refused")

# The same fault in the first frame.
with Writer(world, folder / "full.h5md", N_ATOMS) as writer:
    given = own_frame(world, 0, FIELDS["H5MD"])
    for room in (512, 20_000, 60_000):
        with full_disk(room):
            found = error_of(lambda given=given: writer.write(**given))
        assert "OSError" in found, found
    assert error_of(lambda: writer.write(**given)) == "none"

# One rank closes the file while the others write a frame; this fails on all ranks.
path = folder / "closed.dcd"
writer = Writer(world, path, N_ATOMS)
writer.write(**own_frame(world, 0, FIELDS["DCD"]))


def end_too_early():
    if rank == size - 1:
        writer.close()
        return
    try:
        writer.write(**own_frame(world, 1, FIELDS["DCD"]))
    finally:
        writer.close()


found = error_of(end_too_early)
assert f"{path}: ranks disagree about call: write on rank 0, close on rank {size - 1}" in found, (
    found
)
assert _core.Trajectory(path).n_frames == 1
