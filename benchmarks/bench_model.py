"""Compare the model with published times to which it was not fitted, and with serial / N.

    python -m benchmarks model [--tsv] [--figure model.svg]

Nothing is measured. Each cluster is predicted from its serial runs, with constants that are fitted
to the other clusters. For comparison, the serial time is divided by the number of ranks.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

from benchmarks.model_fit import (
    LOCK,
    TERMS,
    Errors,
    bandwidth,
    factor,
    h5md_left_out,
    late,
    left_out,
    t_lock,
    total_left_out,
)
from benchmarks.model_rows import CORES, cases, h5md_runs, totals
from benchmarks.table import Table

#: Descriptions of what ranks read, by the words of Table 5.
ACCESS = {"single": "one shared XTC file", "splitting": "one XTC file a rank", "phdf5": "HDF5"}


def summary_table() -> Table:
    """List errors of serial / N and of the model, for clusters left out of the fit."""
    headings = ("file", "cluster", "rows", "serial / N, error %", "within 15 %")
    table = Table("left-out clusters, t_io + t_comp", (*headings, "model, error %", "within 15 %"))
    groups = [*((a, c) for a in ACCESS for c in CORES), *((a, "all") for a in ACCESS)]
    for access, cluster in (*groups, ("all", "all")):
        plain, ours = (_errors(terms, access, cluster) for terms in ((), (LOCK,)))
        if plain.n > 0:
            numbers = (cell for one in (plain, ours) for cell in _cells(one))
            table.rows.append((ACCESS.get(access, "all"), cluster, f"{plain.n}", *numbers))
    return table


def terms_table() -> Table:
    """List errors with each term alone, and with all terms but one."""
    columns = ("all 50 rows, error %", "within 15 %", "shared file, error %", "within 15 %")
    table = Table("terms, on left-out clusters", ("terms", *columns, *CORES))
    for title, terms in _combinations():
        cells = [*_cells(_errors(terms)), *_cells(_errors(terms, "single"))]
        cells += [_cells(_errors(terms, cluster=cluster))[0] for cluster in CORES]
        table.rows.append((title, *cells))
    return table


def _combinations() -> Iterator[tuple[str, tuple[str, ...]]]:
    yield "none: serial / N", ()
    for name in TERMS:
        yield name, (name,)
    yield "all four", tuple(TERMS)
    for name in TERMS:
        yield f"all but {name}", tuple(one for one in TERMS if one != name)


def _errors(terms: tuple[str, ...], access: str = "all", cluster: str = "all") -> Errors:
    found = left_out(terms).items()
    return Errors.of(
        {
            case: predicted
            for case, predicted in found
            if access in (case.access, "all") and cluster in (case.cluster, "all")
        }
    )


def _cells(errors: Errors) -> tuple[str, str]:
    return f"{100 * errors.mean:.1f}", f"{errors.n_small} of {errors.n}"


def rows_table() -> Table:
    """List every row of Table 5, predicted without its cluster."""
    headings = ("cluster", "gather", "access", "ranks", "measured s", "serial / N s", "error %")
    table = Table("t_io + t_comp (Table 5)", (*headings, "model s", "error %"))
    for case, predicted in left_out((LOCK,)).items():
        cells = [case.cluster, case.gather, case.access, f"{case.n_ranks}", f"{case.measured:.2f}"]
        for value in (case.share, predicted):
            cells += [f"{value:.2f}", f"{100 * (value / case.measured - 1):.1f}"]
        table.rows.append(tuple(cells))
    return table


def ratios_table() -> Table:
    """List ratios of the times of shared and split files, where both were measured."""
    headings = ("cluster", "gather", "ranks", "measured", "serial / N", "error %")
    table = Table("shared file / split files, t_io + t_comp", (*headings, "model", "error %"))
    by_series = {(case.cluster, case.gather, case.access, case.n_ranks): case for case in cases()}
    predicted = left_out((LOCK,))
    errors: tuple[list[float], list[float]] = ([], [])
    for case in cases():
        split = by_series.get((case.cluster, case.gather, "splitting", case.n_ranks))
        if case.access != "single" or split is None:
            continue
        measured = case.measured / split.measured
        cells = [case.cluster, case.gather, f"{case.n_ranks}", f"{measured:.2f}"]
        values = case.share / split.share, predicted[case] / predicted[split]
        for value, found in zip(values, errors, strict=True):
            found.append(value / measured - 1)
            cells += [f"{value:.2f}", f"{100 * found[-1]:.1f}"]
        table.rows.append(tuple(cells))
    means = [f"{100 * mean(map(abs, found)):.1f}" for found in errors]
    table.rows.append(("all", "mean", "-", "-", "-", means[0], "-", means[1]))
    return table


def totals_table() -> Table:
    """List whole runs with stragglers, each predicted from the other run."""
    headings = (
        "run",
        "measured s",
        "serial / N s",
        "model s",
        "other ranks s",
        "model of others s",
    )
    table = Table("whole runs with stragglers (text), Comet, 72 ranks", headings)
    for run in totals():
        whole = total_left_out(run)
        others = left_out((LOCK,))[run.case]
        values = (run.measured, run.case.share, whole, run.others, others)
        name = {"mpi": "MPI", "ga": "Global Arrays"}[run.case.gather]
        table.rows.append((name, *(f"{value:.1f}" for value in values)))
    return table


def h5md_table() -> Table:
    """List shared H5MD files, each cluster predicted from the other."""
    headings = ("cluster, access", "ranks", "measured s", "serial / N s", "times off")
    table = Table("one H5MD file (Jakupovic & Beckstein 2021)", (*headings, "model s", "times off"))
    ratios: tuple[list[float], list[float]] = ([], [])
    for run in h5md_runs():
        cells = [f"{run.cluster}, {run.access}", f"{run.n_ranks}", f"{run.measured:.4g}"]
        for found, value in zip(ratios, (run.share, h5md_left_out(run)), strict=True):
            found.append(value / run.measured)
            cells += [f"{value:.3g}", f"{factor(found[-1:]):.1f}"]
        table.rows.append(tuple(cells))
    means = (f"{factor(found):.1f}" for found in ratios)
    table.rows.append(("all, geometric mean", "-", "-", "-", next(means), "-", next(means)))
    return table


def constants_table() -> Table:
    """List the constants of the model, fitted without each cluster and with all."""
    table = Table("constants", ("constant", "fitted to", "value", "unit"))
    for cluster in (*CORES, ""):
        rows = f"all but {cluster}" if cluster else "all clusters"
        table.rows.append(("t_lock", rows, f"{t_lock(without=cluster) * 1e6:.1f}", "µs"))
    for run in totals():
        table.rows.append(("late", f"the run with {run.case.gather}", f"{late([run]):.0f}", "s"))
    for cluster in dict.fromkeys(run.cluster for run in h5md_runs()):
        rate = bandwidth([run for run in h5md_runs() if run.cluster == cluster])
        table.rows.append(("server_bandwidth", cluster, f"{rate / 1e9:.2f}", "GB/s"))
    return table


TABLES = {
    "summary": summary_table,
    "terms": terms_table,
    "ratios": ratios_table,
    "rows": rows_table,
    "totals": totals_table,
    "h5md": h5md_table,
    "constants": constants_table,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tsv", action="store_true", help="separate columns by tabs")
    parser.add_argument("--figure", type=Path, help="draw it: .svg, .png")
    # Options of the other benchmarks are accepted, because one command may run all benchmarks.
    asked, _ = parser.parse_known_args()
    for make in TABLES.values():
        print(f"{make().render(asked.tsv)}\n")
    if asked.figure is not None:
        from benchmarks.model_figures import draw_published

        draw_published().savefig(asked.figure)


if __name__ == "__main__":
    main()
