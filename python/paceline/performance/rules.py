"""Rules that derive recommendations, in plain words, from the numbers of a run.

Most rules follow heuristics 1 to 3.3 of Khoshlessan et al. 2020 (section 8). The others concern
paceline's own method: it opens a file once, finds frames by an index, and assigns blocks to idle
workers. A rule makes no recommendation if the numbers of a run do not support it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from paceline.performance.number_format import joined, percent, rate, seconds, times
from paceline.performance.record import WALL_TIME
from paceline.performance.time_breakdown_and_stragglers import Report

#: Minimum time from the first assignment of blocks to the end of the last block, s; in a shorter
#: run, times are not meaningful.
ENOUGH = 0.5
#: A component is said to limit the run if it takes at least this fraction of the workers' time
#: since their first blocks.
BOUND = 0.5
#: Minimum fraction of the time that a component or a wait must take to be mentioned.
NOTABLE = 0.1
#: Ratio above which one number counts as much larger than another (R ≫ 1 in the heuristics).
MUCH = 10.0
#: If at least this number of bytes is read for each byte that is used, a file that contains only
#: the required atoms is recommended.
WASTEFUL = 2.0
#: Fewer workers may be recommended if a host has at least this number of workers.
CROWDED = 4
#: The wait for the first blocks is mentioned if its mean over workers is at least this time, s, and
#: at least as long as the mean work of a worker.
LONG_START = 0.5
#: Minimum number of blocks per worker; with fewer, the wait for the last block may be mentioned.
BLOCKS = 4
#: Smallest number of frames per block that is recommended.
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
        Subject in one or two words.
    text : str
        Short paragraph.
    numbers : dict of str to float
        Numbers on which the text is based: report attributes, numbers of workers or blocks, times
        in s, or fractions from 0 to 1.
    heuristic : str
        Number of the heuristic in Khoshlessan et al. 2020; empty for other rules.
    """

    kind: str
    text: str
    numbers: dict[str, float]
    heuristic: str = ""


def advice_of(report: Report) -> list[Recommendation]:
    """Derive recommendations from a run's report.

    Parameters
    ----------
    report : Report
        Report of the run.

    Returns
    -------
    list of Recommendation
        At least one recommendation. The first one states where the workers' time went, or that the
        run was too short.

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
        f"All blocks together took {seconds(report.t_blocks)}: too short to find what limits the "
        "speed. Report a run that takes some seconds.",
        {"t_blocks": report.t_blocks, "t_total": report.t_total},
    )


def _balance(report: Report) -> Recommendation:
    """State how the time of workers divides into computing, I/O and communication (heuristic 1)."""
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
    """Report stragglers: name the slowest worker, or its host if all workers there are slow."""
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
    """Recommend remedies for a run that computing limits (heuristics 2 and 2.1)."""
    share = _at_work(report, "t_compute") + _at_work(report, "t_transform")
    if share < BOUND:
        return None
    text = (
        f"Computing limits this run: {percent(share)} of the workers' time since their first "
        f"blocks. It scales: {_twice(report)}. One shared file is no obstacle."
    )
    if report.shares["t_transform"] > report.shares["t_compute"]:
        text += " Most of it is transformations, which several analyses in one pass share."
    elif report.backend == "threads" and report.n_workers > 1:
        text += (
            " If the function is Python code that holds the interpreter lock, threads wait for "
            'each other in it; backend="processes" avoids this.'
        )
    return Recommendation("computing", text, {"share": share, "t_blocks": report.t_blocks}, "2.1")


def _decoding(report: Report) -> Recommendation | None:
    """Recommend remedies for a run that decoding limits, not the disk (heuristic 3)."""
    share = _at_work(report, "t_decode")
    if share < BOUND:
        return None
    text = (
        f"Decoding limits this run: {percent(share)} of the workers' time since their first "
        f"blocks. More cores help: {_twice(report)}. Several analyses in one pass decode once."
    )
    if report.trajectory.lower().endswith(".xtc"):
        text += (
            " A frame of an XTC file is decoded up to the last selected atom. If the file is read "
            "often, a copy of the selected atoms (paceline convert --select), or a DCD file if "
            "there is "
            "enough space, is faster."
        )
    return Recommendation("decoding", text, {"share": share, "t_blocks": report.t_blocks}, "3")


def _reading(report: Report) -> Recommendation | None:
    """Recommend remedies for a run that reading limits (heuristics 3 to 3.2)."""
    share = _at_work(report, "t_io")
    if share < 2 * NOTABLE:
        return None
    return Recommendation(
        "reading",
        f"Workers waited for bytes {percent(share)} of their time since their first blocks, "
        "although "
        f"the next block is prefetched: the files delivered {rate(report.read_rate)} to "
        f"{report.n_workers} workers. If this is the limit of the disk or network, more workers do "
        "not help. A faster disk helps, or several files on several servers (paceline split: "
        "several "
        "files form one trajectory). Several analyses in one pass read the file only once. No "
        "other "
        "format is needed to read from many processes: each process reads only its own bytes.",
        {"share": share, "read_rate": report.read_rate, "bytes_read": float(report.bytes_read)},
        "3.2",
    )


def _crowded(report: Report) -> Recommendation | None:
    """Recommend fewer workers on each host if workers mostly wait for bytes.

    Khoshlessan et al. 2020, Fig. 8, show such a case.
    """
    share = _at_work(report, "t_io")
    on_host = report.n_workers // report.n_hosts
    busy = on_host * (1 - share)
    enough = math.ceil(busy) + 1
    if share < BOUND or on_host < CROWDED or enough >= on_host:
        return None
    if report.backend == "mpi":
        workers, how = "ranks a node", f"--ntasks-per-node={enough}"
    elif report.n_hosts > 1:
        workers, how = "workers a host", f"{enough} on each"
    else:
        workers, how = "workers", f"n_workers={enough}"
    return Recommendation(
        "fewer workers",
        f"{on_host} {workers} did the work of {max(busy, 0.1):.1f} and waited for bytes otherwise, "
        f"so the file system limits them, not the cores. Try fewer, {how}: they would take the "
        "bytes as fast as they arrive, and disturb each other less.",
        {"share": share, "on_host": float(on_host), "enough": float(enough)},
    )


def _unused_bytes(report: Report) -> Recommendation | None:
    share = _at_work(report, "t_io")
    if not report.read_per_used >= WASTEFUL or share < NOTABLE:
        return None
    return Recommendation(
        "bytes",
        f"{times(report.read_per_used)} bytes were read for each byte that the analyses used, and "
        f"waiting for them took {percent(share)} of the time. A file of the selected atoms "
        "(paceline convert --select) avoids this.",
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
        f"{seconds(most)} for the slowest worker. Each worker opens the file once, so that opening "
        "weighs less in a longer run; perhaps the file system is busy.",
        {"share": share, "most": most},
    )


def _collecting(report: Report) -> Recommendation | None:
    """Recommend remedies if collecting results is slow (heuristics 2.2 and 3.3)."""
    if report.t_comm < NOTABLE * report.t_blocks or report.R_comp_comm > MUCH:
        return None
    text = (
        f"Collecting results took {seconds(report.t_comm)} beside {seconds(report.t_blocks)} of "
        "blocks. Return less data per frame: a reduction (a mean, a histogram) is merged where it "
        "is computed, whereas rows of all frames must be sent."
    )
    if report.backend == "mpi":
        text += ' On many ranks MPI(collect="one-sided") may be faster.'
    elif report.backend not in ("threads", "serial"):
        text += ' backend="threads" sends nothing.'
    numbers = {"t_comm": report.t_comm, "R_comp_comm": report.R_comp_comm}
    return Recommendation("collecting", text, numbers, "3.3" if report.R_comp_IO <= 1 else "2.2")


def _starting(report: Report) -> Recommendation | None:
    """Report that workers waited for their first blocks longer than they worked, on average."""
    wait, work = report.over_workers["t_wait_first"].mean, report.over_workers["t_work"].mean
    if wait < max(work, LONG_START):
        return None
    text = (
        f"It took {seconds(wait)} until a worker got its first block, and {seconds(work)} to "
        "process "
        "all of its blocks: starting took longer than the work."
    )
    if report.backend not in ("threads", "serial"):
        text += (
            ' backend="threads" starts immediately; a second run in the same program uses the '
            "running workers again."
        )
    return Recommendation("starting", text, {"t_wait_first": wait, "t_work": work})


def _static(report: Report) -> Recommendation | None:
    """Report that equal shares did not suit workers of unequal speed."""
    if report.schedule != "static" or report.imbalance < 1 + NOTABLE:
        return None
    mean = report.t_blocks / report.imbalance
    return Recommendation(
        "static",
        "Each worker had an equal share: the last worker finished after "
        f"{seconds(report.t_blocks)}, "
        f"the mean worker after {seconds(mean)}. With dynamic assignment to idle workers "
        '(schedule="dynamic"), all would finish at about that time.',
        {"imbalance": report.imbalance, "t_blocks": report.t_blocks, "mean": mean},
    )


def _few_blocks(report: Report) -> Recommendation | None:
    """Report that workers waited for the last block or got none, because there were few blocks."""
    wait = report.over_workers["t_wait_last"].mean
    few = report.n_blocks < BLOCKS * max(report.n_workers, report.n_asked)
    waited = report.n_workers < report.n_asked or wait >= NOTABLE * report.t_blocks
    if report.schedule == "static" or not (few and waited):
        return None
    text = f"There were {report.n_blocks} blocks for {report.n_asked} workers"
    if report.n_workers < report.n_asked:
        text += f", of which {report.n_asked - report.n_workers} got none"
    text += f"; at the end, workers waited {seconds(wait)} for the last block. "
    block_frames = _suggested(report)
    # Count a frame once in each pass, because each pass has its own blocks.
    if block_frames < sum(worker.n_frames for worker in report.workers) / report.n_blocks:
        text += f"Smaller blocks end closer together: block_frames={block_frames}."
    elif report.n_threads > 1:
        text += f"Up to {report.n_threads} threads computed a frame together meanwhile."
    else:
        text += "For so few frames, fewer workers are as fast."
    numbers = {"n_blocks": report.n_blocks, "n_asked": report.n_asked, "t_wait_last": wait}
    return Recommendation("few blocks", text, numbers)


def _suggested(report: Report) -> int:
    """Return a number of frames per block that gives enough blocks: 16 times a power of two."""
    most = report.n_frames / (2 * BLOCKS * max(report.n_asked, 1))
    return SMALLEST * 2 ** max(0, math.floor(math.log2(max(most / SMALLEST, 1))))


def _between_blocks(report: Report) -> Recommendation | None:
    """Report that workers waited long between their blocks."""
    names = ("t_wait", "t_wait_first", "t_wait_last")
    wait, first, last = (report.over_workers[name].mean for name in names)
    between = wait - first - last
    if between < NOTABLE * report.t_blocks:
        return None
    return Recommendation(
        "between blocks",
        f"Between their blocks workers waited {seconds(between)} on average, "
        f"{percent(between / report.t_blocks)} of the time: blocks are too short for this backend, "
        f"or results arrive faster than they are collected ({seconds(report.t_comm)}). Larger "
        "blocks "
        "(block_frames=), or fewer numbers per frame, help.",
        {"between": between, "t_comm": report.t_comm},
    )


def _done_twice(report: Report) -> Recommendation | None:
    """Report time in blocks that were assigned again, and that another worker finished first."""
    share = report.shares["t_abandoned"]
    if share < NOTABLE:
        return None
    return Recommendation(
        "done twice",
        f"{percent(share)} of the workers' time went into {len(report.abandoned)} blocks that "
        "another worker finished first: they were assigned again because they took too long. "
        "This is no loss if the other workers had nothing else to do.",
        {"share": share, "n_abandoned": len(report.abandoned)},
    )


def _at_work(report: Report, name: str) -> float:
    """Return a component's fraction of the workers' time since their first blocks."""
    since = report.t_blocks - report.over_workers["t_wait_first"].mean
    return report.over_workers[name].mean / since if since > 0 else 0.0


def _twice(report: Report) -> str:
    """Estimate the time with twice as many workers, as a clause for a recommendation.

    The work is assumed to be divided equally among all workers, and the mean wait for the first
    blocks to stay the same.
    """
    start = report.over_workers["t_wait_first"].mean
    halved = start + (report.t_blocks - start) / 2
    return (
        f"with twice the workers, each on its own core, the blocks would take about "
        f"{seconds(halved)} rather than {seconds(report.t_blocks)}"
    )


#: Rules in the order of the recommendations.
_RULES: tuple[Callable[[Report], Recommendation | None], ...] = (
    _balance,
    _stragglers,
    _computing,
    _decoding,
    _reading,
    _crowded,
    _unused_bytes,
    _opening,
    _collecting,
    _starting,
    _static,
    _few_blocks,
    _between_blocks,
    _done_twice,
)
