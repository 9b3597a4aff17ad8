"""Battery: several analyses of one system, described by a file and run in one pass."""

import copy
import os
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, Unpack

import numpy as np

from paceline._util.files import check_local, is_stream, new_file, saved_together
from paceline.analysis.base import AnalysisBase
from paceline.analysis.battery_definitions import (
    default_descriptions,
    ligands_of,
    read_battery_file,
    toml_of,
)
from paceline.analysis.battery_page import page_of_battery
from paceline.analysis.convergence_of_table_series import equilibrated_start
from paceline.analysis.described_analyses import make_analysis, select_described
from paceline.analysis.energies import Energies, read_energies
from paceline.analysis.needed_transforms import needed_transforms
from paceline.analysis.results import Results, further_results
from paceline.analysis.saved_table_format import METADATA
from paceline.contract.analysis import is_updated
from paceline.contract.analysis_declaration import Description
from paceline.contract.figure_options import FigureOptions
from paceline.contract.plan import choose_frames
from paceline.contract.system_interface import NoFramesYet, System, attribute_of, offline
from paceline.errors import PacelineError, UnsupportedError, kept_warnings, warn
from paceline.performance.analysis_results_page import PageState
from paceline.performance.figure_style_and_elements import check_style
from paceline.performance.number_format import many
from paceline.runner import FramesChosen, RunOptions, run, run_stream
from paceline.timing import Timings
from paceline.trajectory.open import files_named
from paceline.trajectory.write_stream_to_file import TeeOptions

#: Name of the energies among the analyses, in battery files and in filenames.
ENERGIES = "energies"
#: Files that `save` writes for every battery.
COMMON_FILES = ("index.html", "timings.html", "battery.toml")
#: Files with the means of replicas, the means of groups of replicas, and the differences of these
#: groups from the first group.
TABLES = ("replicas.csv", "means.csv", "differences.csv")


class Battery:
    """Several analyses of one system, with tables, figures, and one page with all results.

    Parameters
    ----------
    descriptions : mapping of str to mapping
        Description of each analysis, by the name of its files. A description contains `analysis`,
        which is a short name ("rmsd") or module and class in `paceline.analysis` ("rms.RMSD"). If
        `analysis` is missing, the name of the files must be the short name. A description also
        contains parameters of the analysis. Parameters of type AtomGroup are selections. `select`
        chooses the atoms if the class has no such parameter. `energies` contains `files`, and
        optionally `terms`, as for `add_energies`.
    universe : paceline.Universe
        The system.
    optional : bool
        Leave out an analysis, with a warning, if the system lacks data for it or if a run has too
        few frames. By default this is an error.

    Attributes
    ----------
    analyses : dict of str to AnalysisBase
        The analyses by name.
    descriptions : dict
        Descriptions of the analyses that were not left out.
    energies : paceline.analysis.energies.Energies or None
        Energies of the simulation; after the run, only between the first and the last time of the
        analysed frames.
    left_out : dict of str to str
        Reasons why analyses were left out, by name.
    ligands : list of str
        Selections of the ligands that `default` found, or that its argument named.
    warnings : list of str
        Warnings from opening the files, from the analyses and from their last run; the page shows
        them, too.

    Raises
    ------
    SelectionError
        A selection finds no atoms.
    UnsupportedError
        An analysis or a parameter is unknown; the message lists the known ones. Or all analyses
        were left out.

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
                "the battery has no analyses: describe each analysis in a table, such as [rmsd]"
            )
        self.universe = universe
        self.analyses: dict[str, AnalysisBase] = {}
        self.left_out: dict[str, str] = {}
        self._warned: list[str] = []
        later: list[str] = []

        def make(name: str) -> None:
            try:
                made = make_analysis(name, descriptions[name], universe)
                if optional:
                    made.check_atoms()
                self.analyses[name] = made
            except NoFramesYet:
                later.append(name)
            except (NoDataError, PacelineError, IndexError, ValueError) as error:
                if not optional:
                    raise
                self.left_out[name] = str(error)

        with kept_warnings(self._warned):
            # Raise errors about the topology first, before connecting to a running simulation.
            with offline(universe):
                for name in descriptions:
                    make(name)
            if later:
                universe.trajectory  # noqa: B018  # raises an error of the connection, if any
            for name in later:
                make(name)
        self.analyses = {
            name: self.analyses[name] for name in descriptions if name in self.analyses
        }
        self.warnings = self._warnings_before()
        reasons = [f"{name}: {reason}" for name, reason in self.left_out.items()]
        if not self.analyses:
            raise UnsupportedError("no analysis of the battery is possible:\n" + "\n".join(reasons))
        for reason in reasons:
            warn(f"left out of the battery: {reason}")
        self.descriptions = {name: descriptions[name] for name in self.analyses}
        self._whole = self.descriptions, self.analyses, self.left_out
        #: All analyses, also in the batteries that `_part` makes from some of them.
        self._all = self.analyses
        self._during: Self | None = None
        self._optional = optional
        n_frames = sys.maxsize  # the number of frames of a stream is unknown
        with suppress(NoFramesYet), offline(universe):
            if not is_stream(universe.trajectory.filename):
                n_frames = universe.trajectory.n_frames
        self._suit(n_frames)
        self.ligands: list[str] = []
        self.energies: Energies | None = None
        self._of_energies: dict[str, Any] = {}
        if of_energies is not None:
            files, terms = _files_and_terms(of_energies)
            self.add_energies(*files, terms=terms)

    @classmethod
    def from_file(cls, path: str | os.PathLike, universe: System) -> Self:
        """Make a battery from a TOML file with one table per analysis.

        Parameters
        ----------
        path : path-like
            The file.
        universe : paceline.Universe
            The system.

        Returns
        -------
        Battery
            Battery that has not been run.

        Raises
        ------
        UnsupportedError
            The file is not TOML, contains values outside tables, or names the systems to analyse.
        """
        found, groups = read_battery_file(path)
        if groups:
            raise UnsupportedError(
                f"{os.fspath(path)} names its own systems, as [groups.{next(iter(groups))}]: "
                "remove these tables, or open the file with paceline.analysis.replicas.Replicas"
            )
        return cls(found, universe)

    @classmethod
    def default(cls, universe: System, *, ligand: str | None = None) -> Self:
        """Make the default battery for the kinds of molecules in a system.

        Analyses for which the system lacks data are left out with a warning, and `left_out`
        contains the reasons. For example, secondary structure is left out if a trajectory has only
        Cα atoms.

        Parameters
        ----------
        universe : paceline.Universe
            The system.
        ligand : str, optional
            Selection of the ligand, or "none". By default ligands are residues found by name, size
            and number. A warning reports if there are several ligands, or further similar residues.

        Returns
        -------
        Battery
            Battery that has not been run.

        Raises
        ------
        SelectionError
            `ligand` finds no atoms.
        UnsupportedError
            The system contains no protein, nucleic acid, lipids or water, or not enough of them
            for any analysis.
        """
        warned: list[str] = []
        with kept_warnings(warned):
            if ligand not in (None, "none"):
                select_described("ligand", "atoms", ligand, universe)
            ligands = ligands_of(universe, ligand)
        descriptions, lacking = default_descriptions(universe, ligands)
        if not descriptions:
            raise UnsupportedError(
                "residue names show no protein, nucleic acid, lipids or water in the system: "
                "describe the analyses in a file ('paceline run')"
            )
        made = cls(descriptions, universe, optional=True)
        made.ligands, made._warned = ligands, [*warned, *made._warned]
        made.warnings = made._warnings_before()
        made._leave_out(lacking)
        return made

    def _leave_out(self, reasons: Mapping[str, str]) -> None:
        """Record analyses that are not made, with the reasons, and warn of them."""
        for lacking in (self._whole[2], self.left_out):
            lacking.update(reasons)
        for name, reason in reasons.items():
            warn(f"left out of the battery: {name}: {reason}")

    def add_energies(self, *paths: str | os.PathLike, terms: Sequence[str] | None = None) -> Self:
        """Add energies that the simulation program wrote.

        Parameters
        ----------
        *paths : path-like
            Files or glob patterns, as for `paceline.analysis.energies.read_energies`.
        terms : sequence of str, optional
            Terms, as for `Energies.select`; by default all.

        Returns
        -------
        Battery
            This battery. Its run drops energies before the first and after the last analysed frame.
        """
        files = [file for path in paths for file in files_named(os.fspath(path))]
        with kept_warnings(self._warned):
            self.energies = self._all_energies = read_energies(*files, terms=terms)
        self._of_energies = {"files": files} | ({} if terms is None else {"terms": [*terms]})
        self.warnings = self._warnings_before()
        return self

    def _warnings_before(self) -> list[str]:
        """Return the warnings of opening the system, making analyses, and reading energies."""
        opening = attribute_of(self.universe, "opening_warnings") or []
        return [*dict.fromkeys([*opening, *self._warned])]

    @property
    def shown(self) -> dict[str, Any]:
        """Analyses by name, including the energies."""
        return {**self.analyses, **({ENERGIES: self.energies} if self.energies else {})}

    @property
    def described(self) -> dict[str, Description]:
        """Descriptions of analyses and energies, by name; for energies, with their time range."""
        if self.energies is None:
            return dict(self.descriptions)
        of_energies = {**self._of_energies, "rows": self.energies.span}
        return {**self.descriptions, ENERGIES: of_energies}

    @property
    def every(self) -> dict[str, AnalysisBase]:
        """Analyses by name, including those that a run left out because it had too few frames."""
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
        """Leave out analyses for which the run has too few frames, if `optional` is true.

        Parameters
        ----------
        start, stop, step, frames : optional
            Frames of the run, as for `paceline.run`.
        """
        trajectory = self.universe.trajectory
        chosen = frames(trajectory) if callable(frames) else frames
        self._suit(len(choose_frames(trajectory.n_frames, start, stop, step, chosen)))

    def _suit(self, n_frames: int) -> None:
        """Leave out analyses that need more than `n_frames` frames, if `optional` is true."""
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

    def run(
        self, *, unwrap: bool = True, equilibrated: bool = False, **options: Unpack[RunOptions]
    ) -> Self:
        """Run all analyses in as few passes over the frames as their stages allow.

        Parameters
        ----------
        unwrap : bool
            First make molecules whole for analyses that need it, if the topology has bonds and
            the frames have a cell.
        equilibrated : bool
            After the run, run again from the first frame at which all time series, including the
            energies, are equilibrated.
        **options
            Options of `paceline.run`. A `fit` among the `transforms` applies only to analyses
            that need it, in a separate pass.

        Returns
        -------
        Battery
            This battery, with results.

        Raises
        ------
        UnsupportedError
            Some series drift, so that no frames are equilibrated.
        """
        if equilibrated:
            return self._run_equilibrated(unwrap=unwrap, **options)
        if is_stream(self.universe.trajectory.filename):
            run_stream(self, unwrap=unwrap, **options)  # type: ignore[call-arg]
            return self
        self.suit(**options)
        self.warnings = self._warnings_before()
        analyses = list(self.analyses.values())
        with kept_warnings(self.warnings):
            given = needed_transforms(
                analyses, options.get("transforms", ()), [*self._all.values()], unwrap=unwrap
            )
            options["transforms"] = given  # type: ignore[typeddict-item]
            run(analyses, **options)
            self.limit_energies()
        return self

    def limit_energies(self) -> None:
        """Leave out energies before the first and after the last frame of the last run."""
        if self.energies is not None:
            one = next(iter(self.analyses.values()))
            self.energies = _energies_in_frames(self._all_energies, one)

    def _run_equilibrated(self, **options: Any) -> Self:
        """Run over the chosen frames, then again from the frame at which all are equilibrated."""
        if options.get("checkpoint") is not None:
            raise UnsupportedError("equilibrated: two runs follow each other, without a checkpoint")
        self.run(**options)
        one = next(iter(self.analyses.values()))
        tables = {name: shown.results.table for name, shown in self.shown.items()}
        start, why = equilibrated_start(tables, frame_times=self.frame_times)
        if start:
            frames = one.frames[start:]
            for name in ("start", "stop", "step", *TeeOptions.__annotations__):
                options.pop(name, None)
            self.run(**{**options, "frames": frames})
            self.warnings.append(f"{start:,} frames are left out: {why}")
        return self

    @property
    def frame_times(self) -> dict[str, np.ndarray]:
        """Times of the frames of the last run, ps, by the name of each table without frames.

        The times are empty if they are unknown.
        """
        one = next(iter(self.analyses.values()))
        return {ENERGIES: one.times if one.times_known else np.empty(0)}

    def during(self) -> Self:
        """Return a battery of those analyses that have results while a trajectory grows.

        Returns
        -------
        Battery
            Battery with the same analyses, except for those that `paceline.live` runs at the end.
        """
        if self._during is None:
            self._during = self._part(updated=True)
        return self._during

    def _part(self, *, updated: bool) -> Self:
        """Return a battery of the analyses for which `is_updated` equals `updated`."""
        descriptions, analyses, lacking = self._whole
        others = {name for name, one in analyses.items() if is_updated(one) != updated}
        some = copy.copy(self)
        some.left_out = lacking | dict.fromkeys(others, "it needs the complete trajectory")
        some.analyses = {name: one for name, one in analyses.items() if name not in others}
        some.descriptions = {name: descriptions[name] for name in some.analyses}
        some._whole = some.descriptions, some.analyses, some.left_out
        return some

    def run_during(self, **options: Unpack[RunOptions]) -> Mapping[str, AnalysisBase]:
        """Run the analyses of `during`, for `paceline.live`.

        Parameters
        ----------
        **options
            Options of `run`.

        Returns
        -------
        dict of str to AnalysisBase
            The analyses that were run, by name.
        """
        return self.during().run(**options).analyses

    def run_after(self, **options: Unpack[RunOptions]) -> Mapping[str, AnalysisBase]:
        """Run the analyses that `during` lacks on the complete trajectory, for `paceline.live`.

        Parameters
        ----------
        **options
            Options of `run`.

        Returns
        -------
        dict of str to AnalysisBase
            All analyses by name.
        """
        self.suit(**options)
        during, after = self.during(), self._part(updated=False)
        if after.analyses:
            after.run(**options)
        self.energies = during.energies
        self.warnings = list(dict.fromkeys([*during.warnings, *after.warnings]))
        return self.analyses

    @property
    def timings(self) -> Timings:
        """Timings of the last run."""
        return next(iter(self.analyses.values())).timings

    @property
    def damaged(self) -> list[tuple[int, str]]:
        """For each frame that the last run left out, its number and the reason."""
        return next(iter(self.analyses.values())).damaged

    def to_toml(self) -> str:
        """Format the battery as a text that `from_file` reads.

        Returns
        -------
        str
            Text in TOML.
        """
        energies = {ENERGIES: self._of_energies} if self.energies else {}
        return toml_of({**self.descriptions, **energies})

    def outputs(self, folder: str | os.PathLike) -> list[Path]:
        """List the files that `save` may write; possible before the run.

        Parameters
        ----------
        folder : path-like
            Folder, as for `save`.

        Returns
        -------
        list of Path
            Files of all analyses, including both NAME.csv and NAME.npz, of which `save` may write
            only one.
        """
        analyses = self.every | self.shown
        names = [*COMMON_FILES]
        names += [f"{name}{ending}" for name in analyses for ending in (".csv", ".npz", ".svg")]
        for name, analysis in analyses.items():
            for further in analysis.FURTHER_TABLES:
                names += [f"{name}-{further}.csv", f"{name}-{further}.svg"]
        return [Path(folder) / name for name in names]

    def summary(self) -> list[str]:
        """Describe the results of each analysis in one or a few sentences.

        Returns
        -------
        list of str
            Sentences of `Results.summary`, each after the name of its analysis.
        """
        found = ((name, one.results.summary()) for name, one in self.shown.items())
        return [f"{name}: {sentence}" for name, sentences in found for sentence in sentences]

    def save(
        self,
        folder: str | os.PathLike,
        *,
        overwrite: bool = False,
        state: PageState | None = None,
        title: str | None = None,
        **options: object,
    ) -> None:
        """Write tables, figures, and a page with all results: either all files or none.

        Parameters
        ----------
        folder : path-like
            Folder, made if it does not exist. `save` writes NAME.csv and NAME.svg for each
            analysis. It also writes NAME.npz if a table cannot contain all results. A further
            table, such as the most frequent hydrogen bonds, becomes NAME-frequent.csv and
            NAME-frequent.svg. Other files are index.html, timings.html, and battery.toml, from
            which the battery can be run again.
        overwrite : bool
            Replace existing files, and delete files of an earlier battery that this battery does
            not write.
        state : paceline.performance.analysis_results_page.PageState, optional
            State of a simulation that is still running. The page shows it, and reloads itself.
        title : str, optional
            Title of the page; by default the name of the trajectory file.
        **options
            `figsize`, `time_unit`, `stats` and `style` of all figures, as for `Results.plot`.
            Figures on the page keep their size.

        Raises
        ------
        FileExistsError
            One of the files exists, and `overwrite` is False.
        UnsupportedError
            matplotlib is not installed, or the style does not exist.
        ValueError
            An option is invalid.
        """
        chosen = FigureOptions(**options)  # type: ignore[arg-type]
        check_style(chosen.style)
        folder = Path(folder)
        with saved_together() as saving:
            if overwrite:
                saving.replace([*self.outputs(folder), *_summaries_in(folder), folder / METADATA])
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
                file.write(page_of_battery(self, saved, further, chosen, state, title))

    def save_tables(self, folder: str | os.PathLike, *, overwrite: bool = False) -> dict[str, str]:
        """Write a table of each analysis, or its arrays if no table is possible.

        Parameters
        ----------
        folder : path-like
            Folder, made if it does not exist.
        overwrite : bool
            Replace existing files.

        Returns
        -------
        dict of str to str
            Filename for each analysis: NAME.csv, or NAME.npz if the results are not a table.

        Raises
        ------
        FileExistsError
            One of the files exists, and `overwrite` is False.
        """
        further = {name: further_results(one) for name, one in self.shown.items()}
        return self._save_tables(Path(folder), further, overwrite=overwrite)

    def _save_tables(
        self, folder: Path, further: Mapping[str, Mapping[str, Results]], *, overwrite: bool
    ) -> dict[str, str]:
        """Write tables and `further` tables of each analysis; return the filenames."""
        check_local(folder)
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
    """Return files and terms of `energies` in a battery; both are given as a name or a list."""
    given = {key: [one] if isinstance(one, str) else one for key, one in described.items()}
    texts = [text for one in given.values() for text in (one if isinstance(one, list) else [None])]
    if not {"files"} <= given.keys() <= {"files", "terms"} or {*map(type, texts)} != {str}:
        raise UnsupportedError(
            f"[{ENERGIES}]: expected files and optionally terms, as lists of names, found "
            f"{dict(described)}"
        )
    return given["files"], given.get("terms")


def _energies_in_frames(energies: Energies, analysis: AnalysisBase) -> Energies:
    """Drop energies before the first and after the last frame, if times of both are known."""
    times = analysis.times[np.isfinite(analysis.times)]
    if not analysis.times_known or len(times) == 0 or energies.axis_title != "time (ps)":
        warn("energies: times are unknown, so all rows are used")
        return energies
    try:
        return energies.between(times.min(), times.max())
    except UnsupportedError:
        warn(
            f"energies: {energies.span}, do not overlap with the frames, {times.min():g} to "
            f"{times.max():g} ps: all rows are used"
        )
        return energies


def _summaries_in(folder: Path) -> list[Path]:
    """Return the files on groups of replicas that an earlier run may have written to a folder.

    These are tables and profiles. The list is empty if the folder's `battery.toml` has no groups,
    or cannot be read.
    """
    try:
        found = tomllib.loads((folder / "battery.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    profiles = [f"{name}-profile{ending}" for name in found for ending in (".csv", ".svg")]
    return [folder / name for name in (*TABLES, *profiles)] if "groups" in found else []


def check_writes_nothing(analyses: Iterable[AnalysisBase]) -> None:
    """Raise `UnsupportedError` if an analysis writes a file, such as a trajectory."""
    for one in analyses:
        files = [path for path in (*one.outputs, vars(one).get("filename")) if path is not None]
        if files:
            raise UnsupportedError(f"{one.name} writes {files[0]}: only tables are computed here")
