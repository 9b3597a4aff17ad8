"""Client part of an analysis, as the engine sees it: what it declares, and the calls of a run."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Self

import numpy as np

from paceline.contract.atoms import Atoms
from paceline.contract.kinds import Receiver
from paceline.contract.run_info import RunContext, RunInfo


class Analysis:
    """Client part of an analysis; `paceline.analysis.base.AnalysisBase` says what each field is.

    A run makes a copy of it (`of_run`), calls `prepare`, `next_stage` and `finish` of the copy, and
    copies back what these have set (`publish`).
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
    needs_fit: bool = False
    needs_one_location: bool = False
    #: True for an analysis that goes along with those that a user has asked for.
    is_companion: ClassVar[bool] = False
    #: Warnings that a companion finds, for the provenance of all other analyses.
    found: Sequence[str] = ()
    #: Warnings about the results, by what they are about.
    remarks: Mapping[str, str] = {}
    results: Any
    #: Options and facts of the present run, or of the last one.
    run_context: RunContext = RunContext()
    run_info: RunInfo | None = None
    #: The user's object, of a copy that takes part in a run.
    _original: "Analysis | None" = None

    @property
    def name(self) -> str:
        """Name in error messages."""
        return type(self).__name__

    @property
    def indices(self) -> np.ndarray:
        """Atoms in the order of the computation: ndarray of int64, shape (n_atoms,)."""
        return self.atomgroup.indices

    @property
    def attributes(self) -> Mapping[str, np.ndarray]:
        """Attributes of the atoms that a block must have: ndarrays, shape (n_atoms, …)."""
        return {}

    @property
    def outputs(self) -> Sequence[str]:
        """Files that a run writes by itself."""
        return ()

    @property
    def info(self) -> RunInfo:
        """Facts about the present run, or about the last one."""
        if self.run_info is None:
            raise AttributeError(f"{self.name} was not run")
        return self.run_info

    def parameters(self) -> dict[str, Any]:
        """Parameters, for the record that is saved with the results."""
        return {}

    def stored_bytes(self, n_frames: int) -> int:
        """Return the bytes of all that is kept of so many frames."""
        return self.row_bytes * n_frames

    def of_run(self, context: RunContext, info: RunInfo) -> Self:
        """Make the copy that takes part in a run."""
        # Not by `copy.copy`: a class that is its own worker part may leave out attributes for it.
        one = object.__new__(type(self))
        vars(one).update(vars(self))
        one._original, one.run_context, one.run_info = self, context, info
        return one

    def receiver(self) -> AbstractContextManager[Receiver]:
        """Open what takes the results of blocks, of an analysis whose worker part is `PerBlock`.

        It is left when all blocks are done, or by an error.
        """
        raise NotImplementedError(f"{self.name} has no method receiver")

    def prepare(self) -> Any:
        """Make the worker part, with all that is the same for every frame."""
        raise NotImplementedError(f"{self.name} has no method prepare")

    def next_stage(self, value: Any) -> Any:
        """Make the worker part of the next pass, or the parts, from the result of the last pass."""
        raise NotImplementedError(f"{self.name} has no method next_stage")

    def finish(self, value: Any) -> None:
        """Turn all rows, the merged partial result, or offsets and records, into results."""
        raise NotImplementedError(f"{self.name} has no method finish")

    def publish(self) -> None:
        """Copy what a run has set on this copy to the user's object."""
        found = dict(vars(self))
        vars(found.pop("_original")).update(found)
