"""Collect results by a gather, or by one-sided puts into the first rank's memory."""

from dataclasses import replace
from operator import itemgetter

from matplotlib.figure import Figure

from benchmarks.experiments.cases import Case, measure_cases
from benchmarks.experiments.experiment import (
    Experiment,
    Row,
    Setting,
    cell,
    spread,
    values_of,
)
from benchmarks.experiments.published import of_table5, published, stated
from benchmarks.experiments.scaling import BY_RANK, Published, Scaling
from benchmarks.experiments.style import OTHER, OURS, PARTS, bars, panels, points
from benchmarks.ranks import EVERY_RANK, on_ranks
from benchmarks.table import Table

WAYS = {"gather": OURS, "one-sided": OTHER}
#: More ranks than cores are allowed: only messages are measured, and waiting ranks sleep.
RANKS = (2, 4, 8)
#: Number of rows, as in the papers' trajectory, and of blocks in which they arrive.
ROWS, BLOCKS = 2_512_200, 400


def measure(setting: Setting) -> list[Row]:
    whole = (str(setting.data.trajectory("xtc")),)
    jobs = [
        Case("paceline", n, whole, setting.data.n_frames, collect=way)
        for n in setting.ranks_or(RANKS[:1])
        for way in WAYS
    ]
    rows = []
    for row in measure_cases(setting, jobs):
        case = {"what": "job", "way": row["collect"], "ranks": row["ranks"]}
        case |= {"seconds": row["t_total"], "messages": 0, "us_row": row["us_frame"]}
        rows.append({**case, **{part: row[part] for part in ("t_total", *PARTS, BY_RANK)}})
    n_rows = setting.amount(ROWS)
    for _ in range(setting.repeats):
        for n in setting.ranks_or(RANKS if setting.part >= 1 else RANKS[:1]):
            for way in WAYS:
                found = on_ranks(n, EVERY_RANK, "collect", way, n_rows, BLOCKS)
                case = {"what": "collecting", "way": way, "ranks": n, **found}
                times = dict.fromkeys(PARTS, 0.0) | dict.fromkeys(
                    ("t_total", "t_comm"), found["seconds"]
                )
                rows.append({**case, "us_row": 1e6 * found["seconds"] / n_rows, **times})
    return [{**row, "rows": n_rows} for row in rows]


def scaling_published() -> list[Published]:
    """Return Table 5 of the shared file, with both methods to collect, µs a row."""
    found = []
    for gather, name in (("mpi", "MPI_Gather"), ("ga", "Global Arrays")):
        (one,) = [
            one for one in of_table5("single", ("job",), gather=gather) if "Comet" in one.name
        ]
        found.append(replace(one, name=f"{one.name}, {name}"))
    return found


def ranks_of(rows: list[Row]) -> list[int]:
    return values_of([row for row in rows if row["what"] == "collecting"], "ranks")


def table(rows: list[Row]) -> Table:
    found = Table(
        f"Bringing {rows[0]['rows']:,} rows of 3 numbers to the first rank",
        ("ranks", "way", "ms", "messages"),
    )
    for ranks in ranks_of(rows):
        for way in WAYS:
            case = {"what": "collecting", "way": way, "ranks": ranks}
            times = cell(spread(rows, "seconds", 1e3, **case))
            found.rows.append((str(ranks), way, times, cell(spread(rows, "messages", **case))))
    comet = published("khoshlessan_stated_times", where="Comet")
    for row in comet:
        if row["quantity"].startswith("t_comm"):
            name = f"{row['case']}: {row['quantity']}"
            found.rows.append((str(row["n_processes"]), name, f"{row['value'] * 1e3:,.0f}", "–"))
    return found


def draw(rows: list[Row]) -> Figure:
    figure, (left, right) = panels(2, 2.8)
    spreads = [spread(rows, "seconds", what="job", way=way) for way in WAYS]
    bars(left, list(WAYS), spreads, list(WAYS.values()))
    left.set(xlabel="s", title="RMSD, whole job, 2 ranks")
    ranks = ranks_of(rows)
    for way, colour in WAYS.items():
        values = [spread(rows, "seconds", 1e3, what="collecting", way=way, ranks=n) for n in ranks]
        points(right, ranks, values, colour, way)
    right.set(xlabel="ranks, on 2 cores", xticks=ranks, ylabel="ms", ylim=(0, None))
    right.set_title(f"collecting {rows[0]['rows']:,} rows")
    right.legend()
    return figure


def finding(rows: list[Row]) -> str:
    most = max(ranks_of(rows))
    times = [
        cell(spread(rows, "seconds", 1e3, what="collecting", way=way, ranks=most)) for way in WAYS
    ]
    jobs = [cell(spread(rows, "seconds", what="job", way=way)) for way in WAYS]
    theirs = stated("khoshlessan_stated_times", quantity="t_comm of stragglers")
    return (
        f"The rows of {rows[0]['rows']:,} frames are on the first of {most} ranks after {times[0]} "
        f"ms by a gather, {times[1]} ms one-sided; a whole RMSD takes {jobs[0]} and {jobs[1]} s. "
        f"The stragglers on Comet spent about {theirs:g} s in MPI_Gather."
    )


EXPERIMENT = Experiment(
    title="Gather or one-sided",
    source="Khoshlessan et al. 2020, Fig. 6",
    question=(
        "With Global Arrays each rank puts its results into one array, instead of MPI_Gather at "
        "the end. The time for communication nearly vanished, without an explanation."
    ),
    measure=measure,
    table=table,
    draw=draw,
    finding=finding,
    why=(
        "There is little to send: a few numbers per frame. A blocking gather waits for the other "
        "ranks, and the papers count this as communication; a one-sided put returns at once, and "
        "the same wait is in no measured component. In both of paceline's methods waiting is "
        "counted as waiting, idle ranks sleep, and dynamic scheduling makes all end together. "
        "There was no network between the ranks and no reading at the same time: see the next "
        "two experiments."
    ),
    scaling=Scaling(
        "µs a row",
        itemgetter("us_row"),
        line="way",
        variants=("what",),
        published=scaling_published,
    ),
)
