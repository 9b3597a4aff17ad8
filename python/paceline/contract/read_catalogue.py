"""Catalogue of analyses: `catalogue.json`, which `make catalogue` writes from the declarations.

Commands, batteries and the manual's tables read the catalogue instead of importing analyses.
"""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: Path of the catalogue, in the folder of the analyses.
FILE = Path(__file__).parents[1] / "analysis" / "catalogue.json"

#: Pages of the manual that describe analyses, in order, with their titles.
PAGES = {
    "structure.md": "RMSD, RMSF and structure",
    "matrices-clusters.md": "Principal components, clusters, free energy",
    "hydrogen-bonds.md": "Hydrogen bonds, contacts, distances",
    "distributions.md": "Distributions and membranes",
    "dynamics.md": "Diffusion and correlations",
    "changing-groups.md": "Groups that change",
}

#: Facts about one analysis, made by `paceline.analysis.write_catalogue.entry_of`.
Entry = Mapping[str, Any]


@functools.cache
def catalogue() -> dict[str, Entry]:
    """Read the declared analyses by name, in the order of the manual."""
    import json  # deferred: only commands need json

    return {entry["name"]: entry for entry in json.loads(FILE.read_text(encoding="utf-8"))}
