"""Replicas of a system in groups: means between replicas, and differences between groups."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np

from paceline._util.files import new_file, saved_together
from paceline._util.machine_and_software import software
from paceline.analysis.battery import COMMON_FILES, ENERGIES, TABLES
from paceline.analysis.convergence_of_table_series import (
    SeriesVerdict,
    equilibrated_mean,
    equilibrated_start,
    verdicts_of_replicas,
)
from paceline.analysis.duplicate_replicas import (
    Match,
    copies_by_content,
    copies_by_values,
    copy_of,
    files_of,
)
from paceline.analysis.needed_transforms import needed_transforms
from paceline.analysis.replica_figures import (
    Profile,
    differences,
    draw_frequent,
    draw_maps,
    draw_points,
    draw_profile,
    draw_series,
    profile_of_replicas,
)
from paceline.analysis.replica_page import (
    answers_of_groups,
    lines_of,
    lines_of_profile,
    page_of_replicas,
    remarks_of,
)
from paceline.analysis.results import Results
from paceline.analysis.saved_table_format import COMMAND, IN_PYTHON, METADATA, is_of_command
from paceline.analysis.table import Table
from paceline.analysis.uncertainty import (
    GroupDifference,
    ReplicaMean,
    difference_of_groups,
    mean_of_replicas,
)
from paceline.contract.figure_options import FigureOptions
from paceline.contract.system_interface import attribute_of
from paceline.errors import UnsupportedError, kept_warnings, warn
from paceline.performance.figure_style_and_elements import (
    FIGURE_STYLE,
    check_style,
    styled,
    write_figure,
)
from paceline.performance.number_format import joined
from paceline.runner import RunOptions, run
from paceline.timing import Timings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from paceline.analysis.battery import Battery

#: Facts about the files of a replica, and the beginnings of their names in the shared tables.
OF_FILES = {
    "topology sha256": "topology sha256 of ",
    "trajectory": "",
    "fingerprint": "fingerprint of ",
}
#: Mean and difference for series that have none over equilibrated frames.
NO_MEAN = mean_of_replicas([np.nan])
NO_DIFFERENCE = difference_of_groups(NO_MEAN, NO_MEAN)
#: Columns of the `TABLES`; numbers have the unit in the title of the series.
REPLICA_COLUMNS = (
    *("analysis", "series", "group", "replica", "frames", "mean"),
    *("statistical inefficiency", "95 % interval within", "converged"),
)
GROUP_COLUMNS = (
    *("analysis", "series", "group", "replicas", "mean"),
    *("standard deviation between", "95 % interval between", "split-R̂", "sampling"),
    *("mean, equilibrated", "95 % interval between, equilibrated"),
)
DIFFERENCE_COLUMNS = (
    *("analysis", "series", "groups", "difference", "95 % interval", "degrees of freedom"),
    *("p", "detectable with 80 % power"),
    *("difference, equilibrated", "95 % interval, equilibrated", "p, equilibrated"),
)


class Replicas:
    """Batteries of replicas in groups, such as wild type and mutant, in one run.

    The mean of a group is the mean of the means of its replicas, with equal weights. It is computed
    from all frames, and again from the equilibrated frames. Intervals of means are computed by
    Student's t between the replicas of a group; intervals of differences by Welch's t. Groups may
    differ in the number of atoms; profiles are compared at equal residue numbers, chain by chain.

    Parameters
    ----------
    groups : mapping of str to sequence of Battery
        Replicas of each group, by the name of the group, which is also the name of a folder.

    Attributes
    ----------
    warnings : list of str
        Warnings from opening the files, from the analyses and from their last run; the page shows
        them, too.

    Raises
    ------
    UnsupportedError
        There are no replicas, or a name is not a valid folder name, or is the name of a result
        file.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD, DCD2
    >>> from paceline.analysis.battery import Battery
    >>> asked = {"gyration": {"select": "name CA"}}
    >>> adk = [Battery(asked, paceline.Universe(PSF, path)) for path in (DCD, DCD2)]
    >>> replicas = Replicas({"adk": adk}).run(step=10)
    >>> print(replicas.means["gyration"]["Rg (Å)"]["adk"])
    18.08 ± 0.71 (95 % between 2 replicas)
    """

    def __init__(self, groups: Mapping[str, Sequence["Battery"]]):
        if not groups or not all(groups.values()):
            raise UnsupportedError("expected groups of at least one replica each")
        for name in groups:
            if Path(name).name != name or name in ("", ".", ".."):
                raise UnsupportedError(f"group {name!r}: the name is not valid for a folder")
        # Replicas of each group by number from 1. `_whole` contains all replicas, and `_kept` those
        # that the last run did not leave out.
        self._whole = {name: dict(enumerate(some, start=1)) for name, some in groups.items()}
        self._kept = {name: dict(some) for name, some in self._whole.items()}
        self.warnings: list[str] = []
        self._notes: list[str] = []
        self._means: dict[str, dict[str, dict[str, ReplicaMean]]] = {}
        self._verdicts: dict[str, dict[str, dict[str, SeriesVerdict]]] = {}
        self._equilibrated: dict[str, dict[str, dict[str, ReplicaMean]]] = {}
        for name in self.groups:
            if name in self._shared_files:
                raise UnsupportedError(f"group {name!r}: a file of results has this name")

    @classmethod
    def from_file(cls, path: str | os.PathLike) -> Self:
        """Open the groups of a TOML file, and make the battery of each replica.

        Parameters
        ----------
        path : path-like
            TOML file with tables of analyses, as for `Battery.from_file`, and for each group a
            table [groups.NAME] with `topology` and `trajectories`. The trajectories are a pattern
            or a list. An item of the list is the file of one replica, or a list of its files in
            order.

        Returns
        -------
        Replicas
            Replicas that have not been run.

        Raises
        ------
        UnsupportedError
            The file is not TOML, has no groups, or contains energies.
        """
        from paceline.analysis.battery import Battery
        from paceline.analysis.battery_definitions import read_battery_file
        from paceline.universe import Universe

        asked, groups = read_battery_file(path)
        if not groups:
            raise UnsupportedError(f"{os.fspath(path)}: expected tables [groups.NAME], found none")
        if ENERGIES in asked:
            raise UnsupportedError(
                f"{os.fspath(path)}: [{ENERGIES}] would be those of every replica: in Python, "
                "add_energies of the battery of each replica adds its own"
            )
        return cls(
            {
                name: [Battery(asked, Universe(one.topology, *files)) for files in one.replicas]
                for name, one in groups.items()
            }
        )

    @property
    def groups(self) -> dict[str, list["Battery"]]:
        """Replicas of each group, without those that the last run left out."""
        return {name: [*some.values()] for name, some in self._kept.items()}

    @property
    def numbers(self) -> dict[str, list[int]]:
        """Numbers of the replicas in `groups`, counted from 1 among all replicas of each group."""
        return {name: [*some] for name, some in self._kept.items()}

    @property
    def batteries(self) -> list["Battery"]:
        """All replicas of `groups`, group by group."""
        return list(chain.from_iterable(self.groups.values()))

    @property
    def names(self) -> list[str]:
        """Names of the analyses in any group, and of the energies."""
        return list(dict.fromkeys(name for one in self.batteries for name in one.shown))

    @property
    def analyses(self) -> dict[tuple[str, int, str], Any]:
        """All analyses, by group, number of the replica from 1, and name."""
        return {
            (group, k, name): analysis
            for group, batteries in self._kept.items()
            for k, battery in batteries.items()
            for name, analysis in battery.analyses.items()
        }

    @property
    def shown(self) -> dict[tuple[str, int, str], Any]:
        """All analyses and energies, by group, number of the replica from 1, and name."""
        return {
            (group, k, name): one
            for group, batteries in self._kept.items()
            for k, battery in batteries.items()
            for name, one in battery.shown.items()
        }

    def run(
        self, *, unwrap: bool = True, equilibrated: bool = False, **options: Unpack[RunOptions]
    ) -> Self:
        """Run all analyses of all replicas; workers do not wait between replicas.

        Parameters
        ----------
        unwrap : bool
            As for `Battery.run`.
        equilibrated : bool
            After a run over all frames, run again. The second run leaves out the first frames of
            each replica, until all time series of the replica are equilibrated.
        **options
            Options of `paceline.run`; `frames` may be a function of a trajectory.

        Returns
        -------
        Replicas
            This object, with results.

        Raises
        ------
        UnsupportedError
            A trajectory is a copy of a trajectory of another group. Or, if `equilibrated`, a series
            of a replica drifts, or there is a checkpoint.
        """
        if equilibrated and options.get("checkpoint") is not None:
            raise UnsupportedError("equilibrated: two runs follow each other, without a checkpoint")
        self._kept = {name: dict(batteries) for name, batteries in self._whole.items()}
        self._notes = []
        named = self._named.items()
        described = {k: (of, one.to_toml(), one.universe) for k, ((of, _), one) in named}
        self._leave_out(copies_by_content(described))
        self._run(unwrap=unwrap, **options)
        named = self._named.items()
        self._leave_out(
            copies_by_values({k: (of, _tables_of(one.analyses)) for k, ((of, _), one) in named})
        )
        if equilibrated and (starts := self._equilibrated_frames()):
            for name in ("start", "stop", "step"):
                options.pop(name, None)  # type: ignore[misc]
            options["frames"] = lambda trajectory: starts[id(trajectory)]
            self._run(unwrap=unwrap, **options)
        return self

    def _run(self, *, unwrap: bool, **options: Unpack[RunOptions]) -> None:
        """Run the analyses of the replicas that are not left out."""
        for one in self.batteries:
            one.suit(**options)
        self._means, self._verdicts, self._equilibrated = {}, {}, {}
        of_batteries = chain.from_iterable(one.warnings for one in self.batteries)
        self.warnings = list(dict.fromkeys([*of_batteries, *self._notes]))
        analyses = list(self.analyses.values())
        with kept_warnings(self.warnings):
            given = needed_transforms(
                analyses, options.get("transforms", ()), analyses, unwrap=unwrap
            )
            options["transforms"] = given  # type: ignore[typeddict-item]
            run(analyses, **options)
            for one in self.batteries:
                one.limit_energies()

    @property
    def _named(self) -> dict[str, tuple[tuple[str, int], "Battery"]]:
        """Group, number and battery of each replica, by its name with files."""
        found = {}
        for group, batteries in self._kept.items():
            for k, battery in batteries.items():
                files = ", ".join(files_of(battery.universe))
                found[f"replica {k} of {group} ({files or 'in memory'})"] = (group, k), battery
        return found

    def _leave_out(self, copies: Mapping[str, tuple[str, Match]]) -> None:
        """Leave out replicas that are copies, and issue a warning for each.

        `copies` contains, for the name of a copy, the name of the original and how they match.
        """
        named = self._named
        for name, known in copies.items():
            (group, k), _ = named[name]
            del self._kept[group][k]
            why = "it is left out, because each simulation counts once"
            self._notes.append(f"{name} is {copy_of(*known)}; {why}")
            with kept_warnings(self.warnings):
                warn(self._notes[-1])

    def _equilibrated_frames(self) -> dict[int, np.ndarray]:
        """Return the equilibrated frames by `id()` of the trajectory.

        The dictionary is empty if all frames are equilibrated.
        """
        found: dict[int, tuple[np.ndarray, str, str]] = {}
        every = {}
        for name, ((group, _), battery) in self._named.items():
            tables = _tables_of(battery.shown, n_replicas=len(self._kept[group]))
            start, why = equilibrated_start(tables, f"{name}: ", battery.frame_times)
            frames = next(iter(battery.analyses.values())).frames
            # Replicas may be parts of one system, such as chains, and so share a trajectory.
            every[name] = frames, (key := id(battery.universe.trajectory))
            if key not in found or len(frames) - start < len(found[key][0]):
                found[key] = frames[start:], name, why
        notes = []
        for name, (frames, key) in every.items():
            kept, last, why = found[key]
            if n := len(frames) - len(kept):
                shared = "" if last == name else f", because it has the trajectory of {last}"
                notes.append(f"{name}: {n:,} frames are left out{shared}: {why}")
        self._notes += notes
        return {key: kept for key, (kept, _, _) in found.items()} if notes else {}

    @property
    def timings(self) -> Timings:
        """Timings of the last run."""
        return self.batteries[0].timings

    @property
    def damaged(self) -> list[tuple[int, str]]:
        """Number of each frame that the last run left out, and the reason with the filename."""
        return [frame for battery in self.batteries for frame in battery.damaged]

    @property
    def means(self) -> dict[str, dict[str, dict[str, ReplicaMean]]]:
        """Mean of each group, by analysis, title of the series, and group."""
        if not self._means:
            self._means = {
                name: {
                    title: {group: mean_of_replicas(values) for group, values in of_groups.items()}
                    for title, of_groups in self._replica_means(name).items()
                }
                for name in self.names
            }
        return self._means

    @property
    def differences(self) -> dict[str, dict[str, dict[str, GroupDifference]]]:
        """Differences from the first group, by analysis, series, and "SECOND - FIRST"."""
        return {
            name: {title: differences(of_groups) for title, of_groups in of_series.items()}
            for name, of_series in self.means.items()
        }

    def verdicts(self, name: str) -> dict[str, dict[str, SeriesVerdict]]:
        """Assess the sampling of the series of an analysis in the replicas of each group.

        Parameters
        ----------
        name : str
            Name of the analysis.

        Returns
        -------
        dict of str to dict of str to SeriesVerdict
            Verdicts by title and group, with split-R̂ (`.found.r_hat`) if a group has two replicas
            or more. Empty for other results than time series, for more than 16 series, and if
            frames are not in the order of time.
        """
        if name not in self._verdicts:
            found: dict[str, dict[str, SeriesVerdict]] = {}
            tables = self.tables(name)
            every = [one for one in chain.from_iterable(tables.values()) if one is not None]
            for group, of_group in tables.items():
                numbered = zip(self.numbers[group], of_group, strict=True)
                known = {f"{k}": one for k, one in numbered if one is not None}
                for title, one in verdicts_of_replicas(known, every).items():
                    found.setdefault(title, {})[group] = one
            self._verdicts[name] = found
        return self._verdicts[name]

    def equilibrated_means(self, name: str) -> dict[str, dict[str, ReplicaMean]]:
        """Compute means of each group over the equilibrated frames of each replica.

        Parameters
        ----------
        name : str
            Name of the analysis.

        Returns
        -------
        dict of str to dict of str to ReplicaMean
            Means by title and group; NaN if a replica of the group drifts. As in the verdict,
            replicas with less than 4 values are left out. Only series with verdicts have such
            means, and periodic angles have none.
        """
        if name not in self._equilibrated:
            self._equilibrated[name] = {
                title: {group: equilibrated_mean(one) for group, one in of_groups.items()}
                for title, of_groups in self.verdicts(name).items()
                if all(one.kind == "linear" for one in of_groups.values())
            }
        return self._equilibrated[name]

    def equilibrated_differences(self, name: str) -> dict[str, dict[str, GroupDifference]]:
        """Compute differences from the first group over the equilibrated frames.

        Parameters
        ----------
        name : str
            Name of the analysis.

        Returns
        -------
        dict of str to dict of str to GroupDifference
            Differences of `equilibrated_means` by title and "SECOND - FIRST".
        """
        return {title: differences(of) for title, of in self.equilibrated_means(name).items()}

    def profile(self, name: str) -> Profile | None:
        """Align the profiles of an analysis, such as the RMSF along residues.

        Parameters
        ----------
        name : str
            Name of the analysis.

        Returns
        -------
        Profile or None
            Profile; None if the analysis has no profile, or replicas have no common x values.
        """
        return profile_of_replicas(self.tables(name), self.numbers, lambda: self._same_atoms)

    def remarks(self, name: str) -> list[str]:
        """Describe results that cannot be compared, and results that are not converged.

        Parameters
        ----------
        name : str
            Name of the analysis.

        Returns
        -------
        list of str
            Sentences of the description.
        """
        return remarks_of(self, name)

    def outputs(self, folder: str | os.PathLike) -> list[Path]:
        """List the files that `save` may write; this can be called before the run.

        Parameters
        ----------
        folder : path-like
            Folder, as for `save`.

        Returns
        -------
        list of Path
            Names of tables, figures and arrays.
        """
        folder = Path(folder)
        own = [
            folder / group / f"{k}" / f"{name}{ending}"
            for group, batteries in self._whole.items()
            for k, battery in batteries.items()
            for name, analysis in (battery.every | battery.shown).items()
            for ending in (".csv", ".npz", *(f"-{one}.csv" for one in analysis.FURTHER_TABLES))
        ]
        return [*(folder / name for name in self._shared_files), *own]

    @property
    def _shared_files(self) -> list[str]:
        """Names of the files that `save` may write once for all groups, such as means.csv."""
        names = [*COMMON_FILES, *TABLES]
        every = (name for one in self.batteries for name in one.every | one.shown)
        for name in dict.fromkeys(every):
            names += [f"{name}.svg", f"{name}-frequent.svg"]
            names += [f"{name}-profile.svg", f"{name}-profile.csv"]
        return names

    def summary(self) -> list[str]:
        """Describe the first series of each analysis by means and by differences of groups.

        Returns
        -------
        list of str
            Sentences, each after the name of its analysis; for a profile, such as an RMSF, how many
            rows differ. Then for each group, whether its replicas are equilibrated, sampled, and
            agree.
        """
        means = []
        for name in self.names:
            lines = [*lines_of(self, name, most=1)]
            if not lines and (profile := self.profile(name)) is not None:
                lines = [*lines_of_profile(profile)][:1]
            means += [f"{name}: {title}: {text}" for title, text in lines]
        return [*means, *answers_of_groups(self, {name: name for name in self.names})]

    def save(
        self, folder: str | os.PathLike, *, overwrite: bool = False, **options: object
    ) -> None:
        """Write tables, figures, and a page with all results: either all files or none.

        Parameters
        ----------
        folder : path-like
            Folder, made if it does not exist. GROUP/N/ contains the tables of replica N.
            replicas.csv contains means of replicas, means.csv means of groups, and differences.csv
            differences between groups. Each analysis has NAME.svg. An analysis with a profile also
            has NAME-profile.csv and NAME-profile.svg, and one with frequent items has
            NAME-frequent.svg. Other files are index.html, timings.html, and battery.toml, from
            which the battery can be run again.
        overwrite : bool
            Replace existing files, and delete files of an earlier battery that this battery does
            not write.
        **options
            `figsize`, `time_unit`, `stats` and `style`, as for `Battery.save`.

        Raises
        ------
        FileExistsError
            One of the files exists, and `overwrite` is False.
        """
        folder, chosen = Path(folder), FigureOptions(**options)  # type: ignore[arg-type]
        check_style(chosen.style)
        with saved_together() as saving:
            if overwrite:
                saving.replace([*self.outputs(folder), folder / METADATA])
            shared = self.save_tables(folder, overwrite=overwrite)
            for name in self.names:
                with styled(FIGURE_STYLE, chosen.style):
                    for ending, figure in self.figures(name, options=chosen).items():
                        if (size := chosen.inches(figure.dpi)) is not None:
                            figure.set_size_inches(size)
                        path = folder / f"{name}{ending}.svg"
                        with new_file(path, overwrite=overwrite, binary=True) as file:
                            write_figure(figure, file, "svg")
            with new_file(folder / "battery.toml", overwrite=overwrite) as file:
                file.write(self.to_toml())
            self.timings.report(folder / "timings.html", overwrite=overwrite)
            with new_file(folder / "index.html", overwrite=overwrite) as file:
                file.write(page_of_replicas(self, shared, chosen))

    def save_tables(self, folder: str | os.PathLike, *, overwrite: bool = False) -> list[str]:
        """Write the tables of all replicas, their means, differences and profiles.

        Parameters
        ----------
        folder : path-like
            Folder, made if it does not exist.
        overwrite : bool
            Replace existing files.

        Returns
        -------
        list of str
            Filenames of the tables that cover all analyses, such as means.csv.

        Raises
        ------
        FileExistsError
            One of the files exists, and `overwrite` is False.
        """
        folder, shared = Path(folder), []
        for group, batteries in self._kept.items():
            for k, battery in batteries.items():
                battery.save_tables(folder / group / f"{k}", overwrite=overwrite)
        for summary, table in zip(TABLES, self._summaries(), strict=True):
            if table is not None:
                shared.append(summary)
                results = Results(table=table, provenance=self._provenance())
                results.save(folder / summary, overwrite=overwrite)
        for name in self.names:
            if (profile := self.profile(name)) is not None:
                results = Results(table=profile.table(), provenance=self._provenance(name))
                results.save(folder / f"{name}-profile.csv", overwrite=overwrite)
        return shared

    def to_toml(self) -> str:
        """Format groups and analyses as a text that `from_file` reads.

        Comments name the groups without files, such as those in memory, and mention the energies,
        which are left out because each replica has its own.

        Returns
        -------
        str
            Text in TOML.
        """
        from paceline.analysis.battery_definitions import toml_of

        groups, without = {}, []
        for name, batteries in self.groups.items():
            first = batteries[0].universe
            files = [files_of(one.universe) for one in batteries]
            if first.filename is None or not all(files):
                without.append(name)
                continue
            groups[name] = {
                "topology": os.fspath(first.filename),
                "trajectories": [one[0] if len(one) == 1 else one for one in files],
            }
        described = {
            key: one for battery in self.batteries for key, one in battery.descriptions.items()
        }
        parts = [toml_of(groups, "groups.")] if groups else []
        if without:
            text = f"# {joined(without)}: no files, so this contains only the analyses\n"
            parts.insert(0, text)
        if any(one.energies is not None for one in self.batteries):
            parts.insert(0, "# without the energies, which are of each replica\n")
        return "\n".join([*parts, toml_of(described)])

    def figures(
        self, name: str, width: float = 3.5, *, options: FigureOptions | None = None
    ) -> "dict[str, Figure]":
        """Draw the figures of an analysis: all replicas, frequent items, and the profile.

        Parameters
        ----------
        name : str
            Name of the analysis.
        width : float
            Width of the figures, inches.
        options : FigureOptions, optional
            Unit of times, and whether legends contain means.

        Returns
        -------
        dict of str to matplotlib.figure.Figure
            Figures by the ending of the filename: "", "-frequent" and "-profile".
        """
        found: dict[str, Figure] = {}
        tables = self.tables(name)
        known = [one for one in chain.from_iterable(tables.values()) if one is not None]
        if not known:
            return found
        of_groups = {key: some for key, of in tables.items() if (some := [*filter(None, of)])}
        if known[0].is_series and not known[0].no_mean:
            found[""] = draw_series(
                tables,
                self.means[name],
                width,
                options or FigureOptions(),
                numbers=self.numbers,
                verdicts=self.verdicts(name),
            )
        elif known[0].drawn is not None and known[0].drawn.points:
            found[""] = draw_points(of_groups, width)
        elif known[0].image is not None and (maps := draw_maps(of_groups, width)) is not None:
            found[""] = maps
        frequent = self._frequent(name)
        if frequent and (drawn := draw_frequent(frequent, width)) is not None:
            found["-frequent"] = drawn
        profile = self.profile(name)
        if profile is not None and len(profile.keys) == 1:
            found["-profile"] = draw_profile(profile, width)
        return found

    def _frequent(self, name: str) -> dict[str, Table]:
        """Return the tables of an analysis's most frequent items, by group and replica."""
        return {
            f"{group} {k}": one.further_tables()["frequent"]
            for (group, k, own), one in self.analyses.items()
            if own == name and "frequent" in one.FURTHER_TABLES
        }

    @property
    def _same_atoms(self) -> bool:
        """True if atoms with equal indices have equal names and residues in all replicas."""
        first, *others = (battery.universe.atoms for battery in self.batteries)
        return all(
            len(atoms) == len(first)
            and all(
                np.array_equal(attribute_of(atoms, name), attribute_of(first, name))
                for name in ("names", "resids", "resnames")
            )
            for atoms in others
        )

    def tables(self, name: str) -> dict[str, list[Table | None]]:
        """Return the table of each replica by group; None for results without a table.

        Parameters
        ----------
        name : str
            Name of the analysis.

        Returns
        -------
        dict of str to list
            Table of each replica, or None.
        """
        return {
            group: [
                battery.shown[name].results.table if name in battery.shown else None
                for battery in batteries
            ]
            for group, batteries in self.groups.items()
            if any(name in battery.shown for battery in batteries)
        }

    def _replica_means(self, name: str) -> dict[str, dict[str, list[float]]]:
        """Mean over frames of each replica, by title and group."""
        found: dict[str, dict[str, list[float]]] = {}
        for group, tables in self.tables(name).items():
            for table in tables:
                if table is None or table.no_mean or not table.is_series:
                    continue
                for title in table.y:
                    values, _ = table.values_in_time(title)
                    of_group = found.setdefault(title, {}).setdefault(group, [])
                    of_group.append(float(values.mean()) if len(values) else np.nan)
        return found

    def _summaries(self) -> tuple[Table | None, Table | None, Table | None]:
        """Make tables of means of replicas, means of groups, and differences between groups.

        A table without rows is None.
        """
        of_replicas: list[Sequence[object]] = []
        of_groups: list[Sequence[object]] = []
        beside: list[Sequence[object]] = []
        for (group, k, name), analysis in self.shown.items():
            table = analysis.results.table
            for title, one in ({} if table is None else table.means()).items():
                error = (one.inefficiency, one.interval, "yes" if one.converged else "no")
                of_replicas.append((name, title, group, k, one.n_values, one.mean, *error))
        for name, of_series in self.means.items():
            for title, means in of_series.items():
                later = self.equilibrated_means(name).get(title, {})
                for group, mean in means.items():
                    one = self.verdicts(name).get(title, {}).get(group)
                    sampling = (
                        (np.nan, "unknown") if one is None else (one.found.r_hat, one.verdict)
                    )
                    part = later.get(group, NO_MEAN)
                    spread = mean.deviation, mean.interval, *sampling, part.mean, part.interval
                    of_groups.append((name, title, group, mean.n_replicas, mean.mean, *spread))
                parts = self.equilibrated_differences(name).get(title, {})
                for pair, one in differences(means).items():
                    known = one.interval, one.n_free, one.p_value, one.detectable
                    two = parts.get(pair, NO_DIFFERENCE)
                    later_one = two.difference, two.interval, two.p_value
                    beside.append((name, title, pair, one.difference, *known, *later_one))
        return (
            _summary(REPLICA_COLUMNS, of_replicas),
            _summary(GROUP_COLUMNS, of_groups),
            _summary(DIFFERENCE_COLUMNS, beside),
        )

    def _provenance(self, name: str = "") -> dict[str, Any]:
        """Return the provenance of a table of all replicas: files, versions, warnings, command.

        `name` is the name of the analysis; it is empty for tables of several analyses.
        """
        facts: dict[str, object] = {**software()}
        if name:
            facts["analysis"] = name
        for group, batteries in self._kept.items():
            for k, battery in batteries.items():
                one = next(iter(battery.analyses.values()))
                of_run = one.results.provenance
                for key, title in OF_FILES.items():
                    if key in of_run:
                        facts[f"{title}{group} {k}"] = of_run[key]
                of_command = {key: of_run[key] for key in of_run if is_of_command(key)}
        if self._notes:
            facts["warnings"] = "; ".join(self._notes)
        return {**facts, **(of_command or {COMMAND: IN_PYTHON})}


def _tables_of(analyses: Mapping[str, Any], n_replicas: int = 1) -> dict[str, Table | None]:
    """Return the table of each analysis of a replica.

    The field `n_series` of each table then counts the series of all `n_replicas` replicas.
    """
    tables = {name: one.results.table for name, one in analyses.items()}
    return {
        name: one and replace(one, n_series=one.n_series * n_replicas)
        for name, one in tables.items()
    }


def _summary(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> Table | None:
    """Make a table with these `titles` from rows; return None if there are no rows."""
    if not rows:
        return None
    columns = dict(zip(titles, map(np.array, zip(*rows, strict=True)), strict=True))
    return Table(columns, titles[0], {}, "")
