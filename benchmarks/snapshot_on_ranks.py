"""A program that dumps sodium chloride on every rank of MPI, in every way; the first prints JSON."""

import json
import os
import sys
import time
import zlib
from collections.abc import Callable
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
from paceline.snapshot import Writer

TITLE = "sodium chloride"
#: Bytes of formatted records that leave with one write where they are in order already.
LARGE = 8 << 20


def cases(folder: str, told: str, repeats: str) -> list[dict[str, Any]]:
    """Each case in turn, round after round; a first round, that of first times, counts not."""
    todo = [Case(**one) for one in json.loads(Path(told).read_text(encoding="utf-8"))]
    found = []
    for number in range(-1, int(repeats)):
        for which, case in enumerate(todo):
            measured = of_first(case.ranks, partial(dump, case, str(Path(folder) / "dump")))
            if number >= 0:
                found.append({"case": which, **(measured or {})})
    return found


def dump(case: Case, path: str, comm: MPI.Intracomm) -> dict[str, Any]:
    """One file, from opening to closing."""
    ions = held(case.way == IN_ORDER, case.cells, comm.size, comm.rank)
    comm.Barrier()
    growth = Growth()
    begun = time.perf_counter()
    cost = WAYS[case.way](comm, case, path, ions)
    seconds = time.perf_counter() - begun
    peak = growth.peak()
    ...


@cache
def held(in_order: bool, cells: int, n_ranks: int, rank: int) -> nacl.Ions:
    """What a rank has: what lies in its part of the box, or its share by id."""
    if not in_order:
        return nacl.ions_of(cells, MPI.Compute_dims(n_ranks, 3), rank)
    ions = nacl.ions_of(cells)
    share = slice(*(len(ions.ids) * k // n_ranks for k in (rank, rank + 1)))
    return ions[np.argsort(ions.ids)[share]]
