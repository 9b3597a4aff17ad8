"""Run the benchmarks: ``python -m benchmarks [path convert …] [their options]``, all by default."""

import sys
from importlib import import_module
from itertools import takewhile
from pathlib import Path

PREFIX = "bench_"
NAMES = sorted(
    path.stem.removeprefix(PREFIX) for path in Path(__file__).parent.glob(f"{PREFIX}*.py")
)


def main() -> None:
    arguments = sys.argv[1:]
    # Only the leading words are names of benchmarks: a later one may be a case of an option.
    chosen = list(takewhile(NAMES.__contains__, arguments))
    options = arguments[len(chosen) :]
    for name in chosen or NAMES:
        sys.argv = [f"python -m benchmarks {name}", *options]
        import_module(f"benchmarks.{PREFIX}{name}").main()
        print()


if __name__ == "__main__":
    main()
