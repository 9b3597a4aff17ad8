"""Run the main table: ``python -m benchmarks``."""

from benchmarks.bench_path import main

if __name__ == "__main__":
    main()
