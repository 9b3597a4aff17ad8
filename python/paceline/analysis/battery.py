"""A battery: several analyses of one system, as a file describes them, in one pass."""

import inspect
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self, Unpack

import numpy as np

from paceline._util.files import new_file, saved_together
from paceline.analysis.base import AnalysisBase
from paceline.analysis.battery_file import read_battery_file, toml_of
from paceline.analysis.battery_page import page_of_battery
from paceline.analysis.default_batteries import Description, default_descriptions, ligands_of
from paceline.analysis.energies import Energies, read_energies
from paceline.analysis.known_classes import class_of
from paceline.analysis.needed_transforms import suited
from paceline.analysis.results import Results, further_results
from paceline.contract.atoms import System, attribute_of
from paceline.contract.figure_options import FigureOptions
from paceline.contract.plan import choose_frames
from paceline.errors import PacelineError, SelectionError, UnsupportedError, kept_warnings, warn
from paceline.performance.figure_style import check_style
from paceline.performance.number_format import joined, many
from paceline.runner import FramesChosen, RunOptions, run
from paceline.timing import Timings
from paceline.trajectory.open import files_named
from paceline.transform.atom_choice import select_atoms
from paceline.transform.bond_lists import lack_of_bonds

#: Energies beside analyses: their name in a file, and that of their files.
ENERGIES = "energies"
#: Tables of means: of each replica, of each group, and of differences from the first group.
TABLES = ("replicas.csv", "means.csv", "differences.csv")
#: Parameters that take atoms, in a file as a selection.
ATOMS = (
    *("atomgroup", "atoms", "mobile", "reference", "refgroup", "surface", "u", "universe"),
    *("atomgroups", "g1", "g2", "ag1", "ag2", "ag3", "ags"),
)
#: Parameters that take atoms which are selected anew in each frame.
UPDATING = ("group",)


class Battery:
    """Several analyses of one system, with tables, figures and one page of all results.

    Parameters
    ----------
    descriptions : mapping of str to mapping
        For each analysis, by the name that its files get: `analysis`, a short name ("rmsd") or
        module and class below `paceline.analysis` ("rms.RMSD"), by default the name itself; and
        its parameters. Parameters that take an AtomGroup are selections; `select` chooses the
        atoms of classes that have no such parameter. `energies` has `files` instead, and perhaps
        `terms`, as for `add_energies`.
    universe : paceline.Universe
        The system.
    optional : bool
        Leave out an analysis that the system lacks something for, or that the frames of a run are
        too few for, with a warning; by default it is an error.

    Attributes
    ----------
    analyses : dict of str to AnalysisBase
        The analyses by name.
    descriptions : dict
        As given, but for those that were left out.
    energies : paceline.analysis.energies.Energies or None
        Energies of the simulation, of the times of the frames once these were analysed.
    left_out : dict of str to str
        Why analyses were left out, by name.
    ligands : list of str
        Selections of the ligands that `default` found, or was given.
    warnings : list of str
        Warnings of opening the files, of the analyses and of their last run, which the page
        repeats.

    Raises
    ------
    SelectionError
        A selection finds no atoms.
    UnsupportedError
        An analysis or a parameter that is not known; the message has the known ones. Or all were
        left out.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> from paceline.analysis.battery import Battery
    >>> u = paceline.Universe(PSF, DCD)
    >>> core = {"select": "name CA", "groupselections": ["resid 1-29"]}
    >>> battery = Battery({"core": {"analysis": "rmsd", **core}, "rmsf": {}}, u).run(stop=5)
    >>> battery.analyses["core"].results.rmsd.shape
    (5, 4)
    """

    def __init__(
        self, descriptions: Mapping[str, Description], universe: System, *, optional: bool = False
    ):
        from MDAnalysis.exceptions import NoDataError

        descriptions = dict(descriptions)
        of_energies = descriptions.pop(ENERGIES, None)
        if not descriptions:
            raise UnsupportedError(
                "the battery has no analyses: describe each by a table, such as [rmsd]"
            )
        self.universe = universe
        self.analyses: dict[str, AnalysisBase] = {}
        self.left_out: dict[str, str] = {}
        self._warned: list[str] = [*(attribute_of(universe, "opening_warnings") or [])]
        with kept_warnings(self._warned):
            for name, description in descriptions.items():
                try:
                    made = _make(name, description, universe)
                    if optional:
                        made.check_atoms()
                    self.analyses[name] = made
                except (NoDataError, PacelineError, IndexError, ValueError) as error:
                    if not optional:
                        raise
                    self.left_out[name] = str(error)
        self.warnings = [*self._warned]
        reasons = [f"{name}: {reason}" for name, reason in self.left_out.items()]
        if not self.analyses:
            raise UnsupportedError("the battery can have no analysis:\n" + "\n".join(reasons))
        for reason in reasons:
            warn(f"left out of the battery: {reason}")
        self.descriptions = {name: descriptions[name] for name in self.analyses}
        self._whole = self.descriptions, self.analyses, self.left_out
        self._optional = optional
        self._suit(universe.trajectory.n_frames)
        self.ligands: list[str] = []
        self.energies: Energies | None = None
        self._of_energies: dict[str, Any] = {}
        if of_energies is not None:
            files, terms = _files_and_terms(of_energies)
            self.add_energies(*files, terms=terms)

    @classmethod
    def from_file(cls, path: str | os.PathLike, universe: System) -> Self:
        """Make a battery from a TOML file, of which each table describes an analysis.

        Parameters
        ----------
        path : path-like
            The file.
        universe : paceline.Universe
            The system.

        Returns
        -------
        Battery
            Not run yet.

        Raises
        ------
        UnsupportedError
            The file is not TOML, holds something else than tables, or names systems of its own.
        """
        found, groups = read_battery_file(path)
        if groups:
            raise UnsupportedError(
                f"{os.fspath(path)} names its own systems, as [groups.{next(iter(groups))}]: "
                "leave these tables out, or open it with paceline.analysis.replicas.Replicas"
            )
        return cls(found, universe)

    @classmethod
    def default(cls, universe: System, *, ligand: str | None = None) -> Self:
        """Make the battery that suits what a system holds.

        What it lacks something for is left out with a warning: `left_out` has the reasons. So it is
        with secondary structure where a trajectory has nothing but Cα atoms.

        Parameters
        ----------
        universe : paceline.Universe
            The system.
        ligand : str, optional
            Selection of the ligand, or "none"; by default residues that are ligands by name, size
            and number, with a warning where there are several, or others are like them.

        Returns
        -------
        Battery
            Not run yet.

        Raises
        ------
        SelectionError
            `ligand` finds no atoms.
        UnsupportedError
            It holds neither protein nor nucleic acid nor lipids nor water, or has too little of
            them for any analysis.
        """
        warned: list[str] = []
        with kept_warnings(warned):
            if ligand not in (None, "none"):
                _select("ligand", "atoms", ligand, universe)
            ligands = ligands_of(universe, ligand)
        descriptions, lacking = default_descriptions(universe, ligands)
        if not descriptions:
            raise UnsupportedError(
                "the system holds neither protein nor nucleic acid nor lipids nor water, as known "
                "by their names: describe the analyses in a file ('paceline run')"
            )
        made = cls(descriptions, universe, optional=True)
        made.ligands, made._warned = ligands, [*warned, *made._warned]
        made.warnings = [*made._warned]
        made._leave_out(lacking)
        return made

    def _leave_out(self, reasons: Mapping[str, str]) -> None:
        """Note analyses that are not made, and why."""
        for lacking in (self._whole[2], self.left_out):
            lacking.update(reasons)
        for name, reason in reasons.items():
            warn(f"left out of the battery: {name}: {reason}")

    def add_energies(self, *paths: str | os.PathLike, terms: Sequence[str] | None = None) -> Self:
        """Put energies that the simulation's program wrote beside the analyses.

        Parameters
        ----------
        *paths : path-like
            Files as `paceline.analysis.energies.read_energies` takes them, or patterns.
        terms : sequence of str, optional
            Terms, as `Energies.select` takes them; by default all.

        Returns
        -------
        Battery
            This one. Rows at other times than those of the frames are left out by the run.
        """
        files = [file for path in paths for file in files_named(os.fspath(path))]
        with kept_warnings(self._warned):
            self.energies = self._all_energies = read_energies(*files, terms=terms)
        self._of_energies = {"files": files} | ({} if terms is None else {"terms": [*terms]})
        self.warnings = [*self._warned]
        return self

    @property
    def shown(self) -> dict[str, Any]:
        """Analyses by name, and energies beside them."""
        return {**self.analyses, **({ENERGIES: self.energies} if self.energies else {})}

    @property
    def described(self) -> dict[str, Description]:
        """Descriptions of what is shown, by name; those of energies with their rows."""
        if self.energies is None:
            return dict(self.descriptions)
        of_energies = {**self._of_energies, "rows": self.energies.span}
        return {**self.descriptions, ENERGIES: of_energies}

    @property
    def every(self) -> dict[str, AnalysisBase]:
        """Analyses by name, with those that a run left out for lack of frames."""
        return self._whole[1]

    def suit(
        self,
        *,
        start: int | None = None,
        stop: int | None = None,
        step: int | None = None,
        frames: FramesChosen = None,
        **_: object,
    ) -> None:
        """Leave out analyses that frames of a run are too few for, where that is allowed.

        Parameters
        ----------
        start, stop, step, frames : optional
            As for `paceline.run`, which has more options.
        """
        trajectory = self.universe.trajectory
        chosen = frames(trajectory) if callable(frames) else frames
        self._suit(len(choose_frames(trajectory.n_frames, start, stop, step, chosen)))

    def _suit(self, n_frames: int) -> None:
        """Leave out analyses that so many frames are too few for, where that is allowed."""
        descriptions, analyses, lacking = self._whole
        few = {
            name: f"{many(one.LEAST_FRAMES, 'frame')} are needed, found {n_frames}"
            for name, one in analyses.items()
            if self._optional and n_frames < one.LEAST_FRAMES
        }
        for name in few.keys() - self.left_out.keys():
            warn(f"left out of the battery: {name}: {few[name]}")
        self.left_out = lacking | few
        self.descriptions = {name: descriptions[name] for name in analyses if name not in few}
        self.analyses = {name: analyses[name] for name in self.descriptions}

    def run(self, *, unwrap: bool = True, **options: Unpack[RunOptions]) -> Self:
        """Run all analyses in one pass over the frames, or in as many as their stages need.

        Parameters
        ----------
        unwrap : bool
            First make molecules whole of the atoms of analyses that need it, where the topology has
            their bonds and frames have a cell.
        **options
            As for `paceline.run`; but a `fit` among `transforms` is for analyses that need it
            alone, in a pass of their own.

        Returns
        -------
        Battery
            This one, with results.
        """
        self.suit(**options)
        self.warnings = [*self._warned]
        analyses = list(self.analyses.values())
        with kept_warnings(self.warnings):
            given = suited(analyses, options.get("transforms", ()), unwrap=unwrap)
            options["transforms"] = given  # type: ignore[typeddict-item]
            run(analyses, **options)
            if self.energies is not None:
                self.energies = _of_frames(self._all_energies, analyses[0])
        return self

    @property
    def timings(self) -> Timings:
        """Timings of the last run."""
        return next(iter(self.analyses.values())).timings

    @property
    def damaged(self) -> list[tuple[int, str]]:
        """Frames that the last run left out, and why."""
        return next(iter(self.analyses.values())).damaged

    def to_toml(self) -> str:
        """Describe the battery as `from_file` reads it.

        Returns
        -------
        str
            TOML.
        """
        energies = {ENERGIES: self._of_energies} if self.energies else {}
        return toml_of({**self.descriptions, **energies})

    def outputs(self, folder: str | os.PathLike) -> list[Path]:
        """List the files that `save` may write, before the run.

        Parameters
        ----------
        folder : path-like
            As for `save`.

        Returns
        -------
        list of Path
            Names of tables and of arrays, of which `save` writes one for each analysis.
        """
        analyses = self.every | self.shown
        names = ["index.html", "timings.html", "battery.toml"]
        names += [f"{name}{ending}" for name in analyses for ending in (".csv", ".npz", ".svg")]
        for name, analysis in analyses.items():
            for further in analysis.FURTHER_TABLES:
                names += [f"{name}-{further}.csv", f"{name}-{further}.svg"]
        return [Path(folder) / name for name in names]

    def summary(self) -> list[str]:
        """Describe the results of each analysis in a sentence or a few.

        Returns
        -------
        list of str
            As those of `Results.summary`, behind the name of the analysis.
        """
        found = ((name, one.results.summary()) for name, one in self.shown.items())
        return [f"{name}: {sentence}" for name, sentences in found for sentence in sentences]

    def save(
        self, folder: str | os.PathLike, *, overwrite: bool = False, **options: object
    ) -> None:
        """Write tables, figures, and a page of all results: all of these files, or none.

        Parameters
        ----------
        folder : path-like
            Made if it does not exist. Of each analysis it gets NAME.csv and NAME.svg, or NAME.npz
            where the results are no table, or hold more than that; of further tables, as of the
            most frequent hydrogen bonds, NAME-frequent.csv and NAME-frequent.svg; index.html,
            timings.html, and battery.toml, which repeats it.
        overwrite : bool
            Replace existing files, and delete those of an earlier battery of these names that this
            one does not have.
        **options
            `figsize`, `time_unit`, `stats` and `style` of all figures, as for `Results.plot`.
            Figures of the page keep their size.

        Raises
        ------
        FileExistsError
            One of the files exists and is not to be overwritten.
        UnsupportedError
            matplotlib, which draws the figures, is not installed, or there is no such style.
        ValueError
            An option makes no sense.
        """
        chosen = FigureOptions(**options)  # type: ignore[arg-type]
        check_style(chosen.style)
        folder = Path(folder)
        with saved_together() as saving:
            if overwrite:
                saving.replace([*self.outputs(folder), *_summaries_in(folder)])
            further = {name: further_results(one) for name, one in self.shown.items()}
            saved = self._save_tables(folder, further, overwrite=overwrite)
            for name, analysis in self.shown.items():
                drawn = {name: analysis.results} if analysis.results.has_table else {}
                drawn |= {f"{name}-{key}": results for key, results in further[name].items()}
                for stem, results in drawn.items():
                    results.save_figure(
                        folder / f"{stem}.svg", overwrite=overwrite, **results.options_of(chosen)
                    )
            with new_file(folder / "battery.toml", overwrite=overwrite) as file:
                file.write(self.to_toml())
            self.timings.report(folder / "timings.html", overwrite=overwrite)
            with new_file(folder / "index.html", overwrite=overwrite) as file:
                file.write(page_of_battery(self, saved, further, chosen))

    def save_tables(self, folder: str | os.PathLike, *, overwrite: bool = False) -> dict[str, str]:
        """Write the table of each analysis, or its arrays.

        Parameters
        ----------
        folder : path-like
            Made if it does not exist.
        overwrite : bool
            Replace existing files.

        Returns
        -------
        dict of str to str
            Names of the files: NAME.csv, or NAME.npz where the results are no table.

        Raises
        ------
        FileExistsError
            One of the files exists and is not to be overwritten.
        """
        further = {name: further_results(one) for name, one in self.shown.items()}
        return self._save_tables(Path(folder), further, overwrite=overwrite)

    def _save_tables(
        self, folder: Path, further: Mapping[str, Mapping[str, Results]], *, overwrite: bool
    ) -> dict[str, str]:
        """Write tables and `further` ones of each analysis; return the names of the files."""
        folder.mkdir(parents=True, exist_ok=True)
        saved = {}
        for name, analysis in self.shown.items():
            table = analysis.results.table
            saved[name] = f"{name}.npz" if table is None else f"{name}.csv"
            analysis.results.save(folder / saved[name], overwrite=overwrite)
            if table is not None and table.partial:
                analysis.results.save(folder / f"{name}.npz", overwrite=overwrite)
            for key, results in further[name].items():
                results.save(folder / f"{name}-{key}.csv", overwrite=overwrite)
        return saved


def _files_and_terms(described: Description) -> tuple[list[str], list[str] | None]:
    """Read the table of energies: a name or a list of names each."""
    given = {key: [one] if isinstance(one, str) else one for key, one in described.items()}
    texts = [text for one in given.values() for text in (one if isinstance(one, list) else [None])]
    if not {"files"} <= given.keys() <= {"files", "terms"} or {*map(type, texts)} != {str}:
        raise UnsupportedError(
            f"[{ENERGIES}]: expected files, and perhaps terms, as lists of names, found "
            f"{dict(described)}"
        )
    return given["files"], given.get("terms")


def _of_frames(energies: Energies, analysis: AnalysisBase) -> Energies:
    """Leave out energies before and after the frames of a run, where times of both are known."""
    times = analysis.times[np.isfinite(analysis.times)]
    if not analysis.times_known or len(times) == 0 or energies.axis_title != "time (ps)":
        warn("energies: times are not known, and all rows were taken")
        return energies
    try:
        return energies.between(times.min(), times.max())
    except UnsupportedError:
        warn(
            f"energies: {energies.span}, are at other times than the frames, {times.min():g} to "
            f"{times.max():g} ps: all rows were taken"
        )
        return energies


def _summaries_in(folder: Path) -> list[Path]:
    """List the files of all groups together in the folder of a battery that had groups."""
    try:
        found = tomllib.loads((folder / "battery.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    profiles = [f"{name}-profile{ending}" for name in found for ending in (".csv", ".svg")]
    return [folder / name for name in (*TABLES, *profiles)] if "groups" in found else []


def _make(name: str, description: Description, universe: System) -> AnalysisBase:
    """Make the analysis of one table."""
    if Path(name).name != name or name in ("", ".", ".."):
        raise UnsupportedError(f"[{name}]: the name is that of files, and cannot be so")
    given = dict(description)
    cls = class_of(given.pop("analysis", name), f"[{name}]: ")
    known = inspect.signature(cls).parameters
    first = next(iter(known))
    atoms = {*ATOMS, *UPDATING} | ({first} if first == "select" else set())
    has_select = first in atoms and (first == "select" or "select" not in known)
    shown = {first: "select"} if has_select and first not in given else {}
    if shown:
        given[first] = given.pop("select", "all")
    given.setdefault(first, universe)
    unknown = sorted(given.keys() - known.keys())
    if unknown:
        raise UnsupportedError(
            f"[{name}]: {cls.__name__} has no parameter {', '.join(unknown)}; it has "
            f"{', '.join(shown.get(key, key) for key in known if key not in ('verbose', 'kwargs'))}"
        )
    lacking = [
        key
        for key, one in known.items()
        if one.default is one.empty and one.kind == one.POSITIONAL_OR_KEYWORD and key not in given
    ]
    if lacking:
        raise UnsupportedError(f"[{name}]: {cls.__name__} needs {joined(lacking)}, too")
    try:
        for key, value in given.items():
            if key in atoms:
                given[key] = _select(f"[{name}]: {shown.get(key, key)}", key, value, universe)
        return cls(**given)
    except Exception as error:
        if not f"{error}".startswith(f"[{name}]"):
            error.add_note(f"in [{name}] of the battery")
        raise


def _select(where: str, key: str, given: object, universe: System) -> object:
    """Make groups of selections, and of lists of them; what is a group already stays so."""
    if isinstance(given, list):
        return tuple(_select(where, key, one, universe) for one in given)
    if not isinstance(given, str):
        return given
    atoms = select_atoms(universe, [given], where, updating=key in UPDATING)
    if len(atoms) == 0 and key not in UPDATING:
        lack = lack_of_bonds(universe, given)
        raise SelectionError(f"{where}: no atoms match {given!r}{lack}")
    return atoms
