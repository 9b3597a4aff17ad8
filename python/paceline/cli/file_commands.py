"""Commands on files: info, index, validate, split, join, convert and repack."""

import argparse
import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from paceline import _core
from paceline._util.files import (
    check_distinct,
    check_local,
    check_output,
    new_file,
    saved_together,
)
from paceline.cli.options import (
    CONTINUOUS,
    above_zero,
    add_backend_arguments,
    add_frame_arguments,
    add_group_and_units,
    add_hdf5_arguments,
    add_index_argument,
    add_json_argument,
    add_layout_arguments,
    add_selection_arguments,
    add_thread_argument,
    add_transform_arguments,
    add_worker_arguments,
    given_arguments,
    hdf5_options,
    layout_options,
    positive,
    print_json,
    size,
)
from paceline.cli.parser_and_file_arguments import (
    CommandParser,
    Commands,
    FileForm,
    add_file_arguments,
)
from paceline.errors import UnsupportedError
from paceline.performance.number_format import amount, many

if TYPE_CHECKING:
    from paceline.analysis.validate import Finding, Verdict
    from paceline.cli.facts_for_info import Fact
    from paceline.cli.json_output_schema import (
        FileFinding,
        RepackedAccess,
        RepackedDataset,
        ValidatedFile,
    )
    from paceline.hdf5.repack import Gain

INFO_EXAMPLES = """\
examples:
  paceline info md.xtc
  paceline info md.tpr md.xtc
  paceline info -s md.tpr -n index.ndx
  paceline info --json md.xtc
  paceline info --tsv run*/md.xtc | sort -k3
  paceline info dump.h5 --particles solute --units "nm, fs"
  paceline info positions.h5 --dataset pos --units nm
"""

INDEX_EXAMPLES = """\
examples:
  paceline index md.xtc
  paceline index --refresh run*/md.xtc
  paceline index s3://bucket/md.xtc -o .md.xtc.paceline-index
"""

VALIDATE_EXAMPLES = """\
examples:
  paceline validate md.xtc
  paceline validate -s md.tpr -f md.xtc
  paceline validate run*/md.xtc -o findings.tsv
  paceline validate md.xtc > findings.tsv && rm backup.xtc
"""

SPLIT_EXAMPLES = """\
examples:
  paceline split md.xtc -n 24                       # md.000.xtc ... md.023.xtc
  paceline split md.dcd --size 2GB -o pieces        # pieces/md.000.dcd ...
  paceline split md.trr --frames 10000 -o part.trr  # part.000.trr ...
"""

JOIN_EXAMPLES = """\
examples:
  paceline join "md.part*.xtc" -o md.xtc
  paceline join "md.part*.xtc" --continuous -o md.xtc
  paceline join run1.dcd run2.dcd -o whole.dcd
"""

CONVERT_EXAMPLES = """\
examples:
  paceline convert md.xtc md.dcd
  paceline convert md.trr md.xtc --precision 10000 --begin 10ns --step 10
  paceline convert "md.part*.xtc" all.xtc --continuous
  paceline convert md.tpr md.xtc protein.xtc --select protein --unwrap --fit
  paceline convert md.tpr md.xtc protein.xtc --select protein --structure protein.pdb
  paceline convert md.tpr md.xtc models.pdb --select protein --step 100
  paceline convert -s md.tpr -f md.xtc -o protein.xtc --select protein
  paceline convert -f md.xtc -n index.ndx --select Protein -o protein.xtc
  paceline convert md.xtc md.h5md
  paceline convert md.xtc small.h5md --compress shuffle+gzip:4 --precision 0.001
  paceline convert md.xtc small.h5md --compress shuffle+zstd:3
  paceline convert md.xtc md.h5md --chunk auto --for atoms --align 1MiB
  paceline convert dump.h5 md.xtc --particles solute --units "nm, fs"
"""

REPACK_EXAMPLES = """\
examples:
  paceline repack md.h5md
  paceline repack md.h5md atoms.h5md --for atoms
  paceline repack md.h5md small.h5md --compress shuffle+gzip:4 --precision 0.001
"""


def _either(names: Sequence[str]) -> str:
    """Join names into a text such as "a, b or c"."""
    return f"{', '.join(names[:-1])} or {names[-1]}"


#: Texts for the help: formats whose frames `split` and `join` copy as bytes, and all formats that
#: paceline decodes.
COPIED = _either([*(format.name for format in _core.formats() if format.appends), "H5MD"])
FORMATS = _either([*(format.name for format in _core.formats()), "HDF5"])

VALIDATE_COLUMNS = ("file", "frame", "byte", "time (ps)", "verdict", "what")
#: Factor by which repacking may increase the bytes to read without a warning.
_DEARER = 2.0
#: Exit status of `paceline validate` if a file has errors.
BAD = 1


def add_info(commands: Commands) -> CommandParser:
    """Add the command `info` and its arguments."""
    parser = commands.add_parser(
        "info",
        help="show what a trajectory or a topology contains",
        description="For a topology, show atoms, residues and groups. For trajectories, show "
        "format, atoms, frames, times, cell, and where the frame index is stored. For HDF5 files, "
        "also show the datasets, their chunks, the cost of reading them, and whether 'paceline "
        "repack' is worthwhile.",
        epilog=INFO_EXAMPLES,
    )
    form = FileForm(topology="optional", trajectory="optional")
    add_file_arguments(parser, form, formats=FORMATS, chain=False)
    add_index_argument(parser)
    how = parser.section("output").add_mutually_exclusive_group()
    how.add_argument("--tsv", action="store_true", help="one line per file, tab-separated")
    add_json_argument(how, "InfoDocument")
    add_hdf5_arguments(parser)
    parser.set_defaults(run=run_info)
    return parser


def run_info(args: argparse.Namespace) -> None:
    """Run the command `info`."""
    from paceline.cli.facts_for_info import Fact, facts_of, facts_of_system
    from paceline.hdf5.open_hdf5_trajectory import Hdf5Options

    asked = Hdf5Options(**hdf5_options(args))
    found: list[list[Fact]] = []

    def show(facts: Iterator[Fact]) -> None:
        found.append([])
        try:
            found[-1].extend(facts)
        finally:
            if not (args.tsv or args.json):
                _show(found[-1], blank=len(found) > 1)

    if args.index is not None and args.topology is None:
        raise UnsupportedError("-n needs a topology, because it numbers atoms: add it with -s")
    try:
        if args.topology is not None:
            show(facts_of_system(args.topology, args.index))
        _for_each(args.trajectory, lambda path: show(facts_of(path, asked)))
    finally:
        if args.tsv:
            _show_table(found)
        elif args.json:
            print_json("info", files=[{one.key: one.value for one in facts} for facts in found])


def _for_each(names: list[str], command: Callable[[str], None]) -> None:
    """Call a command for each file; then raise the first error, with all later ones as notes.

    Names may be glob patterns.
    """
    from paceline.trajectory.open import files_named

    errors: list[Exception] = []
    for name in names:
        try:
            paths = files_named(name)
        except FileNotFoundError as error:
            errors.append(error)
            continue
        for path in paths:
            try:
                command(path)
            except BrokenPipeError:
                raise
            except Exception as error:
                errors.append(error)
    if errors:
        first, *others = errors
        for other in others:
            first.add_note(f"error: {' '.join(str(other).split())}")
        raise first


def _show(facts: "Sequence[Fact]", *, blank: bool) -> None:
    """Print one fact per line; print nothing if only the name of the file is known."""
    if len(facts) > 1:
        width = max(len(one.heading) for one in facts)
        lines = (f"{one.heading:{width}}  {one.text}" for one in facts)
        print(*([""] if blank else []), *lines, sep="\n")


def _show_table(files: "list[list[Fact]]") -> None:
    """Print one line per file, for files with known facts."""
    known = [{one.heading: one.text for one in facts} for facts in files if len(facts) > 1]
    # Files of different formats have different headings: print one column for each heading.
    headings = list(dict.fromkeys(heading for facts in known for heading in facts))
    if known:
        print(*headings, sep="\t")
    for facts in known:
        print(*(facts.get(heading, "-") for heading in headings), sep="\t")


def add_index(commands: Commands) -> CommandParser:
    """Add the command `index` and its arguments."""
    parser = commands.add_parser(
        "index",
        help="find the frames of a trajectory once, so that it opens faster later",
        description="Make the frame index of each trajectory and save it beside the trajectory, or "
        "in the user's cache if that folder is not writable. Every other command also does this.",
        epilog=INDEX_EXAMPLES,
    )
    add_file_arguments(parser, FileForm(), formats=FORMATS, chain=False)
    parser.section("calculation").add_argument(
        "--refresh", action="store_true", help="make the index again"
    )
    add_json_argument(parser.section("output"), "IndexDocument")
    parser.section("output").add_argument(
        *("-o", "--output"),
        type=Path,
        metavar="FILE",
        help="also save the index of one trajectory here, to be stored beside an object under the "
        "name .NAME.paceline-index",
    )
    parser.section("output").add_argument(
        "--overwrite", action="store_true", help="replace files that exist"
    )
    add_hdf5_arguments(parser)
    parser.set_defaults(run=run_index)
    return parser


def run_index(args: argparse.Namespace) -> None:
    """Run the command `index`."""
    from paceline.hdf5.open_hdf5_trajectory import Hdf5Options
    from paceline.trajectory.open import open_file

    asked = Hdf5Options(**hdf5_options(args))

    made: list[dict[str, object]] = []

    if args.output is not None:
        if len(args.trajectory) != 1:
            raise UnsupportedError(f"{args.output}: expected one trajectory for one index (-o)")
        check_output(args.output, overwrite=args.overwrite)

    def index(path: str) -> None:
        core = open_file(path, options=asked, refresh=args.refresh)
        if args.output is not None:
            _save_index(core.index_file, path, args)
        n_bytes = None if core.traffic is None else core.traffic[0]
        if args.json:
            facts = {"file": path, "frames": core.n_frames, "origin": core.index_origin}
            facts |= {"bytes_read": n_bytes, "size_bytes": core.size}
            made.append({**facts, "index_file": core.index_file})
            return
        read = f"{'unknown' if n_bytes is None else n_bytes} of {core.size} bytes read"
        where = core.index_file or "not saved"
        print(path, f"{core.n_frames} frames", core.index_origin, read, where, sep="\t")

    try:
        _for_each(args.trajectory, index)
    finally:
        if args.json:
            print_json("index", files=made, written=[args.output] if args.output else [])


def _save_index(index_file: Path | None, path: str, args: argparse.Namespace) -> None:
    """Copy the index of a trajectory to the file of -o."""
    if index_file is None:
        raise UnsupportedError(
            f"{path}: it has no index that could be saved: its frames are found without one"
        )
    with new_file(args.output, overwrite=args.overwrite, binary=True) as file:
        file.write(index_file.read_bytes())


def add_validate(commands: Commands) -> CommandParser:
    """Add the command `validate` and its arguments."""
    parser = commands.add_parser(
        "validate",
        help="check every frame and list all errors",
        description="Read, decode and check every frame of trajectory files. List errors and "
        "remarks, one line each. The exit status is 1 if a file has errors.",
        epilog=VALIDATE_EXAMPLES,
    )
    form = FileForm(topology="optional")
    formats = f"{FORMATS}; each file is checked separately"
    add_file_arguments(parser, form, formats=formats, chain=False)
    add_backend_arguments(parser)
    how = parser.section("output").add_mutually_exclusive_group()
    add_json_argument(how, "ValidateDocument")
    how.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="tab-separated table [to stdout]"
    )
    add = parser.section("output").add_argument
    add("--overwrite", action="store_true", help="replace a file that exists")
    add_hdf5_arguments(parser)
    parser.set_defaults(run=run_validate)
    return parser


def run_validate(args: argparse.Namespace) -> int:
    """Run the command `validate`; the exit status is 1 if a file has errors."""
    from paceline.analysis.validate import check_decodable
    from paceline.trajectory.open import files_named

    paths = [path for name in args.trajectory for path in files_named(name)]
    for path in paths:
        check_decodable(path)
    atoms = _atoms_of(args.topology)
    if args.json:
        verdicts = [_verdict_of(path, args, atoms) for path in paths]
        files = [_in_json(verdict) for verdict in verdicts]
        print_json("validate", bad=any(verdict.bad for verdict in verdicts), files=files)
        return BAD if any(verdict.bad for verdict in verdicts) else 0
    bad = False
    with _output(args) as output:
        print(*VALIDATE_COLUMNS, sep="\t", file=output)
        for path in paths:
            verdict = _verdict_of(path, args, atoms)
            for finding in verdict.findings:
                print(*_cells(path, finding), sep="\t", file=output)
            output.flush()
            print(_summary(verdict), file=sys.stderr)
            bad = bad or bool(verdict.bad)
    return BAD if bad else 0


def _atoms_of(topology: str | None) -> object:
    """Return the atoms of a topology; None if there is no topology."""
    if topology is None:
        return None
    from paceline.cli.universe_with_named_groups import GroupUniverse

    return GroupUniverse(topology).atoms


def _in_json(verdict: "Verdict") -> "ValidatedFile":
    """Convert the findings about a file to JSON values."""
    findings: list[FileFinding] = [
        {
            "frame": one.frame,
            "byte": one.byte,
            "time_ps": one.time,
            "bad": one.bad,
            "what": " ".join(one.what.split()),
        }
        for one in verdict.findings
    ]
    return {
        "file": verdict.path,
        "frames": verdict.n_frames,
        "size_bytes": verdict.size,
        "seconds": verdict.seconds,
        "findings": findings,
    }


def _verdict_of(path: str, args: argparse.Namespace, atoms: Any) -> "Verdict":
    """Validate a file; an exception becomes a finding, so that the next file is still checked."""
    from paceline.analysis.validate import Finding, Verdict, validate
    from paceline.hdf5.open_hdf5_trajectory import Hdf5Options
    from paceline.trajectory.open import open_file

    options = hdf5_options(args)
    try:
        found = validate(path, backend=args.backend, n_workers=args.n_workers, **options)
        if atoms is not None and found.n_frames:
            there = open_file(path, options=Hdf5Options(**options), notes=False).n_atoms
            if there != len(atoms):
                what = f"expected the {len(atoms)} atoms of {args.topology}, found {there}"
                found.findings.insert(0, Finding(None, None, None, True, what))
            elif (other := _other_names(path, atoms, options)) is not None:
                found.findings.insert(0, Finding(None, None, None, other[1], other[0]))
        return found
    except Exception as error:
        if args.debug:
            traceback.print_exc()
        what = f"validating it failed: {type(error).__name__}: {error}"
        return Verdict(path, 0, 0, 0.0, [Finding(None, None, None, True, what)])


def _other_names(path: str, atoms: Any, options: dict[str, Any]) -> tuple[str, bool] | None:
    """Compare the names of atoms in a file with those in the topology, if both have names.

    Returns a description of the first difference, and whether the difference is an error. The same
    names in another order are an error.
    """
    from paceline.hdf5.open_any_convention import names_in_file
    from paceline.hdf5.open_hdf5_trajectory import is_hdf5
    from paceline.trajectory.open import names_in
    from paceline.transform.compare_atom_names import order_in_file

    if is_hdf5(path):
        known = names_in_file(path, **{key: options.get(key) for key in ("group", "external")})
    else:
        known = names_in(path)
    return order_in_file(atoms, known) if known else None


@contextlib.contextmanager
def _output(args: argparse.Namespace) -> Iterator[IO[str]]:
    """Yield the file of -o for the table of findings; without -o, yield standard output."""
    if args.output is None:
        yield sys.stdout
    else:
        with new_file(args.output, overwrite=args.overwrite) as file:
            yield file


def _cells(path: str, finding: "Finding") -> tuple[object, ...]:
    """Return the cells of a finding's row in the table, in the order of `VALIDATE_COLUMNS`."""
    place = ("-" if value is None else value for value in (finding.frame, finding.byte))
    time = "-" if finding.time is None else f"{finding.time:.8g}"
    # A damaged file may contain any characters, such as line breaks.
    what = " ".join(finding.what.split())
    return path, *place, time, "bad" if finding.bad else "remark", what


def _summary(verdict: "Verdict") -> str:
    remarks = len(verdict.remarks)
    return (
        f"{verdict.path}: {many(verdict.n_frames, 'frame')}, {len(verdict.bad)} bad, "
        f"{many(remarks, 'remark')}, {amount(verdict.size)} "
        f"in {verdict.seconds:.1f} s"
    )


def add_split(commands: Commands) -> CommandParser:
    """Add the command `split` and its arguments."""
    parser = commands.add_parser(
        "split",
        help="split a trajectory into several files",
        description="Split a trajectory between frames by copying bytes, without decoding. "
        "The files are numbered, so that the order of their names is the order of frames. They "
        "appear when all of them are complete. Their names are printed to standard output.",
        epilog=SPLIT_EXAMPLES,
    )
    form = FileForm(several=False)
    add_file_arguments(parser, form, formats=COPIED, more="(-n N | --frames N | --size SIZE)")
    how = parser.section("calculation").add_mutually_exclusive_group(required=True)
    how.add_argument(
        "-n", type=positive, metavar="N", help="number of files with equally many frames"
    )
    how.add_argument("--frames", type=positive, metavar="N", help="frames per file")
    how.add_argument(
        "--size", type=size, metavar="SIZE", help="maximum size of a file: 500MB, 2GiB"
    )
    add = parser.section("output").add_argument
    add(
        "-o",
        "--output",
        metavar="NAME",
        help="existing folder for the files; or NAME.xtc for NAME.000.xtc ... [folder and name of "
        "the trajectory]",
    )
    add("--overwrite", action="store_true", help="replace files that exist")
    add_json_argument(parser.section("output"), "SplitDocument")
    add_thread_argument(parser, "files written at a time [the CPUs this process may use]")
    add_group_and_units(parser)
    parser.set_defaults(run=run_split)
    return parser


def run_split(args: argparse.Namespace) -> None:
    """Run the command `split`."""
    from paceline.split_join import split

    pieces = split(
        args.trajectory[0],
        args.n,
        frames=args.frames,
        size=args.size,
        output=args.output,
        overwrite=args.overwrite,
        n_workers=args.n_workers,
        **given_arguments(args, "units", group="particles"),
    )
    if args.json:
        print_json("split", pieces=pieces, written=pieces)
    else:
        print(*pieces, sep="\n")


def add_join(commands: Commands) -> CommandParser:
    """Add the command `join` and its arguments."""
    parser = commands.add_parser(
        "join",
        help="join several trajectories into one file",
        description="Join trajectories of one format and one system in the given order, by "
        "copying bytes, without decoding. By default no frame is dropped, and a warning reports "
        "overlapping restarts. --continuous leaves out frames that a later file repeats.",
        epilog=JOIN_EXAMPLES,
    )
    add_file_arguments(parser, FileForm(), formats=COPIED, more="-o FILE")
    add = parser.section("output").add_argument
    add("-o", "--output", required=True, metavar="FILE", help="the joined trajectory")
    parser.section("frames").add_argument("--continuous", action="store_true", help=CONTINUOUS)
    add("--overwrite", action="store_true", help="replace a file that exists")
    add_json_argument(parser.section("output"), "WrittenTrajectory")
    add_thread_argument(parser, "files copied at a time [the CPUs this process may use]")
    add_group_and_units(parser)
    parser.set_defaults(run=run_join)
    return parser


def run_join(args: argparse.Namespace) -> None:
    """Run the command `join`."""
    from paceline.split_join import join

    options = {"continuous": args.continuous, "overwrite": args.overwrite}
    options |= given_arguments(args, "units", group="particles")
    made = join(args.trajectory, args.output, **options, n_workers=args.n_workers)
    if args.json:
        print_json("join", output=made, size_bytes=os.path.getsize(made), written=[made])


def add_convert(commands: Commands) -> CommandParser:
    """Add the command `convert` and its arguments."""
    parser = commands.add_parser(
        "convert",
        help="write frames to a new trajectory file of any format",
        description="Decode, select, transform, encode and write frames in order, with all "
        "workers. The filename extension determines the format: .xtc, .trr, .dcd, .nc, .ncdf, "
        ".h5md, .h5, .hdf5. With a topology (-s), files of structures are possible: .pdb, .ent, "
        ".gro, .xyz, and for one frame .crd or .cif (mmCIF). TRR, NetCDF and H5MD store velocities "
        "and forces, GRO stores velocities, and H5MD stores atom data of the topology. A summary "
        "is printed to standard error.",
        epilog=CONVERT_EXAMPLES,
    )
    form = FileForm(topology="optional", output="required", alone=True)
    add_file_arguments(parser, form, formats="trajectory")
    add_selection_arguments(parser, select=("all",))
    add = parser.section("output").add_argument
    add(
        "--structure",
        type=Path,
        metavar="FILE",
        help="structure file with the same atoms in the first frame, needed to open the "
        "trajectory: .pdb, .gro, .xyz, .crd or .cif",
    )
    add(
        "--precision",
        type=above_zero,
        metavar="P",
        help="XTC: integers per nm [1000]; H5MD: round positions to multiples of this length, Å, "
        "such as 0.001, so that they compress better [not rounded]",
    )
    add_frame_arguments(parser)
    add_transform_arguments(parser)
    add_worker_arguments(parser)
    add_layout_arguments(parser)
    add(
        "--keep-cell",
        action="store_true",
        help="write lengths and angles of cells whose orientation the format cannot store, such as "
        "cells rotated by --fit in DCD and NetCDF [omit such cells]",
    )
    add("--overwrite", action="store_true", help="replace a file that exists")
    add_json_argument(parser.section("output"), "ConvertDocument")
    parser.set_defaults(run=run_convert)
    return parser


def run_convert(args: argparse.Namespace) -> None:
    """Run the command `convert`."""
    from paceline.analysis.convert import Write, format_with
    from paceline.analysis.structure_writer import format_of
    from paceline.cli.print_results import files_of, json_of_timings
    from paceline.cli.shared_analysis_steps import (
        check_report,
        run_analysis,
        save_report,
        select_nonempty,
    )

    check_distinct(args.output, args.structure, args.report)
    check_report(args)
    check_output(args.output, overwrite=args.overwrite)
    if args.structure is not None:
        format_of(args.structure)
    options = {**given_arguments(args, "precision"), **layout_options(args)}
    format_with(args.output, options)
    universe = _universe(args)
    atoms = universe.atoms if args.select is None else select_nonempty(universe, args.select)
    analysis = Write(
        atoms,
        args.output,
        structure=args.structure,
        keep_cell=args.keep_cell,
        overwrite=args.overwrite,
        **options,
    )
    with saved_together():
        run_analysis(args, analysis)
        save_report(args, analysis.timings)
    results = analysis.results
    print(
        f"{args.output}: {many(results.n_written, 'frame')} of {len(atoms)} atoms, "
        f"{amount(results.n_bytes)}",
        file=sys.stderr,
    )
    if args.json:
        print_json(
            "convert",
            output=args.output,
            frames=results.n_written,
            atoms=len(atoms),
            size_bytes=results.n_bytes,
            timings=json_of_timings(analysis.timings),
            written=files_of(args.output, args.structure, args.report),
        )


def _universe(args: argparse.Namespace) -> Any:
    """Open the system; without a topology, make a Universe with as many atoms as the trajectory."""
    import paceline
    from paceline.cli.shared_analysis_steps import chain_options, system_of, use_index_file
    from paceline.trajectory.open import files_named

    if args.topology is not None:
        return system_of(args)
    # An index file selects atoms by number, so its groups need no topology.
    numbered = () if args.index is None else ("select",)
    for option in ("select", "unwrap", "together", "nojump", "center", "wrap", "fit"):
        if vars(args)[option] not in (None, False) and option not in numbered:
            raise ValueError(f"--{option} needs a topology: add it with -s")
    if args.index is None:
        return paceline.open(args.trajectory, **chain_options(args))
    from paceline.cli.universe_with_named_groups import GroupUniverse
    from paceline.mdanalysis.reader import Reader

    files = [file for name in args.trajectory for file in files_named(name)]
    trajectory = Reader(files, **chain_options(args))
    universe = GroupUniverse.empty(trajectory.n_atoms)
    universe.trajectory = trajectory
    use_index_file(args, universe)
    return universe


def add_repack(commands: Commands) -> CommandParser:
    """Add the command `repack` and its arguments."""
    parser = commands.add_parser(
        "repack",
        help="rewrite an H5MD file in a layout that is faster to read",
        description="Rewrite positions, velocities and forces of an H5MD file in another layout, "
        "with identical bits, and copy everything else unchanged. Print the number of bytes read "
        "per byte used, before and after, to standard output. 'paceline info' reports whether a "
        "rewrite is worthwhile.",
        epilog=REPACK_EXAMPLES,
    )
    form = FileForm(output="optional", several=False)
    add_file_arguments(parser, form, formats="H5MD file; replaced if there is no output")
    add = parser.section("output").add_argument
    add_layout_arguments(parser, compress="unchanged, or gzip for any other compression")
    add(
        "--precision",
        type=above_zero,
        metavar="P",
        help="round positions to multiples of this length, Å, such as 0.001, so that they compress "
        "better [not rounded]",
    )
    add("--overwrite", action="store_true", help="replace an output that exists")
    add_json_argument(parser.section("output"), "RepackDocument")
    add_thread_argument(parser, "threads that read and compress [the CPUs this process may use]")
    parser.set_defaults(run=run_repack)
    return parser


def run_repack(args: argparse.Namespace) -> None:
    """Run the command `repack`."""
    from paceline._util.machine_and_software import available_cpus
    from paceline.backends.mpi import rank_calls
    from paceline.cli.facts_for_info import stripes_of
    from paceline.hdf5.repack import repack

    check_local(args.trajectory[0])
    file = Path(args.trajectory[0])
    size = os.path.getsize(file)
    gains = repack(
        file,
        args.output,
        precision=args.precision,
        overwrite=args.overwrite,
        n_workers=args.n_workers or available_cpus(),
        calls=rank_calls(args.n_workers),
        **layout_options(args),
    )
    if not args.json:
        print("dataset", "access", "bytes read per byte used, before", "after", sep="\t")
        for gain in gains:
            for old, new in zip(*gain.costs, strict=False):
                print(gain.name, old.access, f"{old.ratio:.2f}", f"{new.ratio:.2f}", sep="\t")
    for gain in gains:
        print(f"{gain.name}: {gain.layouts[0]}, now {gain.layouts[1]}", file=sys.stderr)
        for old, new in zip(*gain.costs, strict=False):
            if new.ratio > _DEARER * old.ratio:
                print(
                    f"{gain.name}: {old.access} reads {new.ratio / old.ratio:.0f} times as many "
                    "bytes as before; use --for, --chunk or --compress for another layout",
                    file=sys.stderr,
                )
    made = args.output or file
    after = os.path.getsize(made)
    print(f"{made}: {amount(size)}, now {amount(after)}", file=sys.stderr)
    if args.json:
        sizes = {"size_before_bytes": size, "size_bytes": after}
        datasets = [*map(_json_of_gain, gains)]
        print_json("repack", output=made, **sizes, datasets=datasets, written=[made])
    stripes = stripes_of(made)
    if stripes is not None and after >= stripes.size and (args.align or 1) % stripes.size:
        print(
            f"{made}: stripes of {stripes}; --align {stripes.size_text} lets chunks begin there",
            file=sys.stderr,
        )


def _json_of_gain(gain: "Gain") -> "RepackedDataset":
    """Convert layouts and read costs of a repacked dataset to JSON values."""
    before, after = gain.layouts
    costs: list[RepackedAccess] = [
        {"access": old.access, "before": float(old.ratio), "after": float(new.ratio)}
        for old, new in zip(*gain.costs, strict=False)
    ]
    return {"dataset": gain.name, "before": before, "after": after, "costs": costs}


PARSERS = {
    "info": add_info,
    "index": add_index,
    "validate": add_validate,
    "split": add_split,
    "join": add_join,
    "convert": add_convert,
    "repack": add_repack,
}
