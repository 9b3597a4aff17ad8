"""Analysis that exists only in tests, declared like those of the package."""

from typing import Any, Literal

import numpy as np

from paceline.analysis.base import AnalysisBase, table_in_time
from paceline.analysis.results import Results
from paceline.contract.analysis_declaration import PBC, Declaration, Member
from paceline.contract.analysis_kinds import PerFrame


class ToyExtent(AnalysisBase):
    """Extent of atoms along an axis.

    Parameters
    ----------
    atomgroup : AtomGroup
        The atoms.
    axis : {"x", "y", "z"}
        Axis of the laboratory along which the extent is measured.
    least : float
        Smallest extent that counts, Å. Smaller extents become 0.
    factor : int
        Factor of all extents.
    pbc : bool
        Has no effect.

    Attributes
    ----------
    results.extent : numpy.ndarray of float64, shape (n_frames,)
        Extents, Å.
    """

    declaration = Declaration(
        name="toy-extent",
        summary="extent along an axis",
        select="protein and name CA",
        examples=("adk.psf adk.dcd --axis x -o extent.csv",),
        options=("axis", "least", "factor", PBC),
        batteries=(Member("protein", {"select": "protein"}),),
    )

    def __init__(
        self,
        atomgroup: Any,
        *,
        axis: Literal["x", "y", "z"] = "z",
        least: float = 0,
        factor: int = 1,
        pbc: bool = True,
        verbose: bool = False,
    ):
        super().__init__(atomgroup, verbose=verbose)
        self.axis, self.least, self.factor = axis, least, factor

    def prepare(self):
        return _Extents("xyz".index(self.axis), self.least, self.factor)

    def finish(self, value):
        table = table_in_time(self, {"extent (Å)": value}, {"extent (Å)": "extent"}, "extent (Å)")
        self.results = Results(table=table, provenance=self.record(), extent=value)


class _Extents(PerFrame):
    def __init__(self, axis: int, least: float, factor: int):
        self.axis, self.least, self.factor = axis, least, factor

    def compute(self, block):
        extents = self.factor * np.ptp(block.positions[:, :, self.axis].astype(np.float64), axis=1)
        return np.where(extents < self.least, 0.0, extents)
