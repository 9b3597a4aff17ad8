"""Timings of one run."""

import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Self

from paceline.files import new_file
from paceline.timing.records import Abandoned, BlockTiming, WorkerTiming
from paceline.timing.saved import read_saved, write_saved
from paceline.timing.straggling import Straggler, find_stragglers
from paceline.timing.sums import sum_workers
from paceline.timing.table import table
from paceline.timing.trace import trace_of


@dataclass
class Timings:
    """Timings of one run; print it for a table.

    Attributes
    ----------
    backend : str
        Where blocks were computed.
    start, dealt, end : int
        When the run began, when blocks were first dealt, and when all was done: nanoseconds of
        this host's clock.
    t_init_top, t_init_traj : float
        Parsing the topology, and opening the trajectory and its index, s: once, before the run.
        NaN for what was not ours to do.
    t_comm : float
        Receiving and merging results, s, in the process that collects them.
    blocks : list of BlockTiming
        Every block, in the order in which they were done.
    abandoned : list of Abandoned
        Attempts at blocks that other workers were done with sooner.
    n_workers : int
        For how many workers blocks were cut; some may have come to none.
    schedule : str
        "dynamic", or "static" where each worker had a share of its own.
    trajectory : str
        The files that were read.
    bytes_used : int
        Size of the decoded numbers that the analyses asked for, of all frames.
    host, date, version : str
        Where the run was begun, when (ISO 8601, with the zone), and by which paceline.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> from paceline.analysis.rms import RMSF
    >>> protein = paceline.Universe(PSF, DCD).select_atoms("protein")
    >>> timings = RMSF(protein).run(backend="serial").timings
    >>> [worker.n_frames for worker in timings.workers()]
    [98]
    >>> timings.stragglers()
    []
    """

    backend: str = ""
    start: int = 0
    dealt: int = 0
    end: int = 0
    t_init_top: float = math.nan
    t_init_traj: float = math.nan
    t_comm: float = 0.0
    blocks: list[BlockTiming] = field(default_factory=list)
    abandoned: list[Abandoned] = field(default_factory=list)
    n_workers: int = 0
    schedule: str = "dynamic"
    trajectory: str = ""
    bytes_used: int = 0
    host: str = ""
    date: str = ""
    version: str = ""

    @property
    def t_total(self) -> float:
        """The whole run, s."""
        return (self.end - self.start) / 1e9

    @property
    def n_frames(self) -> int:
        """Frames analysed."""
        return sum(block.n_frames for block in self.blocks)

    def precede(self, elapsed: int, dealt: int, t_comm: float) -> None:
        """Count an earlier part of the run, whose blocks were put here, as if it ended just now.

        Parameters
        ----------
        elapsed : int
            How long that part took since it first dealt blocks, ns.
        dealt : int
            When it first dealt blocks, ns of its own clock.
        t_comm : float
            Receiving and merging results there, s.
        """
        self.start -= elapsed
        self.dealt -= elapsed
        shift = self.dealt - dealt
        self.blocks = [
            replace(block, start=block.start + shift, end=block.end + shift)
            for block in self.blocks
        ]
        self.t_comm += t_comm

    def workers(self) -> list[WorkerTiming]:
        """Sums for each worker, in the order of their names."""
        return sum_workers(self.blocks, self.abandoned, self.dealt)

    def stragglers(self) -> list[Straggler]:
        """Workers that are slow for their frames, those first that lost most time.

        Their time per frame is over 1.5 times the median, or over 2 times that of the fastest
        quarter, by 0.1 s in all or more. Of two in the middle, the faster is the median: so one
        of two workers can be slow.
        """
        static = self.schedule == "static"
        return find_stragglers(self.blocks, self.abandoned, dealt=self.dealt, static=static)

    def to_csv(self, path: str | os.PathLike, *, overwrite: bool = False) -> None:
        """Write one line a block; times in nanoseconds. What the whole run took is in comments.

        Parameters
        ----------
        path : path-like
            What to write.
        overwrite : bool
            Whether an existing file may be replaced.

        Raises
        ------
        FileExistsError
            `path` exists and is not to be overwritten.
        """
        facts = {name: getattr(self, name) for name in _kinds()}
        with new_file(path, overwrite=overwrite) as file:
            write_saved(file, facts, self.blocks, self.abandoned)

    @classmethod
    def from_csv(cls, path: str | os.PathLike) -> Self:
        """Read what `to_csv` wrote.

        Parameters
        ----------
        path : path-like
            What to read.

        Returns
        -------
        Timings

        Raises
        ------
        FileNotFoundError
            There is no such file.
        TimingsError
            It is another file, or damaged.
        """
        facts, blocks, abandoned = read_saved(path, _kinds())
        return cls(**facts, blocks=blocks, abandoned=abandoned)

    def to_chrome_trace(self, path: str | os.PathLike, *, overwrite: bool = False) -> None:
        """Write a trace that Perfetto (ui.perfetto.dev) and chrome://tracing show.

        Parameters
        ----------
        path : path-like
            What to write.
        overwrite : bool
            Whether an existing file may be replaced.

        Raises
        ------
        FileExistsError
            `path` exists and is not to be overwritten.
        """
        trace = trace_of(f"paceline, {self.backend}", self.blocks, self.abandoned, self.start)
        with new_file(path, overwrite=overwrite) as file:
            json.dump(trace, file)

    def report(self, path: str | os.PathLike, *, overwrite: bool = False) -> None:
        """Write what the run spent its time on: figures, tables and advice.

        Parameters
        ----------
        path : path-like
            Ending in .html (one page that needs nothing else), .png or .svg (its figures as one).
        overwrite : bool
            Whether an existing file may be replaced.

        Raises
        ------
        FileExistsError
            `path` exists and is not to be overwritten.
        UnsupportedError
            Another ending.

        Examples
        --------
        >>> import tempfile, paceline
        >>> from MDAnalysisTests.datafiles import PSF, DCD
        >>> from paceline.analysis.rms import RMSF
        >>> protein = paceline.Universe(PSF, DCD).select_atoms("protein")
        >>> RMSF(protein).run().timings.report(f"{tempfile.mkdtemp()}/run.html")
        """
        # What shows timings knows them, so it is known here by name alone.
        from paceline.report.save import save_report

        save_report(self, path, overwrite=overwrite)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield from table(self.workers(), {one.worker: one.cause for one in self.stragglers()})
        opening = {"topology": self.t_init_top, "trajectory": self.t_init_traj}
        before = (f"{what} {t:.3f} s" for what, t in opening.items() if not math.isnan(t))
        yield "; ".join(
            (
                f"{self.backend}: {self.n_frames} frame{'s' * (self.n_frames != 1)} "
                f"in {self.t_total:.3f} s",
                f"collecting results {self.t_comm:.3f} s",
                *before,
            )
        )


def _kinds() -> dict[str, type]:
    """What is known of a whole run, and of which type it is."""
    return {
        one.name: type(one.default)
        for one in fields(Timings)
        if one.name not in ("blocks", "abandoned")
    }
