"""Client part of an analysis, as the engine uses it: declarations, and methods a run calls."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar, overload

import numpy as np

from paceline.contract.analysis_kinds import Receiver
from paceline.contract.run_info_and_descriptions import NO_RUN, RunContext, RunInfo
from paceline.contract.system_interface import Atoms

T = TypeVar("T")

#: Name of the additional analysis that checks frames for broken molecules.
CHECK_NAME = "look"


class Analysis:
    """Client part of an analysis; `paceline.analysis.base.AnalysisBase` describes each field.

    A run calls `prepare`, `next_stage` and `finish`. These methods can read the options and facts
    of the run, which remain available after `finish`.
    """

    atomgroup: Atoms
    fields: Sequence[str] = ("positions",)
    optional_fields: Sequence[str] = ()
    stages: int = 1
    over_parts: bool = False
    frames_together: int = 1
    halo: tuple[int, int] = (0, 0)
    row_bytes: int = 0
    needs_whole: bool = False
    needs_together: bool = False
    #: True if each molecule is measured on its own, so that its position relative to other
    #: molecules and their periodic images does not matter.
    measures_each: bool = False
    needs_fit: bool = False
    needs_one_location: bool = False
    #: True if the worker part depends on the number of frames of the run, so that results of
    #: earlier frames are of no use when a trajectory has grown.
    needs_all_frames: bool = False
    #: True for a companion: an analysis that runs in addition to the analyses that a user
    #: requested.
    is_companion: ClassVar[bool] = False
    #: Warnings that a companion raises for the provenance of all other analyses.
    found: Sequence[str] = ()
    #: Warnings about the results, by subject.
    remarks: Mapping[str, str] = {}
    results: Any
    #: Options and facts of the current run, or of the last run.
    _run_context: RunContext = RunContext()
    _run_info: RunInfo = NO_RUN

    @property
    def name(self) -> str:
        """Name of the analysis in error messages."""
        return type(self).__name__

    @property
    def indices(self) -> np.ndarray:
        """Atoms in the order of the computation: ndarray of int64, shape (n_atoms,)."""
        return self.atomgroup.indices

    @property
    def attributes(self) -> Mapping[str, np.ndarray]:
        """Atom attributes that a block must contain, by name: ndarrays, shape (n_atoms, …)."""
        return {}

    @property
    def frames_needed(self) -> int:
        """Number of frames that the trajectory must have, because one of them is a reference."""
        return 1

    @property
    def outputs(self) -> Sequence[str]:
        """Files that the analysis writes during a run."""
        return ()

    def record_call(self) -> None:
        """Record the call in Python that computed the results, as a part of the results."""

    def parameters(self) -> dict[str, object]:
        """Return the parameters for the record that is saved with the results."""
        return {}

    def stored_bytes(self, n_frames: int) -> int:
        """Return the size of the results that the analysis stores for `n_frames` frames, bytes."""
        return self.row_bytes * n_frames

    def receiver(self) -> AbstractContextManager[Receiver]:
        """Open the receiver of a `PerBlock` analysis, which gets the result of each block.

        The run closes this context after the last block, or on an error.
        """
        raise NotImplementedError(f"{self.name} has no method receiver")

    def prepare(self) -> object:
        """Create the worker part, with all data that are the same for every frame."""
        raise NotImplementedError(f"{self.name} has no method prepare")

    def next_stage(self, value: Any) -> Any:
        """Create the worker part or parts of the next pass from the result of the previous pass."""
        raise NotImplementedError(f"{self.name} has no method next_stage")

    def finish(self, value: Any) -> None:
        """Compute the results from all rows, from the merged partial result, or from records."""
        raise NotImplementedError(f"{self.name} has no method finish")


def is_updated(analysis: Analysis) -> bool:
    """Return True for an analysis that has results while a trajectory grows.

    Other analyses need all frames before they have results: those with a second stage, and those
    whose statistical errors come from parts of the run.
    """
    return analysis.stages == 1 and not analysis.needs_all_frames


@contextmanager
def facts_shown(analyses: Sequence[Analysis], context: RunContext, info: RunInfo) -> Iterator[None]:
    """Set options and facts of a run on analyses in a `with` block; then restore the old ones."""
    names = ("_run_context", "_run_info")
    last = [
        (vars(one), {name: vars(one)[name] for name in names if name in vars(one)})
        for one in analyses
    ]
    for one in analyses:
        one._run_context, one._run_info = context, info
    try:
        yield
    finally:
        for attributes, of_last in last:
            for name in names:
                attributes.pop(name, None)
            attributes.update(of_last)


def conclude(analysis: Analysis, context: RunContext, info: RunInfo, value: object) -> None:
    """Set the results of an analysis, then the options and facts of its run."""
    with facts_shown([analysis], context, info):
        analysis.finish(value)
        analysis.record_call()
        kept = analysis._run_context, analysis._run_info
    analysis._run_context, analysis._run_info = kept


def record_of(analysis: Analysis) -> tuple[RunInfo, Any]:
    """Return the facts about the last run of an analysis, and its results."""
    return analysis._run_info, analysis.results


def set_record(analysis: Analysis, record: tuple[RunInfo, object]) -> None:
    """Set facts about the last run of an analysis, and its results."""
    analysis._run_info, analysis.results = record


class OfRun(Generic[T]):
    """Attribute of an analysis that a run sets: a field of its `RunInfo` or `RunContext`.

    Reading the attribute before a run has set it raises `AttributeError`. A program may also set
    the attribute.
    """

    def __init__(self, holder: Literal["_run_info", "_run_context"]):
        self._is_chosen = holder == "_run_context"

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, analysis: None, owner: type) -> Self: ...

    @overload
    def __get__(self, analysis: Analysis, owner: type) -> T: ...

    def __get__(self, analysis: Analysis | None, owner: type) -> object:
        if analysis is None:
            return self
        holder = analysis._run_context if self._is_chosen else analysis._run_info
        value = vars(holder)[self._name]
        if value is None:
            raise AttributeError(f"{type(analysis).__name__} has no {self._name} yet")
        return value

    def __set__(self, analysis: Analysis, value: T) -> None:
        changed: dict[str, Any] = {self._name: value}
        if self._is_chosen:
            analysis._run_context = replace(analysis._run_context, **changed)
        else:
            analysis._run_info = replace(analysis._run_info, **changed)
