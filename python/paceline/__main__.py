"""Run a script that was written for MDAnalysis, with paceline's readers and workers.

    python -m paceline script.py [its arguments]
    python -m paceline -m module [its arguments]
    python -m paceline -m jupyter nbconvert --to notebook --execute notebook.ipynb
    python -m paceline info md.xtc            # a command, as `paceline info md.xtc`
    mpirun -n 64 python -m paceline script.py

The script is not changed: `paceline.register` is active while the script runs. Under ``mpirun``
rank 0 runs the script, and all ranks compute its analyses. Jupyter runs a notebook in a separate
process, the kernel, in which paceline is registered in the same way.
"""

import argparse
import ast
import gc
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from paceline._util.files import new_file
from paceline._util.launcher import BAD_ARGUMENTS, launched, run_script, world
from paceline.errors import UnsupportedError

if TYPE_CHECKING:
    from mpi4py import MPI

_WITH_VALUE = ("-j", "--workers")

#: Module of Jupyter's Python kernel.
_KERNEL = "ipykernel_launcher"
#: Environment variable that contains paceline's options for a Jupyter kernel.
_KERNEL_OPTIONS = "PACELINE_KERNEL_OPTIONS"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the script or module that the command line names; return its exit status."""
    ours, script, module = _split(sys.argv[1:] if argv is None else list(argv))
    is_kernel = module and script[:1] == [_KERNEL]
    if is_kernel:
        ours = os.environ.get(_KERNEL_OPTIONS, "").split() + ours
    parser = _parser()
    options, unknown = parser.parse_known_args(ours)
    if unknown:
        parser.error(
            f"no option {unknown[0]}: options of a script or a command come after its name, as in "
            f'"python -m paceline rmsd {unknown[0]}"'
        )
    if options.workers is not None and options.workers < 1:
        parser.error(f"argument -j/--workers: expected at least 1, found {options.workers}")
    if not script:
        parser.print_usage(sys.stderr)
        print("paceline: error: expected a script, or -m and a module", file=sys.stderr)
        return BAD_ARGUMENTS
    if not module and not os.path.exists(script[0]):
        return _run_command(ours, script)
    if not module:
        # Workers must be able to import functions from modules beside the script.
        sys.path[0] = os.path.dirname(os.path.abspath(script[0]))
    # If a rank starts a Jupyter kernel, the kernel is not a rank.
    if launched()[0] == 1 or options.every_rank or is_kernel:
        return _run(script, module, options)
    if not module and _uses_mpi(script[0]):
        print(
            f"paceline: error: {script[0]} imports mpi4py, so it expects to run on every rank: "
            "add --every-rank before its name",
            file=sys.stderr,
        )
        return BAD_ARGUMENTS
    from paceline.backends.mpi import run_on_first_rank

    return run_on_first_rank(lambda: _run(script, module, options))


def _run_command(ours: list[str], argv: list[str]) -> int:
    """Run a paceline command if no script has its name; return the exit status."""
    name, hint = argv[0], ""
    if name.replace("-", "_").isidentifier():
        from paceline.cli.command_line import main as run
        from paceline.cli.command_line import modules
        from paceline.cli.parser_and_file_arguments import close_matches

        if name not in modules():
            near = close_matches(name, [*modules()])
            hint = ", and no command of this name" + "".join(f": did you mean {n}?" for n in near)
        elif not ours:
            return run(argv)
        else:
            hint = f": {ours[0]} applies to scripts; options of a command come after its name"
    print(f"paceline: error: {name}: there is no such script{hint}", file=sys.stderr)
    return BAD_ARGUMENTS


def _split(argv: list[str]) -> tuple[list[str], list[str], bool]:
    """Split arguments into paceline's and the script's; the third value is True for a module."""
    k = 0
    while k < len(argv):
        if argv[k] == "-m":
            return argv[:k], argv[k + 1 :], True
        if not argv[k].startswith("-"):
            break
        k += 2 if argv[k] in _WITH_VALUE else 1
    return argv[:k], argv[k:], False


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m paceline",
        usage="python -m paceline [options] (script.py | -m module) [its arguments]\n"
        "       python -m paceline command [its arguments]",
        description="Run a script that was written for MDAnalysis: paceline reads its trajectories "
        "where it can, and its analyses use all cores, or all ranks under mpirun. Paceline's "
        "commands "
        "work, too: 'python -m paceline info md.xtc' is 'paceline info md.xtc'; "
        "'paceline --help' lists them.",
        epilog="example: python -m paceline -j 4 rmsd.py md.tpr md.xtc",
        allow_abbrev=False,
    )
    parser.add_argument(
        *("-j", "--workers"), type=int, metavar="N", help="workers; default: all CPUs"
    )
    parser.add_argument(
        "--no-native",
        action="store_true",
        help="run MDAnalysis's own class where paceline has one of the same name, such as RMSD",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="raise an error if a trajectory would be left to MDAnalysis's own reader",
    )
    parser.add_argument(
        "--every-rank",
        action="store_true",
        help="under mpirun, run the script on each rank, as scripts with mpi4py require; rank 0 "
        "reads the files of Universes that all ranks open in the same order",
    )
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="do not print at the end how analyses were run"
    )
    return parser


def _run(script: list[str], module: bool, options: argparse.Namespace) -> int:
    """Run the script with paceline registered; return its exit status."""
    # Garbage collection is disabled during the imports, because imported modules stay in memory
    # until the end. Collecting would add a tenth to the time of the imports, and a third to that of
    # Python's exit.
    gc.disable()
    # Remove the variable of another registered script, which may have started this process.
    os.environ.pop("PACELINE_SCRIPT", None)
    from paceline.mdanalysis.open_on_all_ranks import on_ranks
    from paceline.mdanalysis.registration import register

    gc.freeze()
    gc.enable()
    registration = register(
        native=not options.no_native, n_workers=options.workers, strict=options.strict
    )
    given = [f"--workers={options.workers}"] if options.workers else []
    given += ["--no-native"] * options.no_native + ["--strict"] * options.strict
    together = on_ranks(_ranks(), required=False) if options.every_rank else nullcontext()
    with registration, together, kernels(given) if module else nullcontext():
        status = run_script(script, module=module)
    if not options.quiet:
        print(registration.summary(), file=sys.stderr)
    return status


def _ranks() -> "MPI.Intracomm | None":
    """Return the communicator of the ranks that run this script; None without MPI."""
    if launched()[0] > 1:
        with suppress(UnsupportedError):
            return world()
    return None


@contextmanager
def kernels(options: Sequence[str]) -> Iterator[None]:
    """Start the Jupyter kernels of a `with` block with this module and these options."""
    try:
        folder = _kernel_folder()
    except OSError as error:
        print(f"paceline: Jupyter kernels start without paceline: {error}", file=sys.stderr)
        folder = None
    paths = [str(folder)] if folder else []
    paths += [os.environ["JUPYTER_PATH"]] if os.environ.get("JUPYTER_PATH") else []
    changed = {"JUPYTER_PATH": os.pathsep.join(paths), _KERNEL_OPTIONS: " ".join(options)}
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _kernel_folder() -> Path | None:
    """Return a Jupyter data folder whose kernel "python3" is this module.

    Return None without ipykernel, or without a cache folder.

    The folder is not removed, because programs such as `jupyter` replace this process by another
    program, which still needs the folder.
    """
    from paceline.trajectory.open import cache_folder

    try:
        version = metadata.version("ipykernel")
    except metadata.PackageNotFoundError:
        return None
    cache = cache_folder()
    if cache is None:
        return None
    folder = cache / f"jupyter-{version}"
    file = folder / "kernels" / "python3" / "kernel.json"
    if not file.exists():
        from ipykernel.kernelspec import get_kernel_dict

        # Jupyter replaces "python" by its own interpreter.
        ours = ["python", "-m", "paceline", "--quiet", "-m", _KERNEL, "-f", "{connection_file}"]
        spec = get_kernel_dict() | {"argv": ours, "display_name": "Python 3 (paceline)"}
        file.parent.mkdir(parents=True, exist_ok=True)
        with new_file(file, overwrite=True) as target:
            json.dump(spec, target, indent=1)
    return folder


def _uses_mpi(script: str) -> bool:
    """Check whether a script imports mpi4py; False if the script cannot be read."""
    try:
        tree = ast.parse(Path(script).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False
    names = [
        name
        for node in ast.walk(tree)
        for name in (
            [one.name for one in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    ]
    return any(name.partition(".")[0] == "mpi4py" for name in names)


if __name__ == "__main__":
    sys.exit(main())
