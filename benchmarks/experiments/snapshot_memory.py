"""Memory of a writing rank, as a function of its buffer."""

from operator import itemgetter

from matplotlib.figure import Figure

from benchmarks import nacl
from benchmarks.experiments.experiment import (
    Experiment,
    Row,
    Setting,
    cell,
    digits,
    ratio,
    spread,
)
from benchmarks.experiments.published import stated
from benchmarks.experiments.scaling import Scaling
from benchmarks.experiments.snapshot_methods import cells_of
from benchmarks.experiments.style import (
    OTHER,
    OURS,
    PAPER,
    legend_below,
    logarithmic,
    panels,
    points,
)
from benchmarks.resident import MEBIBYTE
from benchmarks.snapshot_cases import Case, measure_cases
from benchmarks.table import Table

#: Sizes of the buffer, MiB.
BUFFERS = (4, 8, 16, 32, 64, 128)
WHOLE = (nacl.SMALL, nacl.LARGE)
COLOURS = dict(zip(WHOLE, (OTHER, OURS), strict=True))
RANKS, WRITERS = 2, 1
#: Memory that a rank may use beyond its buffer, MB.
ALLOWED = 32 * MEBIBYTE


def measure(setting: Setting) -> list[Row]:
    cases = {
        (whole, mebibytes, n): Case(
            "sorted", n, cells_of(setting, whole), writers=WRITERS, buffer=f"{mebibytes} MiB"
        )
        for n in setting.ranks_or((RANKS,))
        for whole in WHOLE
        for mebibytes in BUFFERS
    }
    rows = measure_cases(setting.scratch, list(cases.values()), setting.repeats)
    for row, (whole, mebibytes, _) in zip(rows, list(cases) * setting.repeats, strict=True):
        row |= {"system": whole, "buffer": mebibytes}
    return rows


def table(rows: list[Row]) -> Table:
    found = Table(
        "largest growth of a rank in MB, beyond its ions; peak of its buffers; s of a dump",
        ("ions", "buffer, MB", "memory, MB", "buffers, MB", "batches", "s"),
    )
    for whole in WHOLE:
        for mebibytes in BUFFERS:
            case = {"system": whole, "buffer": mebibytes}
            columns = ("mb_growth", "mb_buffer", "n_batches", "t_total")
            cells = [cell(spread(rows, column, **case)) for column in columns]
            found.rows.append((f"{nacl.n_ions(whole):,}", digits(mebibytes * MEBIBYTE), *cells))
        found.rows.append(
            (
                f"{nacl.n_ions(whole):,}",
                "the report's prototype",
                digits(prototype(whole)),
                "–",
                "1",
                "–",
            )
        )
    return found


def prototype(cells: int) -> float:
    """Return the total memory of the report's program on its writers, MB."""
    return nacl.n_ions(cells) * stated("todorov_bush_stated", where="prototype") / 1e6


def draw(rows: list[Row]) -> Figure:
    figure, (left, right) = panels(2)
    buffers = [mebibytes * MEBIBYTE for mebibytes in BUFFERS]
    for whole in WHOLE:
        label = f"{nacl.n_ions(whole):,} ions"
        for axes, column in ((left, "mb_growth"), (right, "t_total")):
            values = [spread(rows, column, system=whole, buffer=one) for one in BUFFERS]
            points(axes, buffers, values, COLOURS[whole], label)
        left.axhline(prototype(whole), color=COLOURS[whole], linewidth=1, linestyle=":")
    left.plot(buffers, buffers, color=PAPER, label="the buffer")
    left.plot(buffers, [one + ALLOWED for one in buffers], "--", color=PAPER, label="and 32 MiB")
    left.plot([], [], ":", color=PAPER, label="the report's prototype")
    left.set(ylabel="MB beyond its ions", title="memory of a writer")
    right.set(ylabel="s", title="a dump")
    for axes in (left, right):
        logarithmic(axes, buffers, [digits(one) for one in buffers])
        axes.set(xlabel="buffer, MB")
    left.set(yscale="linear", ylim=(0, None))
    legend_below(figure, left)
    return figure


def finding(rows: list[Row]) -> str:
    growth = {whole: cell(spread(rows, "mb_growth", system=whole, buffer=64)) for whole in WHOLE}
    worst = max(0, *(row["mb_growth"] - row["buffer"] * MEBIBYTE for row in rows))
    slowest = {
        whole: cell(
            ratio(rows, "t_total", {"buffer": BUFFERS[0]}, {"buffer": BUFFERS[-1]}, system=whole)
        )
        for whole in WHOLE
    }
    return (
        f"With a buffer of 67.1 MB one rank that writes for two grows by {growth[WHOLE[0]]} MB for "
        f"216,000 ions and by {growth[WHOLE[1]]} MB for 1,728,000. The largest excess over the "
        f"buffer is {digits(worst)} MB. The smallest buffer makes a dump {slowest[WHOLE[0]]} and "
        f"{slowest[WHOLE[1]]} times as long as the largest."
    )


EXPERIMENT = Experiment(
    title="Memory of the ranks that write",
    source="Todorov & Bush, HPCxTR0806, section 5",
    question=(
        "The report's prototype collects all atoms on its writers at once, 116 bytes each, which "
        "limits the size of systems; it proposes batches within a buffer. Here one of two ranks "
        "writes everything, with buffers of several sizes."
    ),
    measure=measure,
    table=table,
    draw=draw,
    finding=finding,
    why=(
        "The ids are divided into batches that fit the buffer, for any number of atoms; each is "
        "received, sorted, formatted and written before the next. Memory is that of the process as "
        "Linux counts it, including MPI's messages and Python."
    ),
    scaling=Scaling(
        "MB beyond its ions",
        itemgetter("mb_growth"),
        line="system",
        variants=("buffer",),
        parts={},
    ),
)
