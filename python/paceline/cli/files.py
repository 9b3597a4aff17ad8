"""paceline join."""

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from paceline._util.files import size_in_words
from paceline.cli.common import hdf5_options
from paceline.cli.options import add_backend_arguments, add_hdf5_arguments, positive, size
from paceline.errors import PacelineError, UnsupportedError
from paceline.hdf5.chunk_index import ABSENT, Element
from paceline.hdf5.options import NO_OPTIONS, Hdf5Options
from paceline.hdf5.read_cost import advice, costs_of, layout_in_words
from paceline.hdf5.sandbox import apart
from paceline.hdf5.trajectory import Hdf5File, is_hdf5
from paceline.trajectory.open import open_file, read_headers

if TYPE_CHECKING:
    from paceline.analysis.validate import Finding, Verdict


def facts_of(path: str, asked: Hdf5Options = NO_OPTIONS) -> Iterator[tuple[str, Any]]:
    """What a trajectory file holds.

    Parameters
    ----------
    path : str
        The file.
    asked : Hdf5Options
        What the user said of an HDF5 file.

    Yields
    ------
    (str, object)
        A heading, unit included, and the fact.

    Raises
    ------
    UnsupportedError
        It cannot be read, or something has to be said about it first. Of an HDF5 file there were
        its datasets before.
    """
    yield "file", path
    try:
        core = open_file(path, options=asked)
    except UnsupportedError:
        yield from _of_unread(path)
        raise
    yield "format", core.format
    yield "atoms", core.n_atoms
    yield "frames", core.n_frames
    times, steps = core.times()
    known = times[np.isfinite(times)]
    yield "first time (ps)", f"{known[0]:g}" if len(known) else "-"
    yield "last time (ps)", f"{known[-1]:g}" if len(known) else "-"
    yield "time between frames (ps)", _spacing(times)
    yield "first step", steps[0] if len(steps) else "-"
    yield "cell (Å, degrees)", _cell(core)
    yield "size (bytes)", core.size
    yield "fingerprint", core.fingerprint
    if isinstance(core, Hdf5File):
        yield from _of_hdf5(core)
    else:
        yield "index", f"{core.index_origin}, {core.index_file or 'not saved'}"


def _of_unread(path: str) -> Iterator[tuple[str, Any]]:
    """What an HDF5 file holds that was not opened as a trajectory."""
    if is_hdf5(path):
        # Others do not wait for h5py.
        from paceline.hdf5.conventions import outline_of

        yield "format", "HDF5"
        yield "size (bytes)", os.path.getsize(path)
        with contextlib.suppress(PacelineError):
            yield from apart(outline_of, path)


def _spacing(times: np.ndarray) -> str:
    """One number where all are alike, else the least and the largest."""
    between = np.diff(times)
    between = between[np.isfinite(between)]
    if len(between) == 0:
        return "-"
    low, high = between.min(), between.max()
    # Times of XTC are 32-bit: neighbours are rounded apart by this much.
    rounding = 2 * np.spacing(np.float32(np.nanmax(np.abs(times))))
    return f"{between.mean():g}" if high - low <= rounding else f"{low:g} to {high:g}"


def _cell(core: Any) -> str:
    """Lengths and angles of the first frame's cell."""
    if core.n_frames == 0:
        return "-"
    dimensions, _, _ = read_headers(core, [0])
    if np.isnan(dimensions).any():
        return "unknown: the first frame is damaged"
    return " ".join(f"{value:g}" for value in dimensions[0]) if dimensions.any() else "none"


def _of_hdf5(file: Hdf5File) -> Iterator[tuple[str, Any]]:
    """What an HDF5 file says of itself, how it lies there, and what that costs."""
    catalogue = file.catalogue
    yield from catalogue.facts.items()
    for name, element in catalogue.elements.items():
        yield name, _element_in_words(element, file.n_frames, file.n_atoms)
    main = next(iter(catalogue.elements.values()))
    costs = costs_of(main, file.n_atoms)
    yield (
        "bytes read for each used",
        ", ".join(f"{cost.access} {cost.ratio:.2g}" for cost in costs) or "unknown",
    )
    # Of other files convert makes H5MD; repack leaves it as it is.
    command = "paceline repack" if catalogue.dialect == "H5MD" else "paceline convert to H5MD"
    yield "repacking", advice(costs, command=command)


def _element_in_words(element: Element, n_frames: int, n_atoms: int) -> str:
    """Numbers, layout, who decodes them, and in how many frames they are."""
    dataset = element.dataset
    order = " big-endian" if dataset.dtype.byteorder == ">" else ""
    parts = [f"{dataset.dtype.name}{order}", layout_in_words(dataset, n_atoms)]
    if element.rows is not None and (held := int((element.rows != ABSENT).sum())) < n_frames:
        parts.append(f"in {held} frames")
    detour = f"read through HDF5's library, slower: {dataset.detour}"
    parts.append(detour if dataset.detour else "decoded by paceline")
    return ", ".join(parts)


INFO_EXAMPLES = """\
examples:
  paceline info md.xtc
  paceline info --tsv run*/md.xtc | sort -k3
  paceline info dump.h5 --particles solute --units "nm, fs"
  paceline info positions.h5 --dataset pos --units nm
"""


def add_info(commands: Any) -> argparse.ArgumentParser:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "info",
        help="what a trajectory file holds",
        description="Format, atoms, frames, times and cell of trajectory files, and where the "
        "frame index is kept. Of HDF5 files also what is in them, how it lies there, what reading "
        "that costs, and whether writing it anew with paceline repack pays.",
        epilog=INFO_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", nargs="+", help="XTC, TRR, DCD, NetCDF, HISTORY, CONFIG or HDF5")
    parser.add_argument("--tsv", action="store_true", help="one line a file, tab-separated")
    add_hdf5_arguments(parser)
    parser.set_defaults(run=run_info)
    return parser


def run_info(args: argparse.Namespace) -> None:
    """Do it."""
    from paceline.hdf5.options import Hdf5Options

    asked = Hdf5Options(**hdf5_options(args))
    found: list[dict[str, Any]] = []
    try:
        for path in args.file:
            found.append({})
            try:
                found[-1].update(facts_of(path, asked))
            finally:
                if not args.tsv:
                    _show(found[-1], blank=len(found) > 1)
    finally:
        if args.tsv:
            _show_table(found)


def _show(facts: dict[str, Any], *, blank: bool) -> None:
    """One fact a line, where more is known than a name: of a file that cannot be read, too."""
    if len(facts) > 1:
        width = max(map(len, facts))
        lines = (f"{key:{width}}  {value}" for key, value in facts.items())
        print(*([""] if blank else []), *lines, sep="\n")


def _show_table(files: list[dict[str, Any]]) -> None:
    """One file a line, for those of which so much is known."""
    known = [facts for facts in files if len(facts) > 1]
    # Formats have headings of their own.
    headings = list(dict.fromkeys(heading for facts in known for heading in facts))
    if known:
        print(*headings, sep="\t")
    for facts in known:
        print(*(facts.get(heading, "-") for heading in headings), sep="\t")


INDEX_EXAMPLES = """\
examples:
  paceline index md.xtc
  paceline index --refresh run*/md.xtc
"""


def add_index(commands: Any) -> argparse.ArgumentParser:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "index",
        help="find a trajectory's frames once, so that later it opens at once",
        description="Make the frame index of trajectories and save it beside them (or in the "
        "user's cache, where their folder cannot be written). Every other command does so too.",
        epilog=INDEX_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", nargs="+", help="XTC, TRR, DCD, NetCDF, HISTORY, CONFIG or HDF5")
    parser.add_argument("--refresh", action="store_true", help="make it anew")
    add_hdf5_arguments(parser)
    parser.set_defaults(run=run_index)
    return parser


def run_index(args: argparse.Namespace) -> None:
    """Do it."""
    from paceline.hdf5.options import Hdf5Options
    from paceline.trajectory.open import open_file

    asked = Hdf5Options(**hdf5_options(args))
    for path in args.file:
        core = open_file(path, options=asked, refresh=args.refresh)
        n_bytes = "unknown" if core.traffic is None else core.traffic[0]
        read = f"{n_bytes} of {core.size} bytes read"
        where = core.index_file or "not saved"
        print(path, f"{core.n_frames} frames", core.index_origin, read, where, sep="\t")


VALIDATE_EXAMPLES = """\
examples:
  paceline validate md.xtc
  paceline validate run*/md.xtc -o findings.tsv
  paceline validate md.xtc > findings.tsv && rm backup.xtc
"""

VALIDATE_COLUMNS = ("file", "frame", "byte", "time (ps)", "verdict", "what")

#: Exit status where a file is bad.
BAD = 1


def add_validate(commands: Any) -> argparse.ArgumentParser:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "validate",
        help="read every frame and list what is wrong with it",
        description="Read, decode and judge every frame of trajectory files, and list what is "
        "bad, or worth a remark, a line each. The exit status is 1 if anything is bad.",
        epilog=VALIDATE_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("file", nargs="+", help="trajectory; each is judged by itself")
    add_backend_arguments(parser)
    add("-o", "--output", type=Path, metavar="FILE", help="tab-separated table [to stdout]")
    add("--overwrite", action="store_true", help="replace a file that exists")
    add_hdf5_arguments(parser)
    parser.set_defaults(run=run_validate)
    return parser


def run_validate(args: argparse.Namespace) -> int:
    """Do it; whether anything is bad is the exit status."""
    from paceline.analysis.validate import refuse_foreign, validate

    for path in args.file:
        refuse_foreign(path)
    bad = False
    with _output(args) as output:
        print(*VALIDATE_COLUMNS, sep="\t", file=output)
        for path in args.file:
            verdict = validate(
                path, backend=args.backend, n_workers=args.n_workers, **hdf5_options(args)
            )
            for finding in verdict.findings:
                print(*_cells(path, finding), sep="\t", file=output)
            output.flush()
            print(_summary(verdict), file=sys.stderr)
            bad = bad or bool(verdict.bad)
    return BAD if bad else 0


@contextlib.contextmanager
def _output(args: argparse.Namespace) -> Iterator[IO[str]]:
    """Where the table goes."""
    from paceline._util.files import new_file

    if args.output is None:
        yield sys.stdout
    else:
        with new_file(args.output, overwrite=args.overwrite) as file:
            yield file


def _cells(path: str, finding: "Finding") -> tuple[Any, ...]:
    """One line of the table."""
    place = ("-" if value is None else value for value in (finding.frame, finding.byte))
    time = "-" if finding.time is None else f"{finding.time:.8g}"
    # What a damaged file holds may be any characters.
    what = " ".join(finding.what.split())
    return path, *place, time, "bad" if finding.bad else "remark", what


def _summary(verdict: "Verdict") -> str:
    remarks = len(verdict.remarks)
    return (
        f"{verdict.path}: {verdict.n_frames} frames, {len(verdict.bad)} bad, "
        f"{remarks} remark{'s' * (remarks != 1)}, {size_in_words(verdict.size)} "
        f"in {verdict.seconds:.1f} s"
    )


SPLIT_EXAMPLES = """\
examples:
  paceline split md.xtc -n 24                        md.000.xtc ... md.023.xtc
  paceline split md.dcd --size 2GB -o pieces         pieces/md.000.dcd ...
  paceline split md.trr --frames 10000 -o part.trr   part.000.trr ...
"""


def add_split(commands: Any) -> argparse.ArgumentParser:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "split",
        help="cut a trajectory into several files",
        description="Cut a trajectory at frame borders by copying bytes, without decoding. The "
        "pieces are numbered so that their names in order are the frames in order, and appear "
        "when all are complete. Their names go to standard output.",
        epilog=SPLIT_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("trajectory", help="XTC, TRR, DCD or HISTORY")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("-n", type=positive, metavar="N", help="number of pieces, alike in frames")
    how.add_argument("--frames", type=positive, metavar="N", help="frames of a piece")
    how.add_argument("--size", type=size, metavar="SIZE", help="most bytes of a piece: 500MB, 2GiB")
    parser.add_argument(
        "-o",
        "--output",
        metavar="NAME",
        help="folder for the pieces, which must exist; or NAME.xtc for NAME.000.xtc ... [beside "
        "the trajectory, under its name]",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace files that exist")
    parser.add_argument(
        "--n-workers",
        type=positive,
        metavar="N",
        help="pieces written at a time [the CPUs this process may use]",
    )
    parser.set_defaults(run=run_split)
    return parser


def run_split(args: argparse.Namespace) -> None:
    """Do it."""
    from paceline.trajectory.split_join import split

    pieces = split(
        args.trajectory,
        args.n,
        frames=args.frames,
        size=args.size,
        output=args.output,
        overwrite=args.overwrite,
        n_workers=args.n_workers,
    )
    print(*pieces, sep="\n")


JOIN_EXAMPLES = """\
examples:
  paceline join "md.part*.xtc" -o md.xtc
  paceline join run1.dcd run2.dcd -o whole.dcd
"""


def add_join(commands: Any) -> argparse.ArgumentParser:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "join",
        help="put several trajectories into one file",
        description="Put trajectories of one format and one system together in the order given, "
        "by copying bytes, without decoding. No frame is dropped: where restarts overlap, a "
        "warning says so.",
        epilog=JOIN_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "trajectory",
        nargs="+",
        help='XTC, TRR, DCD or HISTORY; or a pattern such as "md.part*.xtc", part2 before part10',
    )
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the whole")
    parser.add_argument("--overwrite", action="store_true", help="replace a file that exists")
    parser.add_argument(
        "--n-workers",
        type=positive,
        metavar="N",
        help="files copied at a time [the CPUs this process may use]",
    )
    parser.set_defaults(run=run_join)
    return parser


def run_join(args: argparse.Namespace) -> None:
    """Do it."""
    from paceline.trajectory.split_join import join

    join(args.trajectory, args.output, overwrite=args.overwrite, n_workers=args.n_workers)
