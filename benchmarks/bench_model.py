"""Compare the model with published times, row by row.

    python -m benchmarks model [--tsv] [--figure model.svg]

It measures nothing. The input is the serial rows of Khoshlessan et al. 2020, Table 5, and three
constants that are fitted on SDSC Comet; LSU SuperMIC and PSC Bridges are the test.
"""

import argparse
from dataclasses import replace
from pathlib import Path

from benchmarks.model_fit import fit
from benchmarks.model_rows import FACTOR, FITTED_ON, Case, Constants, at_work, cases, stated
from benchmarks.table import Table

ROW_HEADINGS = (
    *("cluster", "gather", "access", "ranks", "role"),
    *("measured s", "predicted s", "error %", "allowed %", "verdict"),
)
STATED_HEADINGS = ("access", "gather", "ranks", "quantity", "stated s", "predicted s", "verdict")


def constants_table(values: Constants, errors: Constants) -> Table:
    """The three constants with their standard errors."""
    table = Table(f"constants, fitted on {FITTED_ON}", ("constant", "value", "error", "unit"))
    for name, unit, factor in (("t_lock", "µs", 1e6), ("t_request", "µs", 1e6), ("t_open", "s", 1)):
        value, error = (getattr(found, name) * factor for found in (values, errors))
        table.rows.append((name, f"{value:.2f}", f"{error:.2f}", unit))
    return table


def rows_table(constants: Constants) -> Table:
    """Every row of Table 5."""
    table = Table("t_io + t_comp, mean over ranks (Table 5)", ROW_HEADINGS)
    for case in cases():
        predicted = at_work(case.predict(constants))
        apart = predicted - case.measured
        table.rows.append(
            (
                *(case.cluster, case.gather, case.access, str(case.n_ranks)),
                "fitted" if case.cluster == FITTED_ON else "tested",
                *(f"{seconds:.2f}" for seconds in (case.measured, predicted)),
                *(f"{100 * part / case.measured:.1f}" for part in (apart, case.allowed)),
                _verdict(abs(apart) <= case.allowed),
            )
        )
    return table


def stated_table(constants: Constants) -> Table:
    """Every time of a parallel run that the text states, and one without reading."""
    table = Table(f"times that the text states, {FITTED_ON}", STATED_HEADINGS)
    for statement in stated():
        case, predicted = statement.case, statement.of(statement.case.predict(constants))
        table.rows.append(
            (
                *(case.access, case.gather, str(case.n_ranks), statement.what),
                *(f"{seconds:.3g}" for seconds in (statement.measured, predicted)),
                _verdict(statement.met(predicted)),
            )
        )
    table.rows.append(_row_without_reading(stated()[0].case, constants))
    return table


def _row_without_reading(case: Case, constants: Constants) -> tuple[str, ...]:
    """The run of Fig. 3: positions from memory, no file. It had no stragglers: about its t_comp."""
    unread = replace(case, access="none", t_io=0.0, serial_io=0.0)
    predicted = unread.predict(constants).t_total
    met = unread.t_comp / FACTOR <= predicted <= unread.t_comp * FACTOR
    what = "total without stragglers (t_comp of Table 5)"
    seconds = (f"{value:.3g}" for value in (unread.t_comp, predicted))
    return ("none", case.gather, str(case.n_ranks), what, *seconds, _verdict(met))


def _verdict(is_met: bool) -> str:
    return "met" if is_met else "NOT MET"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tsv", action="store_true", help="separate columns by tabs")
    parser.add_argument("--figure", type=Path, help="draw it: .svg, .png")
    # Options of the other benchmarks are accepted, because one command may run all.
    asked, _ = parser.parse_known_args()
    values, errors = fit()
    for table in (constants_table(values, errors), rows_table(values), stated_table(values)):
        print(f"{table.render(asked.tsv)}\n")
    if asked.figure is not None:
        from benchmarks.model_figures import draw_published

        draw_published(values).savefig(asked.figure)


if __name__ == "__main__":
    main()
