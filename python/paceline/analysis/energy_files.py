"""Readers for energy files of GROMACS, OpenMM, LAMMPS, Amber, NAMD and DL_POLY."""

import csv
import os
import re
import struct
from array import array
from collections.abc import Callable
from typing import IO, Any

import numpy as np

from paceline.analysis.energy_lammps import LammpsLog
from paceline.analysis.energy_text_files import (
    Content,
    EnergyPart,
    TermColumns,
    distinct_names,
    lines_of,
    number_of,
    numbers_of,
    read_xvg,
    split_label,
)
from paceline.contract.time_units import TIME_UNITS
from paceline.errors import DamagedFileError, UnsupportedError

#: Size of the head that identifies a format, bytes.
HEAD = 2**16
#: Size of the part of an .edr file that is read at a time, bytes.
WINDOW = 2**20
#: Maximum number of terms of an .edr file, and maximum number of parts of a frame's blocks.
MOST_PARTS = 100_000
#: First bytes of an .edr file.
EDR_MAGIC = struct.pack(">i", -55555)
#: Columns of OpenMM's StateDataReporter that describe the computation, not the system.
NOT_ENERGIES = ("progress", "speed", "elapsed time", "time remaining", "frame")
AMBER_ENERGIES = (
    *("Etot", "EKtot", "EPtot", "BOND", "ANGLE", "DIHED", "1-4 NB", "1-4 EEL", "VDWAALS", "EELEC"),
    *("EHBOND", "RESTRAINT", "EGB", "EPB", "ESURF", "ECAVITY", "EDISPER", "EPOLZ", "DV/DL"),
    *("EAMBER (non-restraint)", "EKCMT", "VIRIAL", "UB", "IMP", "CMAP", "ERISM", "EAMD_BOOST"),
)
AMBER_UNITS = {
    **dict.fromkeys(AMBER_ENERGIES, "kcal/mol"),
    **{"TEMP": "K", "PRESS": "bar", "VOLUME": "Å³", "Density": "g/cm³"},
}
NAMD_ENERGIES = (
    *("BOND", "ANGLE", "DIHED", "IMPRP", "CROSS", "ELECT", "VDW", "BOUNDARY", "MISC", "KINETIC"),
    *("TOTAL", "POTENTIAL", "TOTAL2", "TOTAL3", "DRUDEBOND"),
)
NAMD_UNITS = {
    **dict.fromkeys(NAMD_ENERGIES, "kcal/mol"),
    **dict.fromkeys(("TEMP", "TEMPAVG", "DRUDECOM"), "K"),
    **dict.fromkeys(("PRESSURE", "GPRESSURE", "PRESSAVG", "GPRESSAVG"), "bar"),
    "VOLUME": "Å³",
}
#: Columns of DL_POLY's STATIS in their order, with the quantity of each.
STATIS_TERMS = {
    **{"engcns": "energy", "temp": "temperature"},
    **dict.fromkeys(("engcfg", "engsrp", "engcpe", "engbnd", "engang", "engdih"), "energy"),
    **{"engtet": "energy", "enthal": "energy", "tmprot": "temperature"},
    **dict.fromkeys(("vir", "virsrp", "vircpe", "virbnd", "virang", "vircon", "virtet"), "energy"),
    **{"volume": "volume", "tmpshl": "temperature", "engshl": "energy", "virshl": "energy"},
    **{"alpha": "angle", "beta": "angle", "gamma": "angle", "virpmf": "energy"},
    "press": "pressure",
}
STATIS_ENERGIES = {
    **{"electron volts": "eV", "kilo electron volts": "keV", "kjoule/mol": "kJ/mol"},
    **{"kelvin": "K", "dl_poly internal units": "10 J/mol"},
}


_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eEdD][-+]?\d+)?|\*+|[-+]?(?:nan|inf\w*)"
_AMBER = re.compile(rf"([A-Za-z0-9][^=]*?)\s*=\s*({_NUMBER})", re.IGNORECASE)
_SUMMARY = re.compile(r"A V E R A G E S|R M S  F L U C|AVERAGES OVER")


def read_file(path: str | os.PathLike) -> Content:
    """Read an energy file; its content identifies the format."""
    name = os.fspath(path)
    with open(path, "rb") as file:
        head = file.read(HEAD)
        file.seek(0)
        for is_so, read in READERS:
            if is_so(name.lower(), head):
                return read(name, file).close()
    raise UnsupportedError(
        f"{name}: expected energies of GROMACS (.edr, .xvg), OpenMM (StateDataReporter), LAMMPS, "
        "Amber (mdout), NAMD or DL_POLY (STATIS), found none of these"
    )


def _read_edr(path: str, file: IO[bytes]) -> Content:
    """Read an energy file of GROMACS."""
    try:
        from pyedr import pyedr
    except ImportError:
        raise UnsupportedError(
            f"{path}: .edr files need the package pyedr; install it with: "
            "pip install 'paceline[energies]'"
        ) from None
    content = Content(path)
    data = pyedr.GMX_Unpacker(_Window(file))
    rows: list[np.ndarray] = []
    times, steps, begin, longest = array("d"), array("q"), 0, 0
    try:
        frames = _edr_frames(pyedr)(data)
        while (begin := data.get_position()) < len(data.get_buffer()):
            frame, values = frames.next_frame()
            longest = max(longest, data.get_position() - begin)
            if len(values):  # other frames contain only blocks
                rows.append(values)
                times.append(frame.t)
                steps.append(frame.step)
    except EOFError:
        # If the frame begins far from the end of the file, the file is damaged, not truncated.
        if not rows or len(data.get_buffer()) - begin > 2 * longest:
            raise DamagedFileError.in_object(
                path, f"frame {len(rows)}", "a frame of energies", "the end of the file", begin
            ) from None
        content.remark("the last frame is truncated, and was left out")
    except (ValueError, AssertionError, IndexError, OverflowError, struct.error) as error:
        raise DamagedFileError.in_object(
            path, f"frame {len(rows)}", "a frame of energies", f"{error}" or "others", begin
        ) from None
    names = distinct_names(term.name for term in frames.nms)
    units = {name: term.unit for name, term in zip(names, frames.nms, strict=True)}
    if frames.file_version == 1:
        units = {}
        content.remark("files of this version, before GROMACS 4.0, have no units")
    values = np.array(rows, dtype=np.float64).reshape(-1, len(names))
    terms = dict(zip(names, np.ascontiguousarray(values.T), strict=True))
    content.parts.append(
        EnergyPart(path, terms, units, np.array(times), np.array(steps, dtype=float))
    )
    return content


class _Window:
    """File object for pyedr that loads only a window of the file into memory."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._size = file, os.fstat(file.fileno()).st_size
        self._first, self._bytes = 0, b""

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, place: slice) -> bytes:
        first, stop = place.start, min(place.stop, self._size)
        if first < self._first or stop > self._first + len(self._bytes):
            self._file.seek(first)
            self._first, self._bytes = first, self._file.read(max(WINDOW, stop - first))
        return self._bytes[first - self._first : stop - self._first]


def _edr_frames(pyedr: Any) -> Any:
    """Make a class that reads frames with pyedr's headers, and limits the memory it allocates."""

    class EdrBlock(pyedr.Block):
        """Block of a frame that counts its parts, also called subblocks."""

        def __init__(self, frame: Any) -> None:
            super().__init__()
            self.frame = frame

        def add_subblocks(self, n: int) -> None:
            self.frame.count(n)
            super().add_subblocks(n)

    class EdrFrame(pyedr.Frame):
        """Frame that counts its blocks and their parts."""

        n_parts = 0

        def count(self, n: int) -> None:
            """Add `n` to the number of blocks and parts; raise ValueError if it is too large."""
            self.n_parts += n
            if n < 0 or self.n_parts > MOST_PARTS:
                raise ValueError(f"{n} blocks")

        def add_blocks(self, n: int) -> None:
            self.count(n)
            self.nblock, self.block = n, [EdrBlock(self) for _ in range(n)]

    class EdrFrames(pyedr.EDRFile):
        """Reader of the frames of an .edr file, one after another."""

        #: Sizes of integers, floats, doubles, long integers and characters, bytes; strings vary.
        SIZES = (4, 4, 8, 8, 4)

        def __init__(self, data: Any) -> None:
            self.data = data
            # Files of the first version begin with the number of terms, others with a negative
            # magic number.
            n_terms = data.unpack_int()
            if n_terms > MOST_PARTS:
                raise ValueError(f"{n_terms} terms")
            data.set_position(0)
            self.do_enxnms()

        def next_frame(self) -> tuple[Any, np.ndarray]:
            """Read a frame; return its header and its energies."""
            data = self.data
            self.frame = frame = EdrFrame()
            self.do_eheader()
            if frame.nre not in (0, self.nre):
                raise ValueError(f"{frame.nre} energies for {self.nre} terms")
            sums = 4 if self.file_version == 1 else 3 if frame.nsum > 0 else 1
            kind = np.dtype(">f8" if data.gmx_double else ">f4")
            first = self._skip(frame.nre * sums * kind.itemsize)
            energies = np.frombuffer(data.get_buffer()[first : data.get_position()], kind)
            for block in frame.block:
                for sub in block.sub:
                    if sub.type == len(self.SIZES):
                        for _ in range(sub.nr):
                            data.unpack_string()
                    else:
                        self._skip(sub.nr * self.SIZES[sub.type])
            return frame, energies[::sums].astype(np.float64)

        def _skip(self, n_bytes: int) -> int:
            """Skip bytes; return the offset of the first skipped byte."""
            first: int = self.data.get_position()
            if n_bytes < 0:
                raise ValueError(f"{n_bytes} bytes of energies")
            if first + n_bytes > len(self.data.get_buffer()):
                raise EOFError
            self.data.set_position(first + n_bytes)
            return first

    return EdrFrames


def _read_xvg(path: str, file: IO[bytes]) -> Content:
    """Read an .xvg table for Grace, as GROMACS and paceline write it."""
    content = Content(path)
    table = read_xvg(content, file)
    label = table.labels.get("x", "no label")
    axis, time_unit = split_label(label)
    if axis.lower() != "time" or time_unit not in TIME_UNITS:
        raise UnsupportedError(f'{path}: expected "Time (ps)" on the x axis, found {label!r}')
    if table.columns:
        units = dict(table.names_and_units())
        times, *columns = table.columns
        terms = dict(zip(units, columns, strict=True))
        content.parts.append(EnergyPart(path, terms, units, times * TIME_UNITS[time_unit]))
    return content


def _read_csv(path: str, file: IO[bytes]) -> Content:
    """Read a table of OpenMM's StateDataReporter, or a similar table."""
    content, columns = Content(path), TermColumns()
    titles: list[str] = []
    delimiter = ","
    for number, line in lines_of(content, file):
        if line.startswith(('#"', '"')) or (not titles and line.strip() and line[0] != "#"):
            if titles:
                content.parts.append(_part_of_csv(f"{path}, to line {number}", titles, columns))
            delimiter = next((one for one in ",\t;" if one in line), " ")
            [cells] = csv.reader([line.lstrip("#")], delimiter=delimiter)
            titles, columns = distinct_names(cell.strip() for cell in cells), TermColumns()
        elif line.strip() and line[0] != "#":
            cells = line.split(delimiter)
            if len(cells) != len(titles):
                content.skip(number)
                continue
            values = ((title, number_of(cell)) for title, cell in zip(titles, cells, strict=True))
            columns.add({title: np.nan if one is None else one for title, one in values})
    content.parts.append(_part_of_csv(path, titles, columns))
    return content


def _part_of_csv(where: str, titles: list[str], columns: TermColumns) -> EnergyPart:
    """Make a part from the rows below a row of titles."""
    terms, units, times, steps = {}, {}, None, None
    for title, values in columns.arrays().items():
        name, unit = split_label(title)
        if name.lower() == "time" and unit in TIME_UNITS:
            times = values * TIME_UNITS[unit]
        elif name.lower() == "step":
            steps = values
        elif name.lower() not in NOT_ENERGIES and not np.isnan(values).all():
            terms[name], units[name] = values, unit
    if columns.n_rows and times is None and steps is None:
        raise UnsupportedError(
            f'{where}: expected a column "Step" or "Time (ps)", found {", ".join(titles)}'
        )
    return EnergyPart(where, terms, units, times, steps)


def _read_amber(path: str, file: IO[bytes]) -> Content:
    """Read an mdout file of Amber; averages, fluctuations and minimisations are left out."""
    content, records = Content(path), _AmberRecords()
    n_atoms = None
    for _, line in lines_of(content, file):
        if _SUMMARY.search(line):
            records.end()
            records.is_summary = True
        elif found := re.match(r"\|?\s*TI region\s+(\d+)", line):
            records.end()
            records.region = int(found[1])
        elif n_atoms is None and (found := re.search(r"\bNATOM\s*=\s*(\d+)", line)):
            n_atoms = int(found[1])
        elif re.match(r"\s*NSTEP\s*=", line):
            records.end()
            records.record = _amber_terms(line)
        elif line.strip().startswith("-----"):
            records.end()
            records.is_summary = False
        elif records.record:
            records.record |= _amber_terms(line)
    if records.record and not records.is_summary:
        content.remark("the last record is truncated, and was left out")
    terms = records.terms()
    steps, times = terms.pop("NSTEP", None), terms.pop("TIME(PS)", None)
    units = {name: AMBER_UNITS.get(re.sub(r"^TI region \d+: ", "", name), "") for name in terms}
    content.parts.append(EnergyPart(path, terms, units, times, steps, n_atoms=n_atoms))
    return content


class _AmberRecords:
    """Records of an mdout file; records of several TI regions form one row."""

    def __init__(self) -> None:
        self._columns = TermColumns()
        self._row: dict[str, float] = {}
        self.record: dict[str, float] = {}
        self.is_summary, self.region = False, 1

    def end(self) -> None:
        """Finish the current record: add it to the row of its step, or begin a new row with it."""
        record, self.record = self.record, {}
        if not record or self.is_summary:
            return
        if self.region > 1 and self._row.get("NSTEP") == record["NSTEP"]:
            del record["NSTEP"]
            record.pop("TIME(PS)", None)
            self._row |= {f"TI region {self.region}: {name}": one for name, one in record.items()}
            return
        if self._row:
            self._columns.add(self._row)
        self._row = record

    def terms(self) -> dict[str, np.ndarray]:
        """Return the columns of all records by name."""
        if self._row:
            self._columns.add(self._row)
            self._row = {}
        return self._columns.arrays()


def _amber_terms(line: str) -> dict[str, float]:
    """Find the terms in a line such as "BOND   =  442.1  ANGLE   =   1012.9"."""
    found = {name.replace("TEMP(K)", "TEMP"): text for name, text in _AMBER.findall(line)}
    return {name: number_of(text) or 0.0 for name, text in found.items()}


def _read_namd(path: str, file: IO[bytes]) -> Content:
    """Read a log file of NAMD; minimisations are left out."""
    content, columns = Content(path), TermColumns()
    titles: list[str] = []
    times: list[float] = []
    dt, n_atoms, minimises, n_minimised = np.nan, None, False, 0
    step, time = 0.0, 0.0
    for number, line in lines_of(content, file):
        if line.startswith("ENERGY:"):
            values = numbers_of(line.split()[1:])
            if values is None or len(values) != len(titles):
                content.skip(number)
            elif minimises:
                n_minimised += 1
            else:
                row = dict(zip(titles, values, strict=True))
                # The time continues from the previous row. If the step decreases, the time is the
                # step times dt.
                begin = (step, time) if row["TS"] >= step and not np.isnan(time) else (0.0, 0.0)
                step, time = row["TS"], begin[1] + (row["TS"] - begin[0]) * dt
                times.append(time / 1000)
                columns.add(row)
        elif line.startswith("ETITLE:"):
            titles = distinct_names(line.split()[1:])
        elif found := re.match(r"Info: TIMESTEP\s+(\S+)", line):
            dt, step, time = number_of(found[1]) or np.nan, 0.0, 0.0
        elif found := re.match(r"TCL: Setting parameter timestep to (\S+)", line):
            dt = number_of(found[1]) or np.nan
        elif found := re.match(r"Info: (\d+) ATOMS$", line.strip()):
            n_atoms = int(found[1])
        elif re.match(r"TCL: Minimizing|Info: .*MINIMIZATION ACTIVE", line):
            minimises = True
        elif line.startswith("TCL: Running"):
            minimises = False
    content.remark_minimised(n_minimised)
    terms = columns.arrays()
    steps = terms.pop("TS", None)
    units = {name: NAMD_UNITS.get(name, "") for name in terms}
    known = None if np.isnan(times).any() else np.array(times)
    content.parts.append(EnergyPart(path, terms, units, known, steps, n_atoms=n_atoms))
    return content


def _read_statis(path: str, file: IO[bytes]) -> Content:
    """Read a STATIS file of DL_POLY; the first 27 numbers of a row have names."""
    content, columns = Content(path), TermColumns()
    energy, times, head, n_wanted = "", array("d"), [0.0, 0.0], 0
    values: list[float] = []
    for number, line in lines_of(content, file):
        if number <= 2:
            if found := re.search(r"ENERGY UNITS\s*=\s*(.*\S)", line, re.IGNORECASE):
                energy = STATIS_ENERGIES.get(found[1].lower(), found[1])
            continue
        found_values = numbers_of(line.split())
        if found_values is None:
            content.skip(number)
        elif len(values) < n_wanted:
            values += found_values
        elif len(found_values) == 3:
            head, n_wanted, values = found_values[:2], int(found_values[2]), []
        else:
            content.skip(number)
        if n_wanted and len(values) == n_wanted:
            more = (f"column {k}" for k in range(len(STATIS_TERMS) + 1, n_wanted + 1))
            names = [*STATIS_TERMS, *more][:n_wanted]
            columns.add({"step": head[0], **dict(zip(names, values, strict=True))})
            times.append(head[1])
            n_wanted = 0
    if n_wanted:
        content.remark("the last record is truncated, and was left out")
    terms = columns.arrays()
    known = {"energy": energy, "temperature": "K", "volume": "Å³", "angle": "°"}
    known["pressure"] = "katm"
    steps = terms.pop("step", None)
    units = {name: known.get(STATIS_TERMS.get(name, ""), "") for name in terms}
    content.parts.append(EnergyPart(path, terms, units, np.array(times), steps))
    return content


def _read_lammps(path: str, file: IO[bytes]) -> Content:
    """Read a log file of LAMMPS."""
    return LammpsLog(path).read(file)


#: Functions that recognise a format from the filename and the head of the file, with the readers.
READERS: tuple[tuple[Callable[[str, bytes], Any], Callable[[str, IO[bytes]], Content]], ...] = (
    (lambda name, head: name.endswith(".edr") or head.startswith(EDR_MAGIC), _read_edr),
    (lambda _, head: re.search(rb"^LAMMPS \(|^Per MPI rank memory", head, re.M), _read_lammps),
    (lambda _, head: re.search(rb"^(Info: NAMD|ETITLE:|Charm\+\+)", head, re.M), _read_namd),
    (lambda _, head: re.search(rb"Amber \d+ \w+|^\s*NSTEP\s*=", head, re.M), _read_amber),
    (lambda name, head: name.endswith(".xvg") or re.search(rb"^@\s*xaxis", head, re.M), _read_xvg),
    (lambda _, head: re.search(rb"\A.*\n.*ENERGY UNITS", head, re.I), _read_statis),
    (lambda name, head: name.endswith((".csv", ".tsv")) or head.startswith(b'#"'), _read_csv),
)
