"""Energies from the files of simulation programs, as time series.

Tables, means and figures are the same as for analyses, so that energies can be shown next to
structural analyses. Units are those of the files and are not converted; times are in ps.

.. versionadded:: 0.1.0
"""

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Self

import numpy as np

from paceline._util.machine_and_software import software
from paceline._util.python_object_digest import file_digest
from paceline.analysis.energy_files import read_file
from paceline.analysis.energy_text_files import Content, EnergyPart
from paceline.analysis.results import Results
from paceline.analysis.table import Table, rounding_of
from paceline.analysis.uncertainty import mean_of_series, students_t, used_rows, with_error
from paceline.errors import UnsupportedError, warn
from paceline.performance.number_format import joined, many

#: Names of each quantity in all programs, in lower case without punctuation. A figure shows the
#: quantities in `DRAWN`. The drift of the first available quantity in `CONSERVED` is reported.
QUANTITIES = {
    "potential": ("potential", "potentialenergy", "poteng", "eptot", "engcfg"),
    "kinetic": ("kineticen", "kineticenergy", "kineng", "ektot", "kinetic"),
    "total": ("totalenergy", "toteng", "etot", "total"),
    "conserved": ("conserveden", "econserve", "engcns"),
    "temperature": ("temperature", "temp"),
    "pressure": ("pressure", "press"),
    "density": ("density",),
    "volume": ("volume", "boxvolume"),
}
DRAWN = ("potential", "temperature", "pressure", "density")
CONSERVED = ("conserved", "total")
#: Maximum number of terms in a figure if no quantity of `DRAWN` is available.
MOST_DRAWN = 4
#: Relative deviation from the usual time interval above which an interval is uneven.
UNEVEN = 0.01
#: If more than this fraction of the rows have uneven intervals, a remark reports it.
MANY_UNEVEN = 0.01
#: Maximum number of terms that a message lists.
LISTED = 40


class Energies:
    """Energies and other terms of a simulation, as time series.

    Parameters
    ----------
    terms : mapping of str to numpy.ndarray of float64, shape (n_rows,)
        Values of the terms, by name.
    units : mapping of str to str
        Units of the terms; "" if unknown or dimensionless.
    axis : numpy.ndarray of float64, shape (n_rows,)
        Times in ps, or in the unit that `axis_title` contains, or steps.
    axis_title : str
        Title of the column `axis`, such as "time (ps)" or "step".
    steps : numpy.ndarray of int64, shape (n_rows,), optional
        Simulation steps of the rows.
    n_atoms : int, optional
        Number of atoms, for energies per atom.
    drawn : sequence of str, optional
        Terms in the figure; by default potential energy, temperature, pressure and density.
    provenance : mapping, optional
        Files and remarks on these files.

    Attributes
    ----------
    results : Results
        `times`, or `steps` if times are unknown, and each term, as arrays; with the methods of
        other results, such as `save` and `plot`.
    """

    #: Names of further tables, as for analyses; energies have none.
    FURTHER_TABLES: tuple[str, ...] = ()

    def __init__(
        self,
        terms: Mapping[str, np.ndarray],
        units: Mapping[str, str],
        axis: np.ndarray,
        axis_title: str = "time (ps)",
        *,
        steps: np.ndarray | None = None,
        n_atoms: int | None = None,
        drawn: Sequence[str] | None = None,
        provenance: Mapping[str, object] | None = None,
    ):
        self._terms, self._units = dict(terms), {name: units.get(name, "") for name in terms}
        self._axis, self._axis_title = axis, axis_title
        self._steps, self._n_atoms, self._drawn = steps, n_atoms, drawn
        self._provenance = dict(provenance or {})
        self.results = self._make_results()

    @property
    def units(self) -> dict[str, str]:
        """Units by the names of terms."""
        return dict(self._units)

    def further_tables(self) -> dict[str, Table]:
        """Return an empty mapping, because energies have no further tables."""
        return {}

    def select(self, *names: str) -> Self:
        """Select terms by their names or quantities.

        Parameters
        ----------
        *names : str
            Names of terms or beginnings of names, in upper or lower case. Or quantities, whose
            names differ among programs: potential, kinetic, total, conserved, temperature,
            pressure, density, volume.

        Returns
        -------
        Energies
            Energies with these terms, in this order.

        Raises
        ------
        UnsupportedError
            A term does not exist, or a beginning is ambiguous; the message lists similar terms.
        """
        found = [*dict.fromkeys(self._find(name) for name in names)]
        return self._with_rows(slice(None), found, found)

    def between(self, begin: float | None = None, end: float | None = None) -> Self:
        """Select rows between two times.

        Parameters
        ----------
        begin, end : float, optional
            First and last time, included, in ps or in the unit of the table; or steps.

        Returns
        -------
        Energies
            Energies with these rows.

        Raises
        ------
        UnsupportedError
            No row is in this range.
        """
        first = -np.inf if begin is None else begin
        last = np.inf if end is None else end
        slack = rounding_of(self._axis, [first, last])
        inside = (self._axis >= first - slack) & (self._axis <= last + slack)
        if not inside.any():
            raise UnsupportedError(
                f"no row lies between the requested times: the rows are from {self._span}"
            )
        return self._with_rows(inside, [*self._terms], self._drawn)

    def rows(self, begin: int | None = None, end: int | None = None) -> Self:
        """Select rows by number.

        Parameters
        ----------
        begin, end : int, optional
            First row and end, as in a slice.

        Returns
        -------
        Energies
            Energies with these rows.

        Raises
        ------
        UnsupportedError
            No row is in this range.
        """
        kept = slice(begin, end)
        if not len(self._axis[kept]):
            raise UnsupportedError(f"no row is in the requested range: there are {len(self._axis)}")
        return self._with_rows(kept, [*self._terms], self._drawn)

    def _with_rows(self, rows: Any, names: Sequence[str], drawn: Sequence[str] | None) -> Self:
        """Return an object of this class with some of the rows and terms."""
        return type(self)(
            {name: self._terms[name][rows] for name in names},
            self._units,
            self._axis[rows],
            self._axis_title,
            steps=None if self._steps is None else self._steps[rows],
            n_atoms=self._n_atoms,
            drawn=drawn,
            provenance=self._provenance,
        )

    def _find(self, wanted: str) -> str:
        """Find a term by its name, its quantity, or the beginning of its name."""
        names = [*self._terms]
        if wanted in names:
            return wanted
        plain = {name: _plain(name) for name in names}
        key = _plain(wanted)
        alike = [name for name in names if plain[name] == key]
        alike = alike or self._first_term_of(key)
        begin = wanted.lower()
        alike = alike or [name for name in names if name.lower().startswith(begin)]
        alike = alike or [name for name in names if key and plain[name].startswith(key)]
        if len(alike) == 1:
            return alike[0]
        if alike:
            raise UnsupportedError(f"terms: {wanted!r} is ambiguous: {joined(alike[:LISTED])}")
        known = {one.lower(): name for name in names for one in (name, plain[name])}
        near = difflib.get_close_matches(wanted.lower(), known, 3)
        hint = f"did you mean {known[near[0]]!r}? " if near else ""
        listed = ", ".join(names[:LISTED]) + ", …" * (len(names) > LISTED)
        raise UnsupportedError(f"terms: there is no {wanted!r}: {hint}there are {listed}")

    def _first_term_of(self, quantity: str) -> list[str]:
        """Return the first term of a quantity in a list, which is empty if there is none."""
        known = QUANTITIES.get(quantity, ())
        return [name for one in known for name in self._terms if _plain(name) == one][:1]

    @property
    def axis_title(self) -> str:
        """Title of the column of times, or of steps if times are unknown."""
        return self._axis_title

    @property
    def _span(self) -> str:
        """Text with the first and the last time, or with the first and the last step."""
        name, _, unit = self._axis_title.partition(" (")
        unit = f" {unit.rstrip(')')}" if name == "time" else ""
        return f"{self._axis[0]:g} to {self._axis[-1]:g}{unit}"

    @property
    def span(self) -> str:
        """Describe the number of rows, and the range of their times or steps."""
        name = self._axis_title.partition(" (")[0]
        return f"{many(len(self._axis), 'row')}, {name} {self._span}"

    def _make_results(self) -> Results:
        """Make the results: times or steps, terms, and a table."""
        arrays = {"times" if self._axis_title.startswith("time") else "steps": self._axis}
        if self._steps is not None:
            arrays["steps"] = self._steps
        facts = {**software(), "analysis": "energies", **self._provenance}
        results = Results(table=self._table(), provenance={**facts, "rows": self.span})
        results.update({**arrays, **self._terms})
        return results

    def _table(self) -> Table:
        """Make the table of all terms. Its figure has one panel for each unit."""
        titles = {name: _title(name, unit) for name, unit in self._units.items()}
        columns = {self._axis_title: self._axis}
        if self._steps is not None and self._axis_title != "step":
            columns["step"] = self._steps
        columns |= {titles[name]: values for name, values in self._terms.items()}
        legends = {titles[name]: name for name in titles}
        units = {*self._units.values()}
        if len(units) > 1:
            legends = {title: title for title in legends}
        label = next(iter(titles.values())) if len(titles) == 1 else "energy"
        label = _title("energy", units.pop()) if len(titles) > 1 and len(units) == 1 else label
        table = Table(columns, self._axis_title, legends, label, notes=self._findings())
        panels = []
        for unit, names in self._shown_terms().items():
            shown = {titles[name]: name for name in names}
            label = next(iter(shown)) if len(names) == 1 else unit
            panels.append(replace(table, y=shown, y_label=label, notes={}))
        return replace(table, panels=panels)

    def _shown_terms(self) -> dict[str, list[str]]:
        """Terms in the figure by unit: the chosen terms or the usual ones."""
        names = self._drawn
        if names is None:
            usual = [name for key in DRAWN for name in self._first_term_of(key)]
            names = usual or [*self._terms][:MOST_DRAWN]
        found: dict[str, list[str]] = {}
        for name in names:
            unit = self._units[name]
            # In LAMMPS's reduced units, terms with the unit "lj" are different quantities.
            found.setdefault(name if unit in ("", "lj") else unit, []).append(name)
        return found

    def _findings(self) -> dict[str, str]:
        """Describe the drift of the conserved quantity, if times are known."""
        names = [name for key in CONSERVED for name in self._first_term_of(key)][:1]
        if not names or self._axis_title != "time (ps)":
            return {}
        name = names[0]
        drift = drift_of(self._axis, self._terms[name])
        if drift is None:
            return {}
        unit = self._units[name] or "(unknown unit)"
        found = f"{_with_interval(*drift, 1e3)} {unit} per ns"
        if self._n_atoms:
            found += f", {_with_interval(*drift, 1e3 / self._n_atoms)} {unit} per ns and atom"
        is_total = name not in self._first_term_of("conserved")
        note = ", which is conserved only without thermostat and barostat" * is_total
        return {f"drift of {name}": f"{found} (95 %){note}"}


def _plain(name: str) -> str:
    """Convert a name to lower case without punctuation and spaces."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _title(name: str, unit: str) -> str:
    return f"{name} ({unit})" if unit else name


def _with_interval(slope: float, interval: float, factor: float) -> str:
    return with_error(slope * factor, interval * factor)


def drift_of(times: np.ndarray, values: np.ndarray) -> tuple[float, float] | None:
    """Fit a straight line to a time series; return the slope and half its 95 % interval.

    The error takes the statistical inefficiency of the residuals into account. Returns None for
    fewer than 4 values, for residuals that are all equal, and for residuals with 3 or fewer
    independent values.
    """
    known = used_rows(values, times).known
    x, y = times[known], values[known]
    if len(x) < 4 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    x = x - x.mean()
    slope = float(x @ (y - y.mean()) / (x @ x))
    residuals = y - y.mean() - slope * x
    n_independent = mean_of_series(residuals).n_independent
    if not n_independent > 3 or not residuals.any():
        return None
    variance = float(residuals @ residuals) / len(x) * n_independent / (n_independent - 2)
    error = np.sqrt(variance * len(x) / n_independent / (x @ x))
    interval = float(students_t(n_independent - 2) * error)
    return (slope, interval) if 0 < interval < np.inf else None


def read_energies(
    *paths: str | os.PathLike,
    terms: Sequence[str] | None = None,
    begin: float | None = None,
    end: float | None = None,
) -> Energies:
    """Read energies that a program wrote, from one file or from the files of restarts.

    Files are sorted by their first times. If files overlap, the rows of the later file are used,
    and a warning reports the rows of earlier files that are left out.

    Parameters
    ----------
    *paths : path-like
        .edr and .xvg of GROMACS, tables of OpenMM's StateDataReporter, logs of LAMMPS and NAMD,
        mdout of Amber, STATIS of DL_POLY; formats are recognised by content.
    terms : sequence of str, optional
        Terms to read, as for `Energies.select`; by default all.
    begin, end : float, optional
        First and last time, included, ps.

    Returns
    -------
    Energies
        Time series of all terms.

    Raises
    ------
    DamagedFileError
        A file violates its format.
    UnsupportedError
        A file has another format or no time series, files do not belong together, or a term or a
        time does not exist.

    Examples
    --------
    >>> from MDAnalysisTests.datafiles import AUX_EDR
    >>> from paceline.analysis.energies import read_energies
    >>> energies = read_energies(AUX_EDR).select("potential", "temperature")
    >>> energies.units
    {'Potential': 'kJ/mol', 'Temperature': 'K'}
    >>> energies.results.times.round(3)
    array([0.  , 0.02, 0.04, 0.06])
    """
    if not paths:
        raise UnsupportedError("read_energies needs at least one file")
    contents = [read_file(path) for path in paths]
    found = join_contents(contents)
    if begin is not None or end is not None:
        found = found.between(begin, end)
    return found if terms is None else found.select(*terms)


def join_contents(contents: Sequence[Content]) -> Energies:
    """Join the parts of files to one series; later parts replace overlapping rows."""
    for one in contents:
        if not one.parts:
            notes = f" ({'; '.join(one.remarks)})" if one.remarks else ""
            raise UnsupportedError(f"{one.path}: there are no energies in time{notes}")
    parts = [part for one in contents for part in one.parts]
    remarks = [text for one in contents for text in one.remarks]
    title = _axis_title(parts)
    unknown = [part.where for part in parts if part.times is None]
    if title == "step" and unknown:
        remarks.append(f"{unknown[0]}: times are unknown, and steps are used instead")
    units = _units_of(parts)
    rows = _rows_of(contents, title, remarks)
    axis = np.concatenate([_axis(part, title)[kept] for part, kept in rows])
    terms = {}
    for name in units:
        known = [part.terms[name][kept] if name in part.terms else None for part, kept in rows]
        if all(one is None for one in known):
            continue
        terms[name] = np.concatenate(
            [
                np.full(np.count_nonzero(kept), np.nan) if one is None else one
                for one, (_, kept) in zip(known, rows, strict=True)
            ]
        )
        n_wrong = sum(int((~np.isfinite(one)).sum()) for one in known if one is not None)
        if n_wrong:
            remarks.append(f"{name}: not finite: {many(n_wrong, 'value')} of {len(axis)}")
    remarks += _remarks_on_changes(rows, axis)
    for text in remarks:
        warn(text)
    counts = {part.n_atoms for part, _ in rows}
    is_whole = len(counts) == 1 and not any(part.per_atom for part, _ in rows)
    steps = [part.steps[kept] for part, kept in rows if part.steps is not None]
    facts = {
        "files": ", ".join(one.path for one in contents),
        "files sha256": ", ".join(file_digest(one.path) for one in contents),
    }
    return Energies(
        terms,
        units,
        axis,
        title,
        steps=np.concatenate(steps).astype(np.int64) if len(steps) == len(rows) else None,
        n_atoms=counts.pop() if is_whole else None,
        provenance={**facts, "warnings": "; ".join(remarks)} if remarks else facts,
    )


def _axis_title(parts: Sequence[EnergyPart]) -> str:
    """Title of the axis: times if all parts have times in one unit, otherwise steps."""
    units = {part.time_unit for part in parts}
    if all(part.times is not None for part in parts) and len(units) == 1:
        return f"time ({units.pop()})"
    if all(part.steps is not None for part in parts):
        return "step"
    one = next(part for part in parts if part.times is None or part.steps is None)
    raise UnsupportedError(
        f"{one.where}: some parts lack times, and others lack steps: read files of one kind"
    )


def _axis(part: EnergyPart, title: str) -> np.ndarray:
    found = part.steps if title == "step" else part.times
    assert found is not None
    return found


def _units_of(parts: Sequence[EnergyPart]) -> dict[str, str]:
    """Units of the terms of all parts, in the order of their first occurrence."""
    found: dict[str, str] = {}
    first: dict[str, str] = {}
    for part in parts:
        for name in part.terms:
            unit = part.units.get(name, "")
            if found.setdefault(name, unit) != unit:
                raise UnsupportedError(
                    f"{name}: the unit is {found[name] or 'unknown'} in {first[name]}, but "
                    f"{unit or 'unknown'} in {part.where}: read these files separately"
                )
            first.setdefault(name, part.where)
    return found


def _rows_of(
    contents: Sequence[Content], title: str, remarks: list[str]
) -> list[tuple[EnergyPart, np.ndarray]]:
    """Choose the rows of each part, in the order of time, up to the first time of later parts."""
    files = [_segments(one.parts, title, remarks) for one in contents]
    files = [one for one in files if one]
    if not files:
        raise UnsupportedError(f"{contents[0].path}: no row has a time")
    begins = [_axis(part, title)[kept][0] for [(part, kept), *_] in files]
    order = np.argsort(begins, kind="stable")
    for first, second in pairwise(order.tolist()):
        if begins[first] == begins[second]:
            names = " and ".join(files[k][0][0].where for k in (first, second))
            raise UnsupportedError(
                f"{names} begin at the same {title.partition(' (')[0]}, {begins[first]:g}: parts "
                "of one simulation must follow one another; read other files separately"
            )
    segments = [one for k in order for one in files[k]]
    limit, later, found, n_left_out, first = np.inf, "", [], 0, ""
    for part, kept in reversed(segments):
        axis = _axis(part, title)
        slack = rounding_of(np.where(kept, axis, np.nan), [limit])
        inside = kept & (axis < limit - slack)
        lost = (axis - slack)[kept & ~inside]
        if len(lost) > 1 or (len(lost) and lost[0] > limit):
            n_left_out += len(lost)
            first = f"of {part.where}, since {later} begins at {limit:g}"
        if axis[kept][0] < limit:
            limit, later = axis[kept][0], part.where
        if inside.any():
            found.append((part, inside))
    if n_left_out:
        remarks.append(
            f"{many(n_left_out, 'row')} of earlier parts were left out, because later parts "
            f"contain these times: the first {first}"
        )
    return found[::-1]


def _segments(
    parts: Sequence[EnergyPart], title: str, remarks: list[str]
) -> list[tuple[EnergyPart, np.ndarray]]:
    """Split parts where times do not increase, as after restarts that append to a file.

    Each item of the result is a part and the mask of its rows in one segment.
    """
    found = []
    for part in parts:
        axis = _axis(part, title)
        known = np.isfinite(axis)
        if not known.all():
            n_unknown = int((~known).sum())
            remarks.append(f"{part.where}: {many(n_unknown, 'row')} without a time left out")
        places = np.flatnonzero(known)
        ends = np.flatnonzero(np.diff(axis[places]) <= 0) + 1
        for some in np.split(places, ends):
            kept = np.zeros(len(axis), dtype=bool)
            kept[some] = True
            if len(some):
                found.append((part, kept))
    return found


def _remarks_on_changes(
    rows: Sequence[tuple[EnergyPart, np.ndarray]], axis: np.ndarray
) -> list[str]:
    """Make remarks on terms that some parts lack, and on unequal time intervals."""
    found = []
    names = dict.fromkeys(name for part, _ in rows for name in part.terms)
    lacking = [name for name in names if any(name not in part.terms for part, _ in rows)]
    if lacking:
        listed = joined(lacking[:LISTED])
        found.append(f"not all parts have the same terms, and missing values are nan: {listed}")
    distances = np.diff(axis)
    if len(distances):
        usual = float(np.median(distances))
        slack = rounding_of(axis)
        uneven = np.abs(distances - usual) > UNEVEN * usual + slack[1:] + slack[:-1]
        if np.count_nonzero(uneven) > max(1, MANY_UNEVEN * len(distances)):
            found.append(
                f"rows have unequal time intervals, from {distances.min():g} to "
                f"{distances.max():g}: means and their errors weight all rows equally"
            )
    return found
