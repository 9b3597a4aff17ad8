"""The sorted method against the number of ranks that write."""

from matplotlib.figure import Figure

from benchmarks.experiments.experiment import (
    Experiment,
    Row,
    Setting,
    cell,
    digits,
    median,
    spread,
    values_of,
)
from benchmarks.experiments.published import published, stated
from benchmarks.experiments.snapshot_methods import cells_of
from benchmarks.experiments.style import OURS, panels, points
from benchmarks.snapshot_cases import Case, measure_cases
from benchmarks.table import Table

RANKS = 16
WRITERS = (1, 2, 4, 8, 16)
#: Parts of a writer's time, in the order in which they happen.
PARTS = {
    "t_communicate": ("communicate", "#cc79a7"),
    "t_sort": ("sort", "#e69f00"),
    "t_format": ("format", "#009e73"),
    "t_write": ("write", "#0072b2"),
    "t_rest": ("the rest", "#777777"),
}
