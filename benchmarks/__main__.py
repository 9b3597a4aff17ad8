"""Run the benchmarks: ``python -m benchmarks [path convert …] [their options]``, all by default."""

import sys
from importlib import import_module
from pathlib import Path

PREFIX = "bench_"
NAMES = sorted(
    path.stem.removeprefix(PREFIX) for path in Path(__file__).parent.glob(f"{PREFIX}*.py")
)


def main() -> None:
    arguments = sys.argv[1:]
    chosen = [argument for argument in arguments if argument in NAMES]
    options = [argument for argument in arguments if argument not in NAMES]
    for name in chosen or NAMES:
        sys.argv = [f"python -m benchmarks {name}", *options]
        import_module(f"benchmarks.{PREFIX}{name}").main()
        print()


if __name__ == "__main__":
    main()
