"""The report's four methods to write a configuration, and ROMIO's, against ranks."""

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
from benchmarks.experiments.published import published
from benchmarks.experiments.scaling import Published, Scaling
from benchmarks.experiments.style import (
    OURS,
    PAPER,
    bars,
    legend_below,
    logarithmic,
    panels,
    points,
)
from benchmarks.measure import Spread
from benchmarks.snapshot_cases import COLLECTIVE, METHODS, Case, measure_cases
from benchmarks.table import Table

RANKS = (1, 2, 4, 8)
#: Parts of the time of a dump: names in rows, labels and colours.
PARTS = {
    "t_communicate": ("communicate", "#cc79a7"),
    "t_sort": ("sort", "#e69f00"),
    "t_format": ("format", "#009e73"),
    "t_write": ("write", "#0072b2"),
    "t_rest": ("open, check, close", "#777777"),
}
WAYS = (*METHODS, COLLECTIVE)
NAMES = {**METHODS, COLLECTIVE: "MPI_File_write_all"}
COLOURS = {
    "serial": "#0072b2",
    "direct": "#009e73",
    "mpiio": "#cc79a7",
    "sorted": OURS,
    COLLECTIVE: PAPER,
}


def cells_of(setting: Setting, whole: int = nacl.SMALL) -> int:
    """Return unit cells along an edge: the report's number, or fewer in a test."""
    return max(4, round(whole * min(1.0, setting.part) ** (1 / 3)))


def measure(setting: Setting) -> list[Row]:
    cells = cells_of(setting)
    cases = [Case(way, n, cells) for n in setting.ranks_or(RANKS) for way in WAYS]
    return measure_cases(setting.scratch, cases, setting.repeats)


def table(rows: list[Row]) -> Table:
    found = Table(
        "s for one configuration; in brackets the range; MB/s of the file at 2 ranks",
        ("method", "in the report", *(f"{n} rank{'s'[: n > 1]}" for n in RANKS), "MB/s"),
    )
    for way in WAYS:
        times = [cell(spread(rows, "t_total", way=way, ranks=n)) for n in RANKS]
        rate = cell(spread(rows, "mb_s", way=way, ranks=2))
        found.rows.append((way, NAMES[way], *times, rate))
    for row in theirs():
        where = f"published: {row['machine']}, {row['kind']}"
        rate = digits(row["mbytes_per_s"])
        found.rows.append((where, row["method"], *["–"] * len(RANKS), rate))
    return found


def draw(rows: list[Row]) -> Figure:
    figure, (left, right) = panels(2)
    for way in WAYS:
        values = [spread(rows, "t_total", way=way, ranks=n) for n in RANKS]
        points(left, RANKS, values, COLOURS[way], NAMES[way])
    logarithmic(left, RANKS, [str(n) for n in RANKS])
    left.set(xlabel="ranks on 2 cores", ylabel="s a dump")
    rates = {f"{NAMES[way]}, here": spread(rows, "mb_s", way=way, ranks=2) for way in WAYS}
    colours = [COLOURS[way] for way in WAYS]
    for row in theirs():
        rates[f"{row['method']}, {row['machine']}"] = Spread.of([row["mbytes_per_s"]])
        colours.append("#cccccc")
    bars(right, list(rates), list(rates.values()), colours)
    right.set(xlabel="MB/s; here of 2 ranks")
    legend_below(figure, left)
    return figure


def theirs() -> list[Row]:
    """Return the published rates of the smaller system."""
    return published("todorov_bush_figures", n_atoms=nacl.n_ions(nacl.SMALL))


def finding(rows: list[Row]) -> str:
    times = {n: cell(spread(rows, "t_total", way="sorted", ranks=n)) for n in (2, 8)}
    ratios = {
        n: {
            way: cell(ratio(rows, "t_total", {"way": way}, {"way": "sorted"}, ranks=n))
            for way in WAYS
        }
        for n in times
    }
    return (
        f"On 2 ranks a dump takes {times[2]} s sorted; written in place by the "
        f"first rank it takes {ratios[2]['serial']}, by all ranks {ratios[2]['direct']}, through "
        f"MPI-IO {ratios[2]['mpiio']}, and by ROMIO's collective write {ratios[2][COLLECTIVE]} "
        f"times as long. On 8 ranks it is {times[8]} s, and "
        f"{ratios[8]['serial']}, {ratios[8]['direct']}, {ratios[8]['mpiio']} and "
        f"{ratios[8][COLLECTIVE]} times."
    )


def rates() -> list[Published]:
    """Return the published rates of 216,000 atoms as ms a MB, by the number of writers."""
    return [
        Published(
            f"{row['machine']}, {row['method']}, by writers",
            {row["writers"]: 1e3 / row["mbytes_per_s"]},
        )
        for row in published("todorov_bush_figures", n_atoms=nacl.n_ions(nacl.SMALL))
        if row["writers"]
    ]


EXPERIMENT = Experiment(
    title="Four ways to write a snapshot",
    source="Todorov & Bush, HPCxTR0806, Figs 1, 3 and 5",
    question=(
        "The atoms of a simulation with domain decomposition are distributed over ranks, and the "
        "file needs them in order. The report wrote each record at its position, by the first rank "
        "(SWRITE), by all (PWRITE) or through MPI-IO (MWRITE), or sorted the atoms between ranks "
        "first (MWRITE_SORTED), the only method that scaled to hundreds of ranks. Here the same "
        "crystal of 216,000 ions of NaCl is written with velocities and forces to a CONFIG file. "
        "One collective write of ROMIO, MPI-IO's library, is measured too."
    ),
    measure=measure,
    table=table,
    draw=draw,
    finding=finding,
    why=(
        "One record is a few hundred bytes: written alone, each costs a call, and on the "
        "report's parallel file systems also a disk position and a lock, which a page cache does "
        "not need. PWRITE depends on the file system: it was fast on HPCx, but wrote zeros into "
        "files on the Cray. Files are in the page cache here and no dump waits for the disk, so "
        "sorting can save only the cost of calls. Beyond 2 ranks they share the two cores: the "
        "curves show the loss by more ranks, not the scaling. ROMIO's collective write also "
        "sorts between ranks, by lists of the position of each record, which it makes, sends and "
        "merges."
    ),
    scaling=Scaling(
        "ms a MB",
        lambda row: 1e3 / row["mb_s"],
        line="way",
        parts=PARTS,
        published=rates,
    ),
)
