"""Rules that derive recommendations in plain words from the numbers of a run.

They follow heuristics 1 to 3.3 of Khoshlessan et al. 2020 (section 8). Further rules concern
paceline's method, which opens a file once, finds frames by an index and assigns blocks to idle
workers. A rule gives no recommendation if the numbers of a run do not support it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from paceline.performance.number_format import joined, percent, rate, seconds, times
from paceline.performance.record import WALL_TIME
from paceline.performance.summary import Report

#: Minimum total time of blocks for a meaningful result, s.
ENOUGH = 0.5
#: Minimum fraction of the work time for which a component limits the run.
BOUND = 0.5
#: Minimum fraction of the work time for which a component is mentioned.
NOTABLE = 0.1
#: Ratio that counts as much larger, the R ≫ 1 of the heuristics.
MUCH = 10.0
#: Minimum number of bytes read per byte used for which a file of the wanted atoms pays off.
WASTEFUL = 2.0
#: Minimum start-up time that is mentioned, s, if it also exceeds the time of the work.
LONG_START = 0.5
#: Minimum number of blocks per worker, so that waiting for the last blocks is a small fraction.
BLOCKS = 4
#: Number of frames of the smallest block of a plan.
SMALLEST = 16

_BUSY_CORE = "See whether something else uses its core, or whether it is throttled."
_REMEDIES = {
    "opening": "See whether the way from there to the file system is slow.",
    "reading": "See whether the way from there to the file is slow: its network, its disk.",
    "decoding": _BUSY_CORE,
    "transforming": _BUSY_CORE,
    "computing": f"{_BUSY_CORE} Or the analysis takes longer for its frames.",
    "overhead": "See whether something else uses its core, or its memory.",
    "waiting": "It was free and had to wait for blocks: see whether its network is slow.",
    "communicating": "Its last results were long on their way: see whether its network is slow.",
    "hanging": "It did not come back from a block, which another worker did.",
}


@dataclass(frozen=True)
class Recommendation:
    """Finding about a run, with a remedy.

    Attributes
    ----------
    kind : str
        Subject in one word or two.
    text : str
        Short paragraph.
    numbers : dict of str to float
        Supporting numbers: attributes of the report, seconds, or fractions from 0 to 1.
    heuristic : str
        Number of the heuristic in Khoshlessan et al. 2020; empty for other rules.
    """

    kind: str
    text: str
    numbers: dict[str, float]
    heuristic: str = ""


def advice_of(report: Report) -> list[Recommendation]:
    """Derive recommendations from the numbers of a run; the first concerns the limiting component.

    Parameters
    ----------
    report : Report
        Report of the run.

    Returns
    -------
    list of Recommendation
        At least one recommendation.

    Examples
    --------
    >>> import paceline
    >>> from paceline.report import report_of
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> from paceline.analysis.rms import RMSF
    >>> protein = paceline.Universe(PSF, DCD).select_atoms("protein")
    >>> [one.kind for one in advice_of(report_of(RMSF(protein).run(backend="serial").timings))]
    ['too short']
    """
    if report.t_blocks < ENOUGH:
        return [_too_short(report)]
    found = (rule(report) for rule in _RULES)
    return [one for one in found if one is not None]


def _too_short(report: Report) -> Recommendation:
    return Recommendation(
        "too short",
        f"All blocks together took {seconds(report.t_blocks)}: too short to say what limits the "
        "speed. Ask again of one that takes some seconds.",
        {"t_blocks": report.t_blocks, "t_total": report.t_total},
    )


def _balance(report: Report) -> Recommendation:
    """Describe the kind of task (heuristic 1)."""
    parts = sorted(WALL_TIME, key=lambda part: report.shares[part.quantity], reverse=True)
    spent = [
        f"{percent(report.shares[part.quantity])} into {part.activity}"
        for part in parts
        if report.shares[part.quantity] >= 0.01
    ]
    numbers = {"R_comp_IO": report.R_comp_IO, "R_comp_comm": report.R_comp_comm}
    return Recommendation(
        "balance",
        f"The workers' time went {joined(spent)}. Computing took {times(report.R_comp_IO)} times "
        "as long as waiting for bytes and decoding them (R_comp/IO), and "
        f"{times(report.R_comp_comm)} times as long as collecting results (R_comp/comm).",
        {**{part.quantity: report.shares[part.quantity] for part in parts}, **numbers},
        "1",
    )


def _stragglers(report: Report) -> Recommendation | None:
    """Name the slowest workers, or their host."""
    if not report.stragglers:
        return None
    worst = report.stragglers[0]
    of_host = [one for one in report.stragglers if one.host == worst.host]
    on_host = [worker for worker in report.workers if worker.host == worst.host]
    lost = sum(one.seconds_lost for one in report.stragglers)
    if report.n_hosts > 1 and len(of_host) == len(on_host) > 1:
        who = f"Host {worst.host} is slow: all of its {len(of_host)} workers are, and the slowest"
    elif len(report.stragglers) > 1:
        who = f"{len(report.stragglers)} workers are slow; the slowest, {worst.worker},"
    else:
        who = f"Worker {worst.worker} is slow: it"
    text = (
        f"{who} took {worst.factor:.1f} times as long for its frames as the median, mostly by "
        f"{worst.cause}; {seconds(lost)} of work went into that. {_REMEDIES[worst.cause]}"
    )
    numbers = {"factor": worst.factor, "seconds_lost": lost, "n": len(report.stragglers)}
    return Recommendation("straggler", text, numbers)


def _computing(report: Report) -> Recommendation | None:
    """Recommend remedies for a run limited by computing (heuristics 2 and 2.1)."""
    share = _at_work(report, "t_compute") + _at_work(report, "t_transform")
    if share < BOUND:
        return None
    text = (
        f"Computing bounds this run: {percent(share)} of the workers' time since their first "
        f"blocks. It scales: {_twice(report)}. One shared file is no hindrance."
    )
    if report.shares["t_transform"] > report.shares["t_compute"]:
        text += " Most of it are transformations, which several analyses in one pass share."
    elif report.backend == "threads" and report.n_workers > 1:
        text += (
            " If the function is Python code that holds the interpreter, threads wait for one "
            'another within it; backend="processes" does not.'
        )
    return Recommendation("computing", text, {"share": share, "t_blocks": report.t_blocks}, "2.1")


def _decoding(report: Report) -> Recommendation | None:
    """Recommend remedies for a run limited by decoding, not by the disk (heuristic 3)."""
    share = _at_work(report, "t_decode")
    if share < BOUND:
        return None
    text = (
        f"Decoding bounds this run: {percent(share)} of the workers' time since their first "
        f"blocks. More cores help: {_twice(report)}. Several analyses in one pass decode once."
    )
    if report.trajectory.lower().endswith(".xtc"):
        text += (
            " A frame of an XTC file is decoded up to the last atom wanted; a copy of the selected "
            "atoms alone (paceline convert --select), or DCD where there is room for it, is "
            "quicker if it is read often."
        )
    return Recommendation("decoding", text, {"share": share, "t_blocks": report.t_blocks}, "3")


def _reading(report: Report) -> Recommendation | None:
    """Recommend remedies for a run limited by reading (heuristics 3 to 3.2)."""
    share = _at_work(report, "t_io")
    if share < 2 * NOTABLE:
        return None
    return Recommendation(
        "reading",
        f"Workers waited for bytes {percent(share)} of their time since their first blocks, though "
        f"the next block is asked for ahead: the files gave {rate(report.read_rate)} to "
        f"{report.n_workers} workers. If the disk or the network gives no more, more workers will "
        "not help. A faster disk does, or several files on several servers (paceline split: many "
        "files are one trajectory), and several analyses in one pass read once for all. No other "
        "format is needed to read from many processes: each reads its own bytes here, of any.",
        {"share": share, "read_rate": report.read_rate, "bytes_read": float(report.bytes_read)},
        "3.2",
    )


def _unused_bytes(report: Report) -> Recommendation | None:
    share = _at_work(report, "t_io")
    if not report.read_per_used >= WASTEFUL or share < NOTABLE:
        return None
    return Recommendation(
        "bytes",
        f"{times(report.read_per_used)} bytes were read for each byte that the analyses used, and "
        f"waiting for them took {percent(share)} of the time. A file of the selected atoms alone "
        "(paceline convert --select) has only those.",
        {"read_per_used": report.read_per_used, "share": share},
    )


def _opening(report: Report) -> Recommendation | None:
    share = _at_work(report, "t_init_traj")
    if share < NOTABLE:
        return None
    most = report.over_workers["t_init_traj"].most
    return Recommendation(
        "opening",
        f"Opening the file took {percent(share)} of the workers' time since their first blocks, "
        f"{seconds(most)} the slowest. It is done once a worker, so it weighs less in a longer "
        "run; perhaps the file system is busy.",
        {"share": share, "most": most},
    )


def _collecting(report: Report) -> Recommendation | None:
    """Recommend remedies for a run with slow collection of results (heuristics 2.2 and 3.3)."""
    if report.t_comm < NOTABLE * report.t_blocks or report.R_comp_comm > MUCH:
        return None
    text = (
        f"Collecting results took {seconds(report.t_comm)} beside {seconds(report.t_blocks)} of "
        "blocks. Return less of each frame: a reduction (a mean, a histogram) is merged where it "
        "is computed, rows of all frames must travel."
    )
    if report.backend == "mpi":
        text += ' On many ranks MPI(collect="one-sided") may be quicker.'
    elif report.backend not in ("threads", "serial"):
        text += ' backend="threads" sends nothing.'
    numbers = {"t_comm": report.t_comm, "R_comp_comm": report.R_comp_comm}
    return Recommendation("collecting", text, numbers, "3.3" if report.R_comp_IO <= 1 else "2.2")


def _starting(report: Report) -> Recommendation | None:
    """Report processes whose start took longer than their work."""
    wait, work = report.over_workers["t_wait_first"].mean, report.over_workers["t_work"].mean
    if wait < max(work, LONG_START):
        return None
    text = (
        f"It took {seconds(wait)} until a worker had its first block, and {seconds(work)} to do "
        "all of its blocks: starting took longer than the work."
    )
    if report.backend not in ("threads", "serial"):
        text += (
            ' backend="threads" starts at once; a second run in the same program finds its '
            "workers there."
        )
    return Recommendation("starting", text, {"t_wait_first": wait, "t_work": work})


def _static(report: Report) -> Recommendation | None:
    """Report equal shares for unequal workers."""
    if report.schedule != "static" or report.imbalance < 1 + NOTABLE:
        return None
    mean = report.t_blocks / report.imbalance
    return Recommendation(
        "static",
        f"Each worker had an equal share: the last was done after {seconds(report.t_blocks)}, all "
        f"of them on average after {seconds(mean)}. Assigned as workers come free "
        '(schedule="dynamic"), all blocks would be done at about that time.',
        {"imbalance": report.imbalance, "t_blocks": report.t_blocks, "mean": mean},
    )


def _few_blocks(report: Report) -> Recommendation | None:
    """Report workers that wait for the last block, or never had a block."""
    wait = report.over_workers["t_wait_last"].mean
    few = report.n_blocks < BLOCKS * max(report.n_workers, report.n_asked)
    waited = report.n_workers < report.n_asked or wait >= NOTABLE * report.t_blocks
    if report.schedule == "static" or not (few and waited):
        return None
    text = f"There were {report.n_blocks} blocks for {report.n_asked} workers"
    if report.n_workers < report.n_asked:
        text += f", of which {report.n_asked - report.n_workers} came to none"
    text += f"; at the end workers waited {seconds(wait)} for the last block. "
    block_frames = _suggested(report)
    # Each pass over the frames has its own blocks.
    if block_frames < sum(worker.n_frames for worker in report.workers) / report.n_blocks:
        text += f"Smaller blocks end closer together: block_frames={block_frames}."
    else:
        text += "For so few frames fewer workers do as well."
    numbers = {"n_blocks": report.n_blocks, "n_asked": report.n_asked, "t_wait_last": wait}
    return Recommendation("few blocks", text, numbers)


def _suggested(report: Report) -> int:
    """Number of frames of a block that gives enough blocks: 16 times a power of two."""
    most = report.n_frames / (2 * BLOCKS * max(report.n_asked, 1))
    return SMALLEST * 2 ** max(0, math.floor(math.log2(max(most / SMALLEST, 1))))


def _between_blocks(report: Report) -> Recommendation | None:
    """Report workers that waited for their next block."""
    names = ("t_wait", "t_wait_first", "t_wait_last")
    wait, first, last = (report.over_workers[name].mean for name in names)
    between = wait - first - last
    if between < NOTABLE * report.t_blocks:
        return None
    return Recommendation(
        "between blocks",
        f"Between their blocks workers waited {seconds(between)} on average, "
        f"{percent(between / report.t_blocks)} of the time: blocks are too short for this backend, "
        f"or results come faster than they are collected ({seconds(report.t_comm)}). Larger blocks "
        "(block_frames=), or fewer numbers a frame, help.",
        {"between": between, "t_comm": report.t_comm},
    )


def _done_twice(report: Report) -> Recommendation | None:
    """Report blocks that were assigned again."""
    share = report.shares["t_abandoned"]
    if share < NOTABLE:
        return None
    return Recommendation(
        "done twice",
        f"Of the workers' time {percent(share)} went into {len(report.abandoned)} blocks that "
        "another worker was done with sooner: they were assigned again because they took too long. "
        "That is no loss where the others had nothing else to do.",
        {"share": share, "n_abandoned": len(report.abandoned)},
    )


def _at_work(report: Report, name: str) -> float:
    """Fraction of work in the workers' time since their first block: their start may be slow."""
    since = report.t_blocks - report.over_workers["t_wait_first"].mean
    return report.over_workers[name].mean / since if since > 0 else 0.0


def _twice(report: Report) -> str:
    """Estimate the time with twice the workers, if only their work is divided."""
    start = report.over_workers["t_wait_first"].mean
    halved = start + (report.t_blocks - start) / 2
    return (
        f"with twice the workers, each on a core of its own, the blocks would take about "
        f"{seconds(halved)} rather than {seconds(report.t_blocks)}"
    )


#: In the order of the recommendations.
_RULES: tuple[Callable[[Report], Recommendation | None], ...] = (
    _balance,
    _stragglers,
    _computing,
    _decoding,
    _reading,
    _unused_bytes,
    _opening,
    _collecting,
    _starting,
    _static,
    _few_blocks,
    _between_blocks,
    _done_twice,
)
