"""Every native analysis with atoms and parameters that a run may have, for tests of all of them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from paceline.analysis.gyration import Gyration
from paceline.analysis.rdf import InterRDF
from paceline.analysis.rms import RMSD, RMSF


class Case(NamedTuple):
    """How to make an analysis of a Universe, and the arrays of its results."""

    make: Callable[[Any], Any]
    results: Callable[[Any], list[np.ndarray]]


#: Of adenylate kinase; atoms overlap and are in no order.
ANALYSES = {
    "Gyration": Case(
        lambda u: Gyration(u.select_atoms("protein")[::-1], compound="residues"),
        lambda results: [results.rg, results.rg_components, results.shape_parameter],
    ),
    "InterRDF": Case(
        lambda u: InterRDF(u.select_atoms("name CA")[::-1], u.atoms[:700], norm="none"),
        lambda results: [results.count, results.rdf],
    ),
    "RMSD": Case(
        lambda u: RMSD(u, select="backbone", groupselections=["resid 1-29"], weights="mass"),
        lambda results: [results.rmsd],
    ),
    "RMSF": Case(
        lambda u: RMSF(u.select_atoms("name CA")[::-1] + u.atoms[:7]),
        lambda results: [results.rmsf],
    ),
}
