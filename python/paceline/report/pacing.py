"""What is said of workers that had nothing to do, and of those that were slow."""

import math

from paceline.report.numbers import Report
from paceline.report.words import Advice, percent, seconds

#: What takes less than this of the time is not worth a word.
NOTABLE = 0.1
#: Starting is worth a word if it took so long, s, and longer than the work.
LONG_START = 0.5
#: Blocks for each worker, so that the end of the last ones is a small part of all.
BLOCKS = 4
#: Frames of the smallest block that the plan makes.
SMALLEST = 16


def stragglers(report: Report) -> Advice | None:
    """The slowest of the workers, or their host."""
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
        f"{worst.cause}; {seconds(lost)} of work went into that. {_OF_CAUSE[worst.cause]}"
    )
    numbers = {"factor": worst.factor, "seconds_lost": lost, "n": len(report.stragglers)}
    return Advice("straggler", text, numbers)


_BUSY_CORE = "See whether something else uses its core, or whether it is throttled."
_OF_CAUSE = {
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


def starting(report: Report) -> Advice | None:
    """Processes that took longer to start than to work."""
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
    return Advice("starting", text, {"t_wait_first": wait, "t_work": work})


def static(report: Report) -> Advice | None:
    """Equal shares for unequal workers."""
    if report.schedule != "static" or report.imbalance < 1 + NOTABLE:
        return None
    mean = report.t_blocks / report.imbalance
    return Advice(
        "static",
        f"Each worker had an equal share: the last was done after {seconds(report.t_blocks)}, all "
        f"of them on average after {seconds(mean)}. Dealt as workers come free "
        '(schedule="dynamic"), all blocks would be done at about that time.',
        {"imbalance": report.imbalance, "t_blocks": report.t_blocks, "mean": mean},
    )


def few_blocks(report: Report) -> Advice | None:
    """Workers that wait for the last block, or never had one."""
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
    if block_frames < report.n_frames / report.n_blocks:
        text += f"Smaller blocks end closer together: block_frames={block_frames}."
    else:
        text += "For so few frames fewer workers do as well."
    numbers = {"n_blocks": report.n_blocks, "n_asked": report.n_asked, "t_wait_last": wait}
    return Advice("few blocks", text, numbers)


def _suggested(report: Report) -> int:
    """Frames of a block, so that there are enough: 16 times a power of two."""
    most = report.n_frames / (2 * BLOCKS * max(report.n_asked, 1))
    return SMALLEST * 2 ** max(0, math.floor(math.log2(max(most / SMALLEST, 1))))


def between_blocks(report: Report) -> Advice | None:
    """Workers that were not given their next block in time."""
    names = ("t_wait", "t_wait_first", "t_wait_last")
    wait, first, last = (report.over_workers[name].mean for name in names)
    between = wait - first - last
    if between < NOTABLE * report.t_blocks:
        return None
    return Advice(
        "between blocks",
        f"Between their blocks workers waited {seconds(between)} on average, "
        f"{percent(between / report.t_blocks)} of the time: blocks are too short for this backend, "
        f"or results come faster than they are collected ({seconds(report.t_comm)}). Larger blocks "
        "(block_frames=), or fewer numbers a frame, help.",
        {"between": between, "t_comm": report.t_comm},
    )


def done_twice(report: Report) -> Advice | None:
    """Blocks that were dealt again."""
    share = report.shares["t_abandoned"]
    if share < NOTABLE:
        return None
    return Advice(
        "done twice",
        f"Of the workers' time {percent(share)} went into {len(report.abandoned)} blocks that "
        "another worker was done with sooner: they were dealt again because they took too long. "
        "That is no loss where the others had nothing else to do.",
        {"share": share, "n_abandoned": len(report.abandoned)},
    )
