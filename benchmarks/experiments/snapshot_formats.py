"""Text, NetCDF, DCD and H5MD: time to write and to read a snapshot, and its size."""

import json
from operator import itemgetter
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks import nacl
from benchmarks.experiments.experiment import Experiment, Row, Setting, cell, ratio, spread
from benchmarks.experiments.scaling import Scaling
from benchmarks.experiments.snapshot_methods import cells_of
from benchmarks.experiments.style import OTHER, OURS, bars, panels
from benchmarks.ranks import EVERY_RANK, on_ranks
from benchmarks.table import Table

PROGRAM = Path(__file__).with_name("snapshot_formats_on_ranks.py")
RANKS = (2,)
#: Number of dumps in turn; CONFIG keeps the last one.
FRAMES = 5
#: Formats, with the names of their files.
FILES = {
    "CONFIG": "CONFIG",
    "HISTORY": "HISTORY",
    "NetCDF": "dump.nc",
    "H5MD": "dump.h5md",
    "DCD": "dump.dcd",
}
#: Fields of the atoms, with those that are left out, and formats that can hold them.
EVERYTHING, POSITIONS = "positions, velocities, forces", "positions"
FIELDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    EVERYTHING: ((), ("CONFIG", "HISTORY", "NetCDF", "H5MD")),
    POSITIONS: (("velocities", "forces"), tuple(FILES)),
}
CASES = [(fields, name) for fields, (_, names) in FIELDS.items() for name in names]
#: Parts of a row's time.
PARTS = {"t_write": ("writing", OURS), "t_read": ("reading", OTHER)}


def measure(setting: Setting) -> list[Row]:
    cells = cells_of(setting)
    cases = [(fields, name, n) for n in setting.ranks_or(RANKS) for fields, name in CASES]
    todo = [
        {
            **{"file": FILES[name], "format": name, "without": FIELDS[fields][0]},
            **{"ranks": n, "cells": cells, "frames": FRAMES},
        }
        for fields, name, n in cases
    ]
    told = setting.scratch / "formats.json"
    told.write_text(json.dumps(todo), encoding="utf-8")
    most = max(n for *_, n in cases)
    files = setting.scratch, told
    rows = []
    for one in on_ranks(most, EVERY_RANK, *files, setting.repeats, programs=PROGRAM):
        fields, name, n = cases[one.pop("case")]
        size = 1e6 * one["mbytes"] / nacl.n_ions(cells)
        rows.append(
            {"fields": fields, "format": name, "ranks": n, "cells": cells, **one, "bytes_ion": size}
        )
    return rows


def table(rows: list[Row]) -> Table:
    found = Table(
        f"{nacl.n_ions(rows[0]['cells']):,} ions, {RANKS[0]} ranks; times of one of {FRAMES} dumps",
        ("fields", "format", "bytes an ion", "ms to write", "ms to read"),
    )
    for fields, name in CASES:
        case = {"fields": fields, "format": name}
        times = [cell(spread(rows, part, 1e3, **case)) for part in PARTS]
        found.rows.append((fields, name, cell(spread(rows, "bytes_ion", **case)), *times))
    return found


def draw(rows: list[Row]) -> Figure:
    figure, panes = panels(3, 3.4)
    names = [f"{name}{'' if fields == EVERYTHING else ', positions'}" for fields, name in CASES]
    shown = (("bytes_ion", "bytes an ion", 1.0), ("t_write", "ms to write", 1e3))
    for axes, (column, label, scale) in zip(
        panes, (*shown, ("t_read", "ms to read", 1e3)), strict=True
    ):
        values = [spread(rows, column, scale, fields=fields, format=name) for fields, name in CASES]
        colours = [OURS if fields == EVERYTHING else OTHER for fields, _ in CASES]
        bars(axes, names if axes is panes[0] else [""] * len(names), values, colours)
        axes.set(xlabel=label)
    return figure


def finding(rows: list[Row]) -> str:
    def times(part: str) -> str:
        both = (
            cell(ratio(rows, part, {"format": "CONFIG"}, {"format": one}, fields=EVERYTHING))
            for one in ("NetCDF", "H5MD")
        )
        return " and ".join(both)

    sizes = [
        cell(spread(rows, "bytes_ion", fields=EVERYTHING, format=name))
        for name in ("CONFIG", "NetCDF", "H5MD")
    ]
    return (
        f"With velocities and forces an ion takes {sizes[0]} bytes of text, {sizes[1]} of NetCDF "
        f"and {sizes[2]} of H5MD. Writing text takes {times('t_write')} times as long as writing "
        f"NetCDF and H5MD, reading it {times('t_read')} times as long."
    )


EXPERIMENT = Experiment(
    title="Formats of snapshots",
    source="Todorov & Bush, HPCxTR0806, whose program writes text",
    question=(
        "DL_POLY writes formatted text, for portability. Here the same ions are written in order "
        "to text, to binary formats that are as portable, and read by domains again."
    ),
    measure=measure,
    table=table,
    draw=draw,
    finding=finding,
    why=(
        "Text has 20 characters for each number, binary formats 4 bytes, as single precision. "
        "HISTORY and H5MD also have masses and charges, text has names, DCD has positions alone. "
        "H5MD costs more than NetCDF of the same size: HDF5 writes metadata after each dump, and "
        "reads them at opening; both matter less in larger systems. "
        "Files are in the page cache; where the disk is the limit, times follow the sizes."
    ),
    scaling=Scaling(
        "s to write and read",
        itemgetter("t_total"),
        line="format",
        variants=("fields",),
        parts=PARTS,
    ),
)
