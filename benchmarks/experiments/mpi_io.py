"""Reading the bytes of a trajectory through MPI-IO, by plain reads, and by paceline."""

from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.experiments.experiment import Experiment, Row, Setting, cell, digits, spread
from benchmarks.experiments.published import published
from benchmarks.experiments.scaling import Published, Scaling
from benchmarks.experiments.style import OTHER, OURS, PAPER, bars, panels
from benchmarks.ranks import EVERY_RANK, on_ranks
from benchmarks.table import Table

PROGRAM = Path(__file__).with_name("reading.py")
FILES = {"xtc": "XTC", "dcd": "DCD"}
WAYS = {
    "plain reads": PAPER,
    "MPI-IO": OTHER,
    "MPI-IO, collective": OTHER,
    "paceline": OURS,
}
RANKS = (1, 2)
#: Size of a frame in the papers' HDF5 file, bytes (146 atoms, three 4-byte numbers); its frames.
HDF5_FRAME, HDF5_FRAMES = 146 * 3 * 4, 2_512_200


def measure(setting: Setting) -> list[Row]:
    files = [setting.data.trajectory(suffix) for suffix in FILES]
    ranks = setting.ranks_or(RANKS)
    numbers = ",".join(map(str, ranks))
    told = (setting.data.topology, setting.repeats, numbers, *files)
    rows = []
    for one in on_ranks(max(ranks), EVERY_RANK, *told, programs=PROGRAM):
        path = Path(one.pop("file"))
        rate = path.stat().st_size / one["seconds"] / 1e6
        rows.append({**one, "format": path.suffix[1:], "rate": rate})
    return rows


def published_rates() -> list[tuple[int, float]]:
    """Return ranks, and their total MB/s, from the shared HDF5 file on Comet."""
    rows = published("khoshlessan2020_table5", cluster="Comet", access="phdf5")
    size = HDF5_FRAME * HDF5_FRAMES / 1e6
    return [(row["n_processes"], size / row["t_io"]) for row in rows]


def scaling_published() -> list[Published]:
    """Return the time of a MB of the shared HDF5 file on Comet, ms, beside each format."""
    times = {n: 1e3 / rate for n, rate in published_rates()}
    return [Published("Comet, HDF5 through MPI-IO", times, (suffix,)) for suffix in FILES]


def table(rows: list[Row]) -> Table:
    (first, rate), *_, (most, highest) = published_rates()
    found = Table(
        "MB/s of all ranks together; here from the page cache",
        ("format", "way", "1 rank", "2 ranks", f"{most} ranks"),
    )
    for suffix, name in FILES.items():
        for way in WAYS:
            rates = [cell(spread(rows, "rate", format=suffix, way=way, ranks=n)) for n in RANKS]
            found.rows.append((name, way, *rates, "–"))
    theirs = digits(rate) if first == 1 else "–"
    found.rows.append(("HDF5", "published: MPI-IO, Comet", theirs, "–", digits(highest)))
    return found


def draw(rows: list[Row]) -> Figure:
    figure, panes = panels(2, 2.9)
    for axes, (suffix, name) in zip(panes, FILES.items(), strict=True):
        cases = [(way, n) for way in WAYS for n in RANKS]
        values = [spread(rows, "rate", 1e-3, format=suffix, way=way, ranks=n) for way, n in cases]
        names = [f"{way}, {n}" for way, n in cases]
        bars(
            axes,
            names if axes is panes[0] else [""] * len(names),
            values,
            [WAYS[way] for way, _ in cases],
        )
        axes.set(title=name, xlabel="GB/s of all ranks")
    panes[0].set_ylabel("way, ranks")
    return figure


def finding(rows: list[Row]) -> str:
    rates = {
        (suffix, way): cell(spread(rows, "rate", format=suffix, way=way, ranks=2))
        for suffix in FILES
        for way in WAYS
    }
    (first, rate), *_, (most, highest) = published_rates()
    return (
        f"Two ranks read DCD with {rates['dcd', 'plain reads']} MB/s by plain reads, "
        f"{rates['dcd', 'MPI-IO']} through MPI-IO, {rates['dcd', 'MPI-IO, collective']} "
        f"collectively, and {rates['dcd', 'paceline']} by paceline, which also decodes one atom "
        f"per frame; XTC with {rates['xtc', 'plain reads']}, {rates['xtc', 'MPI-IO']}, "
        f"{rates['xtc', 'MPI-IO, collective']} and {rates['xtc', 'paceline']} MB/s. On Comet "
        f"{first} rank read {digits(rate)} MB/s of HDF5, {most} ranks {digits(highest)} MB/s."
    )


EXPERIMENT = Experiment(
    title="MPI-IO",
    source="Khoshlessan et al. 2020, section 6.3.2, Fig. 5, Table 5",
    question=(
        "The authors converted the trajectory into HDF5 to read it through MPI-IO, and scaled to "
        "384 ranks without stragglers. This experiment tests if MPI-IO itself helps, also for XTC "
        "and DCD."
    ),
    measure=measure,
    table=table,
    draw=draw,
    finding=finding,
    why=(
        "Independent MPI-IO reads are plain reads with a layer above, and collective ones make "
        "ranks wait for each other; one host has no servers that either could relieve. The "
        "papers' HDF5 file changed more than the interface: it holds only the needed atoms, "
        "uncompressed, at positions that need no index. paceline reads large pieces ahead of "
        "decoding through the system's own calls, and its rate here is that of a whole run, "
        "including scheduling and collecting."
    ),
    scaling=Scaling(
        "ms a MB",
        lambda row: 1e3 / row["rate"],
        line="way",
        variants=("format",),
        parts={},
        published=scaling_published,
    ),
)
