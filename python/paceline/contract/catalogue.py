"""Catalogue of analyses: `catalogue.json`, which `make catalogue` writes from their declarations.

Commands, batteries and tables of the manual read it instead of importing analyses.
"""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: Path of the catalogue, beside the classes that it describes.
FILE = Path(__file__).parents[1] / "analysis" / "catalogue.json"

#: Pages of the manual with analyses, in order, and titles of these.
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
    import json  # commands alone need json

    return {entry["name"]: entry for entry in json.loads(FILE.read_text(encoding="utf-8"))}
