"""Print cases in which files contain little information: right value, paceline's, MDAnalysis's.

    python -m benchmarks.right_values              # all
    python -m benchmarks.right_values cell time    # those with one of these words in their names

The exit status is 1 if a value of paceline is not right.
"""

import argparse
import importlib
import pkgutil
import sys
import tempfile
import warnings
from pathlib import Path

from benchmarks import right_values
from benchmarks.right_values.case import RightValue


def cases() -> list[RightValue]:
    """Return the cases of all modules in this package, in order."""
    names = sorted(module.name for module in pkgutil.iter_modules(right_values.__path__))
    modules = [
        importlib.import_module(f"{right_values.__name__}.{name}")
        for name in names
        if name not in ("__main__", "case")
    ]
    return [case for module in modules for case in module.CASES]


def show(value: float | str | None) -> str:
    """Format a value for a column of the table."""
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:.6g}"


def main() -> int:
    """Print the table and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="words of the names of cases (default: all)")
    words = parser.parse_args().words
    wrong = 0
    for case in cases():
        if words and not any(word in case.name for word in words):
            continue
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = case.compute(Path(folder))
        verdict = "right" if case.holds(found) else "WRONG"
        wrong += verdict == "WRONG"
        print(f"{verdict}  {case.name} [{case.unit}]" if case.unit else f"{verdict}  {case.name}")
        print(f"       right {show(case.right)} ({case.because})")
        print(f"       paceline {show(found.value)}, MDAnalysis {show(found.mdanalysis)}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
