"""Judge the outcome for changed files: trajectories, saved indexes, and checkpoints."""

import contextlib
import io
import os
import shutil
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import MDAnalysis
import numpy as np

import paceline
from helpers.sound_files import SoundFile, sound_file
from paceline import checkpoint
from paceline.analysis.rms import RMSD, RMSF
from paceline.cli import main as command_line
from paceline.errors import AnalysisError, PacelineError, PacelineWarning, WorkerError
from paceline.mdanalysis.reader import Reader

#: Outcomes for a changed file: refused with its name; read with a warning; read with a warning only
#: from `validate`; read as before; read with other numbers, which the format cannot detect.
ALLOWED = ("refused", "told", "told by validate", "equal", "unseen")
#: Maximum number of frames of a changed file that are read one by one.
MOST_FRAMES = 200
#: Number of bytes at the end of a frame by which the frame is recognised.
_TAIL = 16
#: Times (ps) beyond this value do not occur in these trajectories.
ABSURD = 1e9
OPTIONS = {"h5md, lammps": {"units": "Angstrom, ps"}}
TEXT = ("history", "history, edited", "config", "lammps", "lammps, scaled")
#: Files that describe their atoms.
TOPOLOGIES = ("h5md, gromacs", "hdf5, mdtraj", "history", "config")


class Forbidden(Exception):
    """An outcome that is not allowed; its message begins with it."""


def check_error(error: BaseException, path: Path) -> str:
    """Raise `Forbidden` unless paceline or the system raised the error, and it names the file."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, WorkerError):
        raise Forbidden(f"a worker ended: {text}")
    if not isinstance(error, PacelineError | OSError):
        raise Forbidden(f"a foreign error: {text}: {traceback.format_tb(error.__traceback__)[-1]}")
    if str(path) not in str(error):
        raise Forbidden(f"an error without the path: {text}")
    return text


class Frame(NamedTuple):
    """Numbers of one frame, as bits."""

    positions: np.ndarray | None
    velocities: np.ndarray | None
    forces: np.ndarray | None
    dimensions: np.ndarray | None
    time: np.ndarray


def frame_of(ts) -> Frame:
    fields = (
        getattr(ts, name).copy() if getattr(ts, f"has_{name}") else None
        for name in ("positions", "velocities", "forces")
    )
    dimensions = None if ts.dimensions is None else ts.dimensions.copy()
    return Frame(*fields, dimensions, np.array(ts.time))


def same(one: Frame, other: Frame) -> bool:
    return all(
        (a is None) == (b is None) and (a is None or (a.shape == b.shape and _bits(a) == _bits(b)))
        for a, b in zip(one, other, strict=True)
    )


def _bits(array: np.ndarray) -> bytes:
    return array.tobytes()


def possible(dimensions: np.ndarray) -> bool:
    """Return whether six numbers can be a cell."""
    lengths, angles = dimensions[:3], dimensions[3:]
    return bool(
        np.isfinite(dimensions).all()
        and (lengths > 0).all()
        and ((angles > 0) & (angles < 180)).all()
    )


class Reading(NamedTuple):
    """Everything that reading a file returned."""

    frames: list[Frame | None]
    starts: list[int]
    #: Warnings, and errors of single frames.
    words: list[str]
    #: For HDF5 files, by field: offsets and sizes of the chunks or of contiguous storage, and the
    #: number of values in one of them.
    places: dict[str, tuple[np.ndarray, np.ndarray, int]]


def read(path: Path, options: dict) -> Reading:
    """Open a file and read its frames one by one."""
    words: list[str] = []
    with heard(words):
        reader = Reader(str(path), **options)
        n_frames = min(reader.n_frames, MOST_FRAMES)
        frames: list[Frame | None] = []
        for number in range(n_frames):
            try:
                frames.append(frame_of(reader[number]))
            except Exception as error:
                words.append(check_error(error, path))
                frames.append(None)
        offsets, _ = reader.file.extents(np.arange(n_frames, dtype=np.uint64))
    return Reading(frames, np.asarray(offsets).tolist(), words, _places(reader.file))


def _places(file) -> dict[str, tuple[np.ndarray, np.ndarray, int]]:
    index = getattr(file, "chunk_index", None)
    found = {}
    for field, element in ({} if index is None else index.elements).items():
        one = element.dataset
        n_numbers = one.chunk_bytes // one.dtype.itemsize
        if one.table is not None:
            found[field] = one.table.offsets, one.table.sizes, n_numbers
        elif not one.h5py_fallback:
            place = np.array([[one.offset], [one.chunk_bytes]], dtype=np.uint64)
            found[field] = *place, n_numbers
    return found


@contextlib.contextmanager
def heard(words: list[str]) -> Iterator[None]:
    """Collect warnings; a warning of another package is `Forbidden`."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for one in caught:
        if issubclass(one.category, PacelineWarning):
            words.append(str(one.message))
        elif issubclass(one.category, RuntimeWarning):
            raise Forbidden(f"a foreign warning: {one.message} ({one.filename}:{one.lineno})")


class TrajectoryTrial:
    """Changed trajectories of one kind."""

    def __init__(self, kind: str, folder: Path):
        self.sound = sound_file(kind)
        self.options = OPTIONS.get(kind, {})
        path = folder / self.sound.name
        path.write_bytes(self.sound.content)
        self.whole = read(path, self.options)
        self.remarks = {f.what for f in paceline.validate(path, **self.options).findings}

    def judge(self, folder: Path, content: bytes, random: np.random.Generator) -> tuple[str, str]:
        """Return the outcome, and its message."""
        path = folder / self.sound.name
        path.write_bytes(content)
        n_before = len(self.whole.words)
        try:
            found = read(path, self.options)
        except Forbidden:
            raise
        except Exception as error:
            said = check_error(error, path)
            self._check_validated(path, refused=True)
            self._run_command(path, random)
            return "refused", said
        told = [word for word in found.words if not self._was_said_before(word)]
        findings = self._check_validated(path, refused=False)
        self._check_analysed(path, found)
        self._run_command(path, random)
        self._check_frames(found, told, findings, content)
        if len(found.words) > n_before or told:
            return "told", "; ".join(told)
        if findings:
            return "told by validate", "; ".join(findings)
        frames, whole = found.frames, self.whole.frames
        if len(frames) == len(whole) and all(map(same, frames, whole)):
            return "equal", ""
        return "unseen", ""

    def _was_said_before(self, word: str) -> bool:
        return any(word.rpartition("/")[2] == old.rpartition("/")[2] for old in self.whole.words)

    def _check_validated(self, path: Path, *, refused: bool) -> list[str]:
        """Validate the file; return messages that the valid file does not cause."""
        words: list[str] = []
        with heard(words):
            verdict = paceline.validate(path, n_workers=2, progress=False, **self.options)
        if refused and not verdict.bad:
            raise Forbidden("a file that cannot be opened is valid")
        return [f.what for f in verdict.findings if f.what not in self.remarks]

    def _check_analysed(self, path: Path, found: Reading) -> None:
        """Analyse blocks, which must contain the same numbers as single frames."""
        words: list[str] = []
        with heard(words):
            reader = Reader(str(path), **self.options)
            if reader.n_atoms == 0:  # an error for `validate`
                return
            universe = MDAnalysis.Universe.empty(reader.n_atoms)
            universe.trajectory = reader
            series = paceline.TimeSeries(_row, universe.atoms)
            try:
                series.run(
                    backend=["serial", "threads"][reader.n_frames % 2],
                    n_workers=1 if reader.n_frames % 2 == 0 else 2,
                    on_error="skip",
                    stop=MOST_FRAMES,
                )
            except Exception as error:
                check_error(error, path)
                if any(frame is not None and frame.positions is not None for frame in found.frames):
                    raise Forbidden(f"frames are read, but not analysed: {error}") from error
                return
        out = {frame for frame, _ in series.damaged}
        rows = series.results.timeseries
        for number, (frame, row) in enumerate(zip(found.frames, rows, strict=True)):
            if frame is None:
                continue  # the damage may be in data that the analysis does not need
            if frame.positions is None:
                if number not in out:
                    raise Forbidden(f"frame {number} has no positions, but a row of an analysis")
            elif number in out:
                raise Forbidden(f"frame {number} is read alone and left out of an analysis")
            else:
                cell = np.zeros(6) if frame.dimensions is None else frame.dimensions
                numbers = np.concatenate([frame.positions.ravel(), np.float32(cell)])
                if not np.array_equal(row, numbers, equal_nan=True):
                    raise Forbidden(f"frame {number}: an analysis sees other numbers")

    def _run_command(self, path: Path, random: np.random.Generator) -> None:
        """Run one of the commands that need only the file."""
        output = path.with_name("output")
        shutil.rmtree(output, ignore_errors=True)
        output.mkdir()
        units = ["--units", self.options["units"]] if self.options else []
        atoms = ["-s", str(path)] if self.sound.kind in TOPOLOGIES else []
        commands = [
            ["info", str(path), *units],
            ["index", str(path)],
            ["validate", str(path), *units],
            ["convert", *atoms, str(path), str(output / "a.xtc"), *units, "--on-error", "skip"],
            ["convert", *atoms, str(path), str(output / "a.h5md"), *units],
            ["split", str(path), "-n", "2", "-o", str(output)],
            ["join", str(path), str(path), "-o", str(output / f"a{path.suffix or '.history'}")],
        ]
        words = commands[random.integers(len(commands))]
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = command_line([*words, "--debug"])
            except SystemExit as stop:
                raise Forbidden(f"{words[0]}: wrong arguments: {err.getvalue()}") from stop
        said = err.getvalue()
        if status not in (0, 1, 2):
            raise Forbidden(f"{words[0]}: status {status}: {said}")
        left = [one.name for one in output.iterdir() if status and one.name != "index"]
        if left:
            raise Forbidden(f"{words[0]}: failed and left {left}")
        if status and words[0] != "validate":
            lines = said.strip().splitlines()
            last = next((k for k, line in enumerate(lines) if _is_last_line(line)), None)
            text = "\n".join(lines[-3:]) if last is None else "\n".join(lines[last:])
            # Wrong arguments raise ValueError; MDAnalysis parses topologies.
            foreign = last is None and f"ValueError: {path.parent}" not in said
            if foreign and "-s" not in words:
                raise Forbidden(f"{words[0]}: a foreign error: {said[-600:]}")
            if str(path.parent) not in said and not foreign:
                raise Forbidden(f"{words[0]}: an error without the path: {text}")

    def _check_frames(
        self, found: Reading, told: list[str], findings: list[str], content: bytes
    ) -> None:
        """Raise for impossible numbers, and for lost or changed frames without a warning."""
        whole = self.whole
        for number, frame in enumerate(found.frames):
            if frame is None:
                continue
            if not (abs(frame.time) < ABSURD or told or findings):
                raise Forbidden(f"garbage: frame {number} has the time {frame.time}")
            # Only `validate`, and analyses that need a volume, report a cell without volume.
            cell = np.full(6, 90) if frame.dimensions is None else frame.dimensions
            if not (np.isfinite(cell).all() if findings else possible(cell) or told):
                raise Forbidden(f"garbage: frame {number} has the cell {cell}")
            for field in frame[:3]:
                if field is not None and not (np.isfinite(field).all() or told or findings):
                    raise Forbidden(f"garbage: frame {number} has numbers that are not finite")
        if not any(frame and frame.positions is not None for frame in found.frames):
            return  # a name was changed, and analyses of positions raise an error
        # A file that ends after a frame is complete, whatever else was changed.
        end = whole.starts[len(found.frames) :][:1]
        cut = end and content.endswith(self.sound.content[end[0] - _TAIL : end[0]])
        if len(found.frames) < len(whole.frames) and not (told or findings or cut):
            raise Forbidden(f"short: {len(found.frames)} of {len(whole.frames)} frames")
        self._check_untouched(found, content)
        if self._is_header_changed(content):
            return
        differ = self._n_changed(found)
        if not (told or findings) and differ > self._n_touched(content) + self._n_moved(found):
            raise Forbidden(f"wide: {differ} numbers changed without a word")

    def _check_untouched(self, found: Reading, content: bytes) -> None:
        """Raise if a frame differs although its bytes, and those of the header, did not change."""
        old, borders = self.sound.content, self.sound.borders
        if len(content) != len(old) or not borders:
            return
        differs = np.frombuffer(content, np.uint8) != np.frombuffer(old, np.uint8)
        # Only the first frame contains fixed atoms.
        shared = borders[1] if self.sound.kind == "dcd, fixed atoms" else borders[0]
        if differs[:shared].any():
            return
        for frame, start in zip(found.frames, found.starts, strict=True):
            if start not in borders or frame is None:
                continue
            number = borders.index(start)
            if differs[start : borders[number + 1]].any():
                continue
            if not same(frame, self.whole.frames[number]):
                raise Forbidden(f"another frame: {number} differs, though none of its bytes does")

    def _is_header_changed(self, content: bytes) -> bool:
        """Return whether a file of the same size has another header, which may mean other units."""
        old, borders = self.sound.content, self.sound.borders
        start = borders[0] if borders else 0
        return len(content) == len(old) and content[:start] != old[:start]

    def _n_touched(self, content: bytes) -> float:
        """Return the maximum number of values that these changes may affect unnoticed."""
        old = self.sound.content
        if self.sound.kind.startswith("xtc"):
            # A changed bit changes all following values of its frame.
            return np.inf if len(content) == len(old) else 3 * 60 * 2
        # Positions in LAMMPS dumps are relative to a corner of the cell of their frame.
        pairs = zip(_cells_of_dump(content), _cells_of_dump(old), strict=False)
        moved = 3 * 60 * sum(one != other for one, other in pairs)
        if len(content) != len(old):
            # In lines of any length, a number may have more or fewer digits.
            return moved + (20 if self.sound.kind in TEXT else 0)
        differs = np.frombuffer(content, np.uint8) != np.frombuffer(old, np.uint8)
        # An element of a shape matrix affects all six cell numbers; fixed atoms are in all frames.
        reach = len(self.whole.frames) if self.sound.kind == "dcd, fixed atoms" else 6
        return moved + reach * int(np.count_nonzero(differs))

    def _n_moved(self, found: Reading) -> int:
        """Return how many numbers have an address that now points elsewhere in the file."""
        starts, sizes = (
            np.concatenate([np.empty(0, np.uint64), *(one[k] for one in found.places.values())])
            for k in (0, 1)
        )
        n = 0
        for field, (offsets, lengths, n_numbers) in found.places.items():
            before = self.whole.places.get(field, (offsets[:0],))[0]
            for old, begin, length in zip(before, offsets, lengths, strict=False):
                shared = (starts < begin + length) & (begin < starts + sizes)
                n += n_numbers * bool(begin != old and shared.sum() == 1)
        return n

    def _n_changed(self, found: Reading) -> int:
        n = 0
        for one, other in zip(found.frames, self.whole.frames, strict=False):
            if one is None:
                continue
            # One number in the header of a DCD determines the times of all frames.
            n_fields = 4 if self.sound.kind.startswith("dcd") else 5
            for a, b in zip(one[:n_fields], other[:n_fields], strict=True):
                if a is None or b is None or a.shape != b.shape:
                    n += 0 if a is b else 1
                else:
                    n += int(np.count_nonzero(a != b))
        return n


def _cells_of_dump(content: bytes) -> list[bytes]:
    """Return the lines of the cell in each frame of a LAMMPS dump; none for another file."""
    return [part.partition(b"ITEM: ATOMS")[0] for part in content.split(b"ITEM: BOX BOUNDS")[1:]]


def _is_last_line(line: str) -> bool:
    return line.startswith(("paceline.errors.", "OSError", "FileNotFoundError", "FileExistsError"))


def _row(block) -> np.ndarray:
    n = len(block.frames)
    return np.column_stack([block.positions.reshape(n, -1), block.dimensions])


class IndexTrial:
    """A valid trajectory with a changed saved index."""

    def __init__(self, kind: str, folder: Path):
        trajectory = sound_file("xtc")
        self.path = folder / trajectory.name
        self.path.write_bytes(trajectory.content)
        self.whole = read(self.path, {})
        self.index = self.path.with_name(f".{self.path.name}.paceline-index")
        self.sound = SoundFile(kind, self.index.name, self.index.read_bytes())

    def judge(self, folder: Path, content: bytes, random: np.random.Generator) -> tuple[str, str]:
        """Return the outcome and its message; a changed index must not cause any error."""
        self.index.write_bytes(content)
        found = read(self.path, {})
        if found.words:
            return "told", "; ".join(found.words)
        if not (len(found.frames) == len(self.whole.frames) == len(found.starts)):
            raise Forbidden(f"short: {len(found.frames)} of {len(self.whole.frames)} frames")
        if not all(map(same, found.frames, self.whole.frames)):
            raise Forbidden("another frame")
        return "equal", ""


class CheckpointTrial:
    """An interrupted run with a changed checkpoint, which is then resumed."""

    def __init__(self, kind: str, folder: Path):
        trajectory = sound_file("xtc")
        path = folder / trajectory.name
        path.write_bytes(trajectory.content)
        self.atoms = paceline.Universe.empty(60)
        self.atoms.trajectory = Reader(str(path))
        self.marker, self.checkpoint = folder / "marker", folder / "checkpoint"
        self.wanted = self._run(None)
        self.marker.touch()
        checkpoint.INTERVAL, checkpoint.SHARE = 0.0, 0
        with contextlib.suppress(AnalysisError):
            self._run(self.checkpoint)
        self.marker.unlink()
        self.sound = SoundFile(kind, self.checkpoint.name, self.checkpoint.read_bytes())

    def _run(self, path: Path | None) -> list[bytes]:
        atoms, marker = self.atoms.atoms, str(self.marker)

        def function(block):
            if block.frames[-1] >= 7 and os.path.exists(marker):
                raise RuntimeError("enough")
            return block.positions.mean(axis=1)

        analyses = [RMSD(atoms), RMSF(atoms), paceline.TimeSeries(function, atoms)]
        frames = np.tile(np.arange(10), 40)
        options = {"backend": "serial", "frames": frames, "block_frames": 16}
        paceline.run(analyses, checkpoint=path, **options)
        rmsd, rmsf, series = (one.results for one in analyses)
        return [_bits(array) for array in (rmsd.rmsd, rmsf.rmsf, series.timeseries)]

    def judge(self, folder: Path, content: bytes, random: np.random.Generator) -> tuple[str, str]:
        """Return the outcome, and its message."""
        self.checkpoint.write_bytes(content)
        words: list[str] = []
        try:
            with heard(words):
                found = self._run(self.checkpoint)
        except Forbidden:
            raise
        except Exception as error:
            said = check_error(error, self.checkpoint)
            if self.checkpoint.read_bytes() != content:
                raise Forbidden(f"a checkpoint that is refused was changed: {said}") from error
            return "refused", said
        if found != self.wanted:
            raise Forbidden("another frame: the resumed run has other results")
        if self.checkpoint.exists():
            raise Forbidden("the checkpoint of a finished run is left")
        return ("told", "; ".join(words)) if words else ("equal", "")
