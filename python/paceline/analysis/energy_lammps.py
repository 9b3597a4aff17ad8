"""LAMMPS log files: thermodynamic output, with units and time steps from echoed commands."""

import re
from typing import IO, NamedTuple

import numpy as np

from paceline.analysis.energy_text_files import (
    Content,
    EnergyPart,
    TermColumns,
    distinct_names,
    lines_of,
    number_of,
    numbers_of,
)
from paceline.contract.time_units import TIME_UNITS


class Style(NamedTuple):
    """Units of a LAMMPS unit style, and its default time step in its unit of time."""

    time: str
    energy: str
    temperature: str
    pressure: str
    length: str
    density: str
    step: float


#: Unit styles (https://docs.lammps.org/units.html).
STYLES = {
    "real": Style("fs", "kcal/mol", "K", "atm", "Å", "g/cm³", 1.0),
    "metal": Style("ps", "eV", "K", "bar", "Å", "g/cm³", 1e-3),
    "si": Style("s", "J", "K", "Pa", "m", "kg/m³", 1e-8),
    "cgs": Style("s", "erg", "K", "dyn/cm²", "cm", "g/cm³", 1e-8),
    "electron": Style("fs", "Hartree", "K", "Pa", "Bohr", "", 1e-3),
    "micro": Style("µs", "pg·µm²/µs²", "K", "pg/(µm·µs²)", "µm", "pg/µm³", 2.0),
    "nano": Style("ns", "ag·nm²/ns²", "K", "ag/(nm·ns²)", "nm", "ag/nm³", 4.5e-4),
    "lj": Style("τ", "lj", "lj", "lj", "lj", "lj", 5e-3),
}
#: Patterns of column names, by quantity; the quantity determines the unit of a column
#: (https://docs.lammps.org/thermo_style.html).
QUANTITIES = {
    "energy": r"(Pot|Kin|Tot)Eng|E_\w+|Enthalpy|Econserve|Ecouple",
    "temperature": r"Temp",
    "pressure": r"Press|P(xx|yy|zz|xy|xz|yz)",
    "length": r"L[xyz]|[XYZ](lo|hi)|X[yz]|Yz|Cell[a-c]|(Cell)?[ABC]",
    "density": r"Density",
}
#: Columns that describe the computation, not the system.
NOT_ENERGIES = ("CPU", "CPULeft", "CPURemain", "T/CPU", "S/CPU", "Part", "Elapsed", "Elaplong")
#: Beginnings of the line before the rows of a run, in several versions.
BEFORE_ROWS = ("Per MPI rank memory", "Memory usage per processor")

_MULTI = re.compile(r"-+ Step\s+(\d+) -+ CPU =")
_PAIR = re.compile(r"(\S+)\s*=\s*(\S+)")
_UNITS = re.compile(r"units\s+(\w+)|\s+Unit style\s*:\s*(\w+)")
_TIMESTEP = re.compile(r"(?:timestep\s+|\s+Time step\s*:\s*)([-+.\deE]+)\s*(?:#|$)")
_RESET = re.compile(r"reset_timestep\s+(\d+)(?:\s+time\s+(\S+))?")


class Run:
    """Rows that a run prints, in one of LAMMPS's output styles."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.columns = TermColumns()
        self._titles: list[str] = []
        self._before = ""
        self._record: dict[str, float] | None = None

    def read(self, content: Content, number: int, line: str) -> None:
        """Read one line of the output of a run."""
        if found := _MULTI.match(line):
            self.end()
            self._record = {"Step": float(found[1])}
        elif self._record is not None:
            pairs = ((name, number_of(text)) for name, text in _PAIR.findall(line))
            self._record |= {name: value for name, value in pairs if value is not None}
        elif line.startswith("keywords:"):
            self._titles = distinct_names(_parse_yaml_list(line.partition(":")[2]))
        elif line.startswith("  - ["):
            self._add(content, number, _parse_yaml_list(line[4:]))
        else:
            self._add(content, number, line.split())

    def _add(self, content: Content, number: int, cells: list[str]) -> None:
        """Add a row; the first row follows the line of titles."""
        values = numbers_of(cells)
        if values is None and not self._titles:
            self._before = " ".join(cells)
        if not values:
            return  # a warning, or a line that the input script prints
        self._titles = self._titles or distinct_names(self._before.split())
        if len(values) == len(self._titles):
            self.columns.add(dict(zip(self._titles, values, strict=True)))
        else:
            content.skip(number)

    def end(self, *, cut: bool = False) -> bool:
        """Add the last record; return False if it is truncated and left out."""
        record, self._record = self._record, None
        is_whole = not (cut and record and len(record) < len(self.columns.columns))
        if record is not None and is_whole:
            self.columns.add(record)
        return is_whole


class LammpsLog:
    """LAMMPS log file, which echoes the commands that set units and time step."""

    def __init__(self, path: str) -> None:
        self.content = Content(path)
        self._units = ""
        self._n_runs = self._n_minimised = 0
        self._run: Run | None = None
        self._begin()

    def _begin(self) -> None:
        """Set the initial state; a log may contain several sessions of LAMMPS."""
        self._timestep: float | None = None
        #: `_is_default` is True unless a restart file was read, which may set the time step.
        #: `_varies` is True if a fix varies the time step.
        self._is_default, self._varies = True, False
        self._minimises = False
        self._normalises: bool | None = None
        #: Step and time (in the unit of the style) from which times of later steps are computed;
        #: None if the time is unknown.
        self._origin: tuple[float, float] | None = (0.0, 0.0)
        self._last_step = -np.inf

    def read(self, file: IO[bytes]) -> Content:
        """Read the rows of all runs in the log."""
        path = self.content.path
        for number, line in lines_of(self.content, file):
            if line.startswith(BEFORE_ROWS):
                self._end()
                self._n_runs += 1
                self._run = Run(f"{path}, run {self._n_runs} in line {number}")
            elif line.startswith("LAMMPS ("):
                self._end()
                self._begin()
            elif line.startswith("Loop time of"):
                atoms = re.search(r"with (\d+) atoms", line)
                self._end(int(atoms[1]) if atoms else None)
            elif self._run is not None:
                self._run.read(self.content, number, line)
            else:
                self._command(line)
        if self._run is not None and not self._run.end(cut=True):
            self.content.remark("the last row is truncated, and was left out")
        self._end()
        self.content.remark_minimised(self._n_minimised)
        if self._units not in STYLES and self.content.parts:
            found = self._units or "no line 'units'"
            self.content.remark(f"units are unknown: found {found}")
        return self.content

    def _command(self, line: str) -> None:
        """Update the state from an echoed command, or from a line between runs."""
        if found := _UNITS.match(line):
            self._units = found[1] or found[2]
        elif found := _TIMESTEP.match(line):
            self._timestep = number_of(found[1])
        elif line.startswith("read_restart"):
            self._is_default = False
        elif re.match(r"fix\s+\S+\s+\S+\s+dt/reset\b", line):
            self._varies = True
        elif found := re.match(r"thermo_modify\s.*\bnorm\s+(yes|no)\b", line):
            self._normalises = found[1] == "yes"
        elif found := _RESET.match(line):
            step, time = float(found[1]), number_of(found[2] or "")
            if time is not None or step < self._last_step:
                self._origin = step, time or 0.0
        elif re.match(r"minimize\s|Setting up \S+ style minimization", line):
            self._minimises = True
        elif line.startswith("Minimization stats"):
            # If the log does not echo the input, only this line shows that the last run was a
            # minimisation: remove its part.
            last = f", run {self._n_runs} in"
            if self.content.parts and last in self.content.parts[-1].where:
                terms = self.content.parts.pop().terms
                self._n_minimised += max(map(len, terms.values()), default=0)

    def _end(self, n_atoms: int | None = None) -> None:
        """Make an `EnergyPart` from the rows of the current run, unless it is a minimisation."""
        run, self._run = self._run, None
        if run is None:
            return
        run.end()
        terms = run.columns.arrays()
        steps = terms.pop("Step", None)
        if steps is not None and len(steps):
            self._last_step = float(steps[-1])
        if self._minimises:
            self._n_minimised, self._minimises = self._n_minimised + run.columns.n_rows, False
            return
        times = self._times(terms.pop("Time", None), steps)
        style = STYLES.get(self._units)
        terms = {name: one for name, one in terms.items() if name not in NOT_ENERGIES}
        units = {} if style is None else {name: unit_of(name, style) for name in terms}
        is_lj = self._units == "lj"
        per_atom = is_lj if self._normalises is None else self._normalises
        time_unit = "τ" if is_lj else "ps"
        part = EnergyPart(run.where, terms, units, times, steps, time_unit, n_atoms, per_atom)
        self.content.parts.append(part)

    def _times(self, given: np.ndarray | None, steps: np.ndarray | None) -> np.ndarray | None:
        """Times of the rows of a run, as printed or from steps; None if unknown."""
        style, dt, found = STYLES.get(self._units), self._timestep, given
        if dt is None and style is not None and self._is_default:
            dt = style.step
        if found is None and steps is not None and dt and self._origin and not self._varies:
            found = self._origin[1] + (steps - self._origin[0]) * dt
        # The next run counts from the end of this one, because it may have another time step.
        if steps is not None and len(steps):
            self._origin = None if found is None else (float(steps[-1]), float(found[-1]))
        if found is None or style is None:
            return None
        return found * TIME_UNITS.get(style.time, 1.0)


def unit_of(name: str, style: Style) -> str:
    """Unit of a column; empty for computes, fixes and variables, which may have any unit.

    Examples
    --------
    >>> unit_of("Press", STYLES["real"]), unit_of("Volume", STYLES["metal"])
    ('atm', 'Å³')
    """
    name = name.partition(" ")[0]
    if name == "Volume":
        return style.length if style.length == "lj" else f"{style.length}³"
    quantity = next((key for key, one in QUANTITIES.items() if re.fullmatch(one, name)), None)
    return "" if quantity is None else str(style._asdict()[quantity])


def _parse_yaml_list(text: str) -> list[str]:
    """Parse a YAML list in one line, as LAMMPS writes it.

    Examples
    --------
    >>> _parse_yaml_list(" ['Step', 'Temp', ]")
    ['Step', 'Temp']
    """
    inner = text.strip().strip("[]").strip().rstrip(",")
    return [item.strip().strip("'\"") for item in inner.split(",")]
