"""Trajectories of frame batches, opened with their atoms, transformations and features."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, TypeAlias, cast, runtime_checkable

import numpy as np

from paceline._util.arguments import (
    uses_positions,
    whole_number,
)
from paceline._util.sorted_unique import sorted_unique
from paceline.analysis.base import AnalysisBase
from paceline.analysis.saved_table_format import OF_FRAMES, STEP, read_saved
from paceline.contract.system_interface import Atoms, attribute_of
from paceline.contract.transform_interface import Transform, WorkerTransform, find_scan
from paceline.errors import (
    AtomCountError,
    MissingDataError,
    PacelineError,
    UnsupportedError,
    warn,
)
from paceline.performance.number_format import many
from paceline.runner import run, trajectory_of
from paceline.trajectory.file_trajectory import FileTrajectory
from paceline.trajectory.file_trajectory import open as open_files
from paceline.trajectory.shuffled_frames import (
    ARRAYS,
    SampledTrajectory,
    frames_together,
)
from paceline.transform.apply_transforms import prepare_transforms

#: Pattern of two or more fingerprints of files, separated by commas.
_OF_FILES = re.compile("[0-9a-f]{48}(, [0-9a-f]{48})+")
#: Maximum number of trajectories that a warning names.
NAMED = 3

#: Name of a file, or a pattern of names.
FileName: TypeAlias = str | os.PathLike
#: Values of frames: an array, the path of a saved table, or an analysis.
FeatureRows: TypeAlias = np.ndarray | FileName | AnalysisBase
#: Feature, given as its values in the frames of the only trajectory, as a list with such values for
#: each trajectory, or as a function that takes a trajectory's atoms and returns the analysis that
#: computes the values.
Feature: TypeAlias = FeatureRows | Sequence[FeatureRows] | Callable[[Atoms], AnalysisBase]


@runtime_checkable
class HasAtoms(Protocol):
    """Universe, AtomGroup, or trajectory that `paceline.open` has opened."""

    @property
    def atoms(self) -> Atoms:
        """Atoms of the system, or of the group."""


#: Trajectory: atoms, the name of a file without a topology, or names of topology and trajectories.
Trajectories: TypeAlias = HasAtoms | FileName | tuple[FileName, ...]


class _FirstOfTopology(NamedTuple):
    """First trajectory that was opened with a topology: name, number of atoms, and chosen atoms."""

    name: str
    n_atoms: int
    indices: np.ndarray
    #: True if these atoms apply to further trajectories, so that the topology is not read again.
    is_enough: bool


@dataclass(frozen=True)
class _Opened:
    """Open trajectory, with the indices and the group of the chosen atoms.

    The group is None if no topology was read.
    """

    trajectory: FileTrajectory
    indices: np.ndarray
    group: Atoms | None

    @property
    def name(self) -> str:
        """Names of the files of the trajectory, separated by commas."""
        return ", ".join(self.trajectory.filenames)


@dataclass(frozen=True)
class TrajectoryOpener:
    """Opens trajectories, one after another, and stores only the data that samples need."""

    select: str | None
    frames: slice
    fields: tuple[str, ...]
    transforms: Sequence[Transform]
    #: For each trajectory its features by name.
    features: Sequence[Mapping[str, object]]
    on_error: str
    #: For each trajectory the number of frames in a block; None to choose it.
    block_frames: Sequence[int | None]

    def open_all(self, items: Sequence[Trajectories]) -> list[SampledTrajectory]:
        """Open all trajectories; with "skip", a trajectory that cannot be opened gets no frames."""
        found: list[SampledTrajectory | None] = []
        known: dict[str, _FirstOfTopology] = {}
        reasons: list[str] = []
        for item, features, together in zip(items, self.features, self.block_frames, strict=True):
            try:
                one = self._open(item, known)
                self._check_atoms(one, found)
                found.append(self._sampled(one, features, together))
            except (PacelineError, OSError) as error:
                if self.on_error == "raise" or len(items) == 1:
                    raise
                reasons.append(str(error))
                found.append(None)
        first = next((one for one in found if one is not None), None)
        if first is None:
            raise UnsupportedError(f"no trajectory can be opened; the first: {reasons[0]}")
        if reasons:
            more = f"; and {len(reasons) - NAMED} more" if len(reasons) > NAMED else ""
            left = 'are left out, because they cannot be opened (on_error="skip")'
            warn(
                f"{len(reasons)} of {len(items)} trajectories {left}: "
                f"{'; '.join(reasons[:NAMED])}{more}"
            )
        sampled = [
            SampledTrajectory(_name_of(item), first.chain, first.source, range(0))
            if one is None
            else one
            for item, one in zip(items, found, strict=True)
        ]
        _join_features(sampled, first)
        return sampled

    def _open(self, item: Trajectories, known: dict[str, _FirstOfTopology]) -> _Opened:
        """Open a trajectory, and find the chosen atoms.

        `known` contains the first trajectory of each topology. If its atoms also apply to this
        trajectory, the topology is not read again.
        """
        given: object = open_files(item) if isinstance(item, str | os.PathLike) else item
        topology = None
        if isinstance(item, tuple):
            if len(item) < 2 or not all(isinstance(one, str | os.PathLike) for one in item):
                raise TypeError(f"expected names (topology, trajectory, …), found {item!r}")
            topology, *files = (os.fspath(name) for name in item)
            if topology in known and known[topology].is_enough:
                first = known[topology]
                return _Opened(open_files(files, n_atoms=first.n_atoms), first.indices, None)
            # Deferred: worker processes import this module, but never MDAnalysis.
            from paceline.universe import Universe

            given = Universe(topology, *files)
        if not isinstance(given, HasAtoms):
            raise TypeError(
                "expected a Universe, an AtomGroup, a trajectory of paceline.open, a name, or "
                f"names (topology, trajectory), found {given!r}"
            )
        group = given.atoms if self.select is None else given.atoms.select_atoms(self.select)
        trajectory = trajectory_of([group], self.transforms)
        if not isinstance(trajectory, FileTrajectory):
            raise UnsupportedError(
                f"{group.universe.trajectory.filename}: only MDAnalysis reads this trajectory, one "
                "frame at a time: write it in another format with paceline.Write or paceline "
                "convert"
            )
        indices = np.asarray(group.indices, dtype=np.int64)
        makes = any(callable(one) for features in self.features for one in features.values())
        by_positions = self.select is not None and uses_positions(self.select)
        is_enough = not (topology is None or self.transforms or makes or by_positions)
        opened = _Opened(trajectory, indices, group)
        file = attribute_of(group.universe, "filename") if topology is None else topology
        if isinstance(file, str):
            n_atoms = len(group.universe.atoms)
            first = known.setdefault(
                file, _FirstOfTopology(opened.name, n_atoms, indices, is_enough)
            )
            if by_positions and not np.array_equal(first.indices, indices):
                raise ValueError(
                    f"{opened.name}: {self.select!r} finds other atoms in its first frame than in "
                    f"that of {first.name}, so that batches would mix different atoms: select "
                    "atoms by their names, or pass an AtomGroup of each trajectory"
                )
        return opened

    def _check_atoms(self, one: _Opened, before: Sequence[SampledTrajectory | None]) -> None:
        """Raise `AtomCountError` if the number of atoms differs from the first trajectory's."""
        first = next((other for other in before if other is not None), None)
        if first is not None and first.n_atoms != len(one.indices):
            selected = "atoms" if self.select is None else f"atoms of {self.select!r}"
            error = AtomCountError(
                f"{one.name}: expected {first.n_atoms} {selected}, as in {first.name}, found "
                f"{len(one.indices)}: select equally many atoms of each trajectory (select=)"
            )
            error.found = len(one.indices)
            raise error

    def _sampled(
        self, one: _Opened, features: Mapping[str, object], together: int | None
    ) -> SampledTrajectory:
        """Convert an open trajectory to a `SampledTrajectory`, and compute its features."""
        trajectory, indices = one.trajectory, one.indices
        lacking = [field for field in self.fields if field not in trajectory.fields]
        if lacking:
            raise MissingDataError(
                f"{one.name}: {' and '.join(lacking)} were requested, but the trajectory contains "
                f"{' and '.join(trajectory.fields)} only"
            )
        decoded, prepared = sorted_unique(indices), list[WorkerTransform]()
        if self.transforms:
            assert one.group is not None
            decoded, prepared = prepare_transforms(self.transforms, decoded, one.group.universe)
            if find_scan(prepared) is not None:
                raise UnsupportedError(
                    f"{one.name}: nojump follows atoms from frame to frame, but samples are frames "
                    "in any order: write the transformed trajectory with paceline.Write or "
                    "paceline convert --nojump, and use that"
                )
        is_same = np.array_equal(decoded, indices)
        chosen = range(trajectory.n_frames)[self.frames]
        together = together or frames_together(trajectory.chain, len(chosen))
        source = trajectory.frame_source(decoded, self.fields, self.fields)
        found = SampledTrajectory(
            one.name,
            trajectory.chain,
            # Read without the cache, because its folder is on the disks of nodes, and this process
            # may not see these disks.
            replace(source, cache=None),
            chosen,
            block_frames=together,
            transforms=prepared,
            columns=None if is_same else np.searchsorted(decoded, indices),
        )
        made = {
            name: cast(Callable[[Atoms], AnalysisBase], make)(_group_of(one, name))
            for name, make in features.items()
            if callable(make)
        }
        given = {name: rows for name, rows in features.items() if name not in made}
        new = [*made.values(), *(rows for rows in given.values() if _is_new(rows))]
        if new:
            analyses = cast(list[AnalysisBase], new)
            run(analyses, transforms=self.transforms, on_error=self.on_error)
        for name, rows in {**made, **given}.items():
            found.features[name] = _checked(rows, f"features[{name!r}] of {one.name}", trajectory)
        return found


def blocks_of_each(given: int | Sequence[int] | None, n: int) -> list[int | None]:
    """Return the number of frames in a block of each trajectory; None to choose it."""
    if given is None:
        return [None] * n
    if not isinstance(given, Sequence):
        return [whole_number("block_frames", given, 1)] * n
    if len(given) != n:
        raise ValueError(
            f"block_frames: expected a number for each of {n} trajectories, found {len(given)}"
        )
    return [whole_number(f"block_frames[{k}]", one, 1) for k, one in enumerate(given)]


def _name_of(item: Trajectories) -> str:
    """Return the name of a trajectory that could not be opened."""
    if isinstance(item, str | os.PathLike):
        return os.fspath(item)
    return ", ".join(map(str, item[1:])) if isinstance(item, tuple) else repr(item)


def _join_features(sampled: Sequence[SampledTrajectory], first: SampledTrajectory) -> None:
    """Convert each feature to one type for all trajectories; raise if rows differ in shape."""
    for name, rows in first.features.items():
        for one in sampled:
            values = one.features.setdefault(name, rows[:0])
            if values.shape[1:] != rows.shape[1:]:
                raise ValueError(
                    f"features[{name!r}] of {one.name}: expected rows of shape {rows.shape[1:]}, "
                    f"as for {first.name}, found {values.shape[1:]}"
                )
        common = np.result_type(*(one.features[name] for one in sampled))
        for one in sampled:
            one.features[name] = one.features[name].astype(common, copy=False)


def _group_of(one: _Opened, name: str) -> Atoms:
    """Return the atoms from which a feature is computed."""
    assert one.group is not None, name
    return one.group


def _is_new(rows: object) -> bool:
    """True for an analysis that has not run."""
    return isinstance(rows, AnalysisBase) and not rows.results


def features_of_each(features: Mapping[str, Feature], n: int) -> list[dict[str, object]]:
    """Return the features of each of `n` trajectories by name."""
    found: list[dict[str, object]] = [{} for _ in range(n)]
    for name, given in features.items():
        if name in ARRAYS:
            raise ValueError(f"features: {name!r} is an array of each batch; use another name")
        if callable(given):
            entries: Sequence[object] = [given] * n
        elif isinstance(given, list):
            entries = given
        else:
            entries = [given]
        if len(entries) != n:
            raise ValueError(
                f"features[{name!r}]: expected a list with an entry for each of {n} trajectories, "
                f"found {len(entries)}"
            )
        for own, entry in zip(found, entries, strict=True):
            own[name] = entry
    return found


def _checked(rows: object, what: str, trajectory: FileTrajectory) -> np.ndarray:
    """Return the rows of a feature; raise unless there is one for each frame, in order."""
    numbers = None
    if isinstance(rows, str | os.PathLike):
        what = f"{what}, {os.fspath(rows)}"
        saved = read_saved(rows)
        _check_content(saved.facts, what, trajectory)
        columns = saved.columns
        numbers = columns.get(OF_FRAMES[0])
        rows = _stacked([columns[title] for title in columns if title not in (*OF_FRAMES, STEP)])
    elif isinstance(rows, AnalysisBase):
        numbers, rows = rows.frames, _rows_of(rows, what)
    values = np.asarray(rows)
    if values.dtype.kind not in "biuf" or values.ndim == 0:
        raise UnsupportedError(
            f"{what}: expected a row of numbers for each frame, found {values.dtype} of shape "
            f"{values.shape}"
        )
    n_frames = trajectory.n_frames
    if len(values) != n_frames:
        raise ValueError(
            f"{what}: expected {many(n_frames, 'row')}, one for each frame of the trajectory, "
            f"found {len(values)}: compute it for all frames"
        )
    if numbers is not None and not np.array_equal(numbers, np.arange(n_frames)):
        odd = int(np.flatnonzero(np.asarray(numbers) != np.arange(n_frames))[0])
        raise ValueError(
            f"{what}: expected frame {odd} in row {odd}, found frame {numbers[odd]:g}: compute it "
            "for all frames, in order"
        )
    return values


def _check_content(facts: Mapping[str, str], what: str, trajectory: FileTrajectory) -> None:
    """Raise `ValueError` if a table was computed from files with other content."""
    saved, found = facts.get("fingerprint", ""), trajectory.chain.content
    names = [facts.get("trajectory", ""), *trajectory.filenames]
    # Only local files have such fingerprints; a store or frames in memory cannot be compared.
    if any("://" in name for name in names) or not (_OF_FILES.fullmatch(f"{saved}, {found}")):
        return
    if saved != found:
        raise ValueError(
            f"{what}: expected a table of {', '.join(trajectory.filenames)}, found one of "
            f"{names[0]}, whose content is another (fingerprint {saved}, not {found}): if the "
            "frames are the same, pass its columns as an array"
        )


def _rows_of(analysis: AnalysisBase, what: str) -> np.ndarray:
    """Return the rows of an analysis: its time series, or the columns of its table."""
    # Imported here, because few batches have features that analyses compute.
    from paceline.analysis.functions import TimeSeries

    if isinstance(analysis, TimeSeries):
        return np.asarray(analysis.results.timeseries)
    table = analysis.results.table
    columns = []
    if table is not None and table.is_series and OF_FRAMES[0] in table.columns:
        columns = [table.columns[title] for part in table.panels or [table] for title in part.y]
    if not columns:
        raise UnsupportedError(
            f"{what}: {analysis.name} has no row for each frame; use TimeSeries, or an array"
        )
    return _stacked(columns)


def _stacked(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Join columns, float64, shape (n_rows,) or (n_rows, n_columns)."""
    if len(columns) == 1:
        return np.asarray(columns[0], dtype=np.float64)
    return np.column_stack(columns).astype(np.float64) if columns else np.empty((0, 0))
