"""Dump sodium chloride on every MPI rank, with every method; print JSON."""

import json
import os
import sys
import time
import zlib
from collections.abc import Callable
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from benchmarks import nacl
from benchmarks.experiments.on_ranks import WORLD, of_first
from benchmarks.resident import Growth
from benchmarks.snapshot_cases import COLLECTIVE, IN_ORDER, METHODS, Case
from paceline import _core
from paceline.block import field_bits
from paceline.snapshot import Writer

#: Step number in file headers, and step length, ps.
STEP, STEP_LENGTH = 500, 0.001
#: Fields that are written.
FIELDS = ("positions", "velocities", "forces")
#: Fields that a format cannot store.
NOT_HELD = {"DCD": ("velocities", "forces")}
#: Size of one write for records that are already in order, bytes.
LARGE = 1 << 20
#: Parts of a cost: times, and counts.
SECONDS = ("communicate", "sort", "format", "write")
NUMBERS = ("n_messages", "n_writes", "n_batches", "bytes_sent", "bytes_written", "peak_buffer")
MB = 1e6


def cases(folder: str, told: str, repeats: str) -> list[dict[str, Any]]:
    """Run all cases in turn, round after round; the first round does not count."""
    todo = [Case(**one) for one in json.loads(Path(told).read_text(encoding="utf-8"))]
    path = str(Path(folder) / "dump")
    found = []
    for number in range(-1, int(repeats)):
        for which, case in enumerate(todo):
            measured = of_first(case.ranks, partial(dump, case, path))
            if number >= 0:
                found.append({"case": which, **(measured or {})})
    return found


def dump(case: Case, path: str, comm: MPI.Intracomm) -> dict[str, Any]:
    """Write one file, from opening to closing."""
    ions = held(case.way == IN_ORDER, case.cells, comm.size, comm.rank)
    comm.Barrier()
    growth = Growth()
    begun, begun_cpu = time.perf_counter(), time.process_time()
    cost = WAYS[case.way](comm, case, path, ions) or dict.fromkeys((*SECONDS, *NUMBERS), 0)
    seconds, cpu = time.perf_counter() - begun, time.process_time() - begun_cpu
    found = of_all(comm, seconds, cpu, growth.peak(), cost)
    if comm.rank == 0:
        content = Path(path).read_bytes()
        found |= {"mbytes": len(content) / MB, "checksum": zlib.crc32(content)}
        found["mb_s"] = found["mbytes"] / found["t_total"]
        os.unlink(path)
    return found


def of_all(
    comm: MPI.Intracomm, seconds: float, cpu: float, growth: float, cost: dict[str, float]
) -> dict[str, Any]:
    """Return sums over ranks, and means over writers for components of the time."""
    total = comm.allreduce(seconds, MPI.MAX)
    costs = comm.allgather(cost)
    writers = [one for one in costs if one["n_writes"]] or costs
    parts = {f"t_{key}": float(np.mean([one[key] for one in writers])) for key in SECONDS}
    sums = {key: sum(one[key] for one in costs) for key in NUMBERS}
    return {
        "t_total": total,
        **parts,
        "t_rest": max(0.0, total - sum(parts.values())),
        "cpu": comm.allreduce(cpu),
        "n_messages": sums["n_messages"],
        "n_writes": sums["n_writes"],
        "n_batches": max(one["n_batches"] for one in costs),
        "mb_sent": sums["bytes_sent"] / MB,
        "mb_written": sums["bytes_written"] / MB,
        "mb_buffer": max(one["peak_buffer"] for one in costs) / MB,
        "mb_growth": comm.allreduce(growth, MPI.MAX),
    }


@cache
def held(in_order: bool, cells: int, n_ranks: int, rank: int) -> nacl.Ions:
    """Return the atoms of a rank: those of its domain, or its share by id."""
    if not in_order:
        return nacl.ions_of(cells, MPI.Compute_dims(n_ranks, 3), rank)
    ions = nacl.ions_of(cells)
    share = slice(*(len(ions.ids) * k // n_ranks for k in (rank, rank + 1)))
    return ions[np.argsort(ions.ids)[share]]


def by_writer(comm: MPI.Intracomm, case: Case, path: str, ions: nacl.Ions) -> dict[str, float]:
    """Write with one of the writer's methods."""
    with Writer(
        comm,
        path,
        nacl.n_ions(case.cells),
        format=case.format,
        method=case.way,
        writers=case.writers,
        buffer=case.buffer,
        sync=case.sync,
    ) as writer:
        given = ions.arrays(*NOT_HELD.get(case.format, ()))
        writer.write(**given, box=nacl.box(case.cells), step=STEP, time=STEP * STEP_LENGTH)
    return {key: getattr(writer.costs[-1], key) for key in (*SECONDS, *NUMBERS)}


def in_order(comm: MPI.Intracomm, case: Case, path: str, ions: nacl.Ions) -> None:
    """Let each rank format and write its share of records, which are already in order."""
    records = _core.SnapshotFormat(case.format, field_bits(FIELDS))
    (size,) = records.sections
    lines = np.empty(LARGE // size * size, np.uint8)
    with opened(comm, case, path) as (file, start):
        for first in range(0, len(ions.ids), LARGE // size):
            some = ions[first : first + LARGE // size]
            used = lines[: len(some.ids) * size]
            records.encode_into(0, as_core_takes_them(some), used)
            os.pwrite(file, used, start + (int(some.ids[0]) - 1) * size)
        if case.sync:
            os.fsync(file)


def collective(comm: MPI.Intracomm, case: Case, path: str, ions: nacl.Ions) -> None:
    """Let each rank format its records; ROMIO sorts and writes them."""
    ions = ions[np.argsort(ions.ids)]  # offsets of an MPI file view must increase
    records = _core.SnapshotFormat(case.format, field_bits(FIELDS))
    (size,) = records.sections
    lines = records.encode(0, as_core_takes_them(ions))
    with opened(comm, case, path) as (_, start):
        comm.Barrier()
        file = MPI.File.Open(comm, path, MPI.MODE_WRONLY)
        record = MPI.BYTE.Create_contiguous(size).Commit()
        places = record.Create_indexed_block(1, ions.ids - 1).Commit()
        file.Set_view(start, record, places)
        file.Write_all([lines, len(ions.ids), record])
        if case.sync:
            file.Sync()
        file.Close()
        places.Free()
        record.Free()


@contextmanager
def opened(comm: MPI.Intracomm, case: Case, path: str) -> Any:
    """Create a file with its header; also return the offset of the first atom."""
    head = head_of(case)
    if comm.rank == 0:
        file = os.open(path, os.O_CREAT | os.O_RDWR)
        os.pwrite(file, head, 0)
    comm.Barrier()
    if comm.rank > 0:
        file = os.open(path, os.O_RDWR)
    yield file, len(head)
    os.close(file)


def head_of(case: Case) -> bytes:
    """Return the file header before the first atom."""
    n_atoms, bits = nacl.n_ions(case.cells), field_bits(FIELDS)
    moment = {"step": STEP, "dt": STEP_LENGTH, "time": STEP * STEP_LENGTH}
    cell = np.diag(nacl.box(case.cells)[:3])
    if case.format == "CONFIG":
        return _core.dlpoly_config_head("", n_atoms, bits, **moment, cell=cell)
    head = _core.dlpoly_history_head("", n_atoms, bits, imcon=_core.dlpoly_imcon(cell), n_frames=1)
    return head + _core.dlpoly_frame_head(n_atoms, bits, **moment, cell=cell)


def as_core_takes_them(ions: nacl.Ions) -> tuple[Any, ...]:
    """Convert ions to the core's tuple."""
    vectors = ions.positions, ions.velocities, ions.forces
    return ions.ids, *vectors, ions.names, ions.masses, ions.charges


WAYS: dict[str, Callable[..., dict[str, float] | None]] = {
    **dict.fromkeys(METHODS, by_writer),
    COLLECTIVE: collective,
    IN_ORDER: in_order,
}

if __name__ == "__main__":
    found = cases(*sys.argv[1:])
    if WORLD.rank == 0:
        print(json.dumps(found), flush=True)
