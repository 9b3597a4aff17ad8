"""Declarations of the JSON documents that commands print, and the schema that is made of them.

The classes declare the keys of a document with types and meanings. `paceline schema` converts them
to a JSON Schema. Where a command declares ``--json``, it refers to the class of its document by
name: it does not import this module, because that would add a tenth to the time to start a command.
"""

import sys
import types
from collections.abc import Mapping
from typing import (
    Annotated,
    Literal,
    NotRequired,
    TypedDict,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from paceline.cli.json_output import MOST_DESCRIBED, SCHEMA_VERSION, ErrorFacts
from paceline.errors import UnsupportedError

#: Identifier of the schema; it is only a name, and not an address from which it can be loaded.
SCHEMA_ID = f"urn:paceline:json:{SCHEMA_VERSION}"

Interval = Annotated[
    tuple[float | None, float | None], "lower and upper limit of the 95 % interval of the mean"
]
Unit = Annotated[str, "unit; empty for numbers without a unit"]
FileName = Annotated[str, "path as it was given, or as it was written"]


class Document(TypedDict):
    """Keys that the documents of all commands have."""

    schema: Annotated[str, "version of the schema, MAJOR.MINOR"]
    command: Annotated[str, "name of the command"]
    paceline: Annotated[str, "version of paceline"]
    warnings: Annotated[list[str], "warnings, as on standard error, without repeats"]
    written: Annotated[
        list[FileName], "files that the command wrote; 'paceline replay' takes those with results"
    ]
    seconds: Annotated[float, "time of the command, s, without the start of Python"]


class FailedDocument(Document):
    """Document of a command that failed; it may have keys of the command's own document."""

    error: ErrorFacts


class GroupSize(TypedDict):
    """Named group of atoms."""

    name: str
    atoms: int


class Index(TypedDict):
    """Frame index of a trajectory."""

    origin: Annotated[str, "scanned, loaded, extended, or how else the index was obtained"]
    file: Annotated[str | None, "file in which the index is kept"]


class DescribedFile(TypedDict, total=False):
    """Facts about a topology or a trajectory; HDF5 files have further keys for their datasets."""

    topology: FileName
    file: FileName
    format: str
    atoms: Annotated[int | list[int], "number of atoms; least and largest number where it varies"]
    residues: int
    segments: int
    groups: list[GroupSize]
    frames: int
    first_time_ps: float | None
    last_time_ps: float | None
    time_between_frames_ps: Annotated[
        list[float], "one number, or the least and the largest, or none"
    ]
    first_step: int | None
    cell: Annotated[list[float] | None, "three lengths, Å, and three angles, degrees"]
    size_bytes: int
    fingerprint: Annotated[str, "digest by which paceline recognises the file's content"]
    index: Index


class InfoDocument(Document):
    """Document of `paceline info`."""

    files: list[DescribedFile]


class MadeIndex(TypedDict):
    """Frame index that was made or found."""

    file: FileName
    frames: int
    origin: str
    bytes_read: int | None
    size_bytes: int
    index_file: str | None


class IndexDocument(Document):
    """Document of `paceline index`."""

    files: list[MadeIndex]


class FileFinding(TypedDict):
    """Error or remark about a file."""

    frame: int | None
    byte: int | None
    time_ps: float | None
    bad: Annotated[bool, "true for an error, false for unusual data"]
    what: str


class ValidatedFile(TypedDict):
    """Findings about one file."""

    file: FileName
    frames: int
    size_bytes: int
    seconds: float
    findings: list[FileFinding]


class ValidateDocument(Document):
    """Document of `paceline validate`."""

    bad: Annotated[bool, "true if a file has errors"]
    files: list[ValidatedFile]


class SplitDocument(Document):
    """Document of `paceline split`."""

    pieces: list[FileName]


class WrittenTrajectory(Document):
    """Document of commands that write a trajectory without decoding it."""

    output: FileName
    size_bytes: int


class Timing(TypedDict):
    """Times of a run over frames, s."""

    backend: str
    workers: int
    frames: int
    seconds: Annotated[float, "time of the run"]
    topology_s: Annotated[float | None, "time to read the topology"]
    trajectory_s: Annotated[float | None, "time to open the trajectory"]
    collecting_s: Annotated[float, "time to collect results"]


class ConvertDocument(WrittenTrajectory):
    """Document of `paceline convert`."""

    frames: int
    atoms: int
    timings: Timing


class ChosenFramesDocument(Document):
    """Document of `paceline frames`."""

    columns: list[str]
    rows: Annotated[list[list[float | None]], "one list per chosen row, in the order of columns"]
    output: FileName | None
    frames: Annotated[int | None, "number of frames in the output"]
    atoms: int | None


class RepackedAccess(TypedDict):
    """Bytes read per byte used for one way of reading, before and after repacking."""

    access: str
    before: float | None
    after: float | None


class RepackedDataset(TypedDict):
    """Dataset with its layouts."""

    dataset: str
    before: Annotated[str, "layout before"]
    after: Annotated[str, "layout after"]
    costs: list[RepackedAccess]


class RepackDocument(WrittenTrajectory):
    """Document of `paceline repack`."""

    size_before_bytes: int
    datasets: list[RepackedDataset]


class Column(TypedDict):
    """Column of a table."""

    title: str
    name: str
    unit: Unit
    type: Annotated[str, "dtype of NumPy"]
    minimum: float | None
    maximum: float | None


class TableShape(TypedDict):
    """Rows and columns of the table of results."""

    rows: int
    n_columns: int
    columns: Annotated[list[Column], f"the first {MOST_DESCRIBED} columns"]


class MeanOfSeries(TypedDict):
    """Mean of a time series over all analysed frames."""

    series: Annotated[str, "title of the column"]
    unit: Unit
    mean: float | None
    interval: Interval
    error: Annotated[float | None, "standard error of the mean"]
    block_error: Annotated[float | None, "standard error by block averaging"]
    n_values: int
    n_independent: float | None
    converged: bool


class SampledSeries(TypedDict):
    """Verdict on a time series: since when it is equilibrated, and whether it is long enough."""

    series: Annotated[str, "title of the column, after the file if there are several"]
    unit: Unit
    time_title: Annotated[str, "title of the times or frame numbers, with their unit"]
    verdict: Literal["sampled", "not shown to be sampled", "drifting"]
    mean: Annotated[float | None, "mean of the equilibrated part"]
    interval: Interval
    mean_of_all: float | None
    equilibrated_from: Annotated[int | None, "index of the first equilibrated value"]
    equilibrated_at: Annotated[float | None, "time of that value"]
    n_values: int
    n_independent: float | None
    least_independent: float | None
    needed_time: float | None
    needed_interval: tuple[float | None, float | None]
    reasons: list[str]
    length: float | None
    r_hat: float | None
    bulk_size: Annotated[float | None, "rank-normalised effective size of replicas, for the mean"]
    tail_size: Annotated[float | None, "the same for their 5 % and 95 % quantiles"]
    is_constant: Annotated[bool, "true if all values are equal"]
    state: Annotated[str, "state whose population the mean is; empty for numbers and angles"]
    replica_means: Annotated[list[float | None], "means of the replicas that are compared"]


class NamedFinding(TypedDict):
    """Sentence about a single value, such as a diffusion coefficient with its interval."""

    name: str
    text: str


class Computed(TypedDict):
    """Results of one analysis."""

    analysis: Annotated[str | None, "class of paceline.analysis"]
    provenance: Annotated[
        dict[str, object], "files, fingerprints, atoms, frames, parameters and versions"
    ]
    table: TableShape | None
    means: Annotated[list[MeanOfSeries], f"of the first {MOST_DESCRIBED} series"]
    sampling: Annotated[list[SampledSeries], "of tables with up to 16 series"]
    findings: list[NamedFinding]
    summary: Annotated[list[str], "the sentences that the command prints"]


class LeftOutFrame(TypedDict):
    """Damaged frame that --on-error skip left out."""

    frame: int
    reason: str


class AnalysisDocument(Computed, Document):
    """Document of an analysis."""

    left_out_frames: NotRequired[list[LeftOutFrame]]
    timings: NotRequired[Timing]


class NamedResults(Computed):
    """Results of one analysis of a battery."""

    name: str
    group: Annotated[str | None, "group of the replica"]
    replica: Annotated[int | None, "number of the replica, from 1"]


class LeftOutAnalysis(TypedDict):
    """Analysis that a battery left out."""

    name: str
    reason: str


class GroupMean(TypedDict):
    """Mean between the replicas of a group."""

    analysis: str
    series: str
    unit: Unit
    group: str
    mean: float | None
    interval: Interval
    deviation: Annotated[float | None, "standard deviation between replicas"]
    n_replicas: int
    equilibrated_mean: Annotated[float | None, "mean over the equilibrated frames of each replica"]
    equilibrated_interval: Interval


class DifferenceOfGroups(TypedDict):
    """Difference of the means of two groups."""

    analysis: str
    series: str
    unit: Unit
    groups: Annotated[str, "SECOND - FIRST"]
    difference: float | None
    interval: Interval
    p_value: float | None
    detectable: Annotated[float | None, "difference that would be found with 80 % power"]
    equilibrated_difference: Annotated[float | None, "difference over equilibrated frames"]
    equilibrated_interval: Interval


class BatteryDocument(Document):
    """Document of `paceline battery` and `paceline run`."""

    folder: FileName
    page: FileName
    analyses: list[NamedResults]
    left_out_analyses: list[LeftOutAnalysis]
    left_out_frames: list[LeftOutFrame]
    group_means: list[GroupMean]
    differences: list[DifferenceOfGroups]
    summary: list[str]
    timings: Timing


class AnalysesDocument(Document):
    """Document of `paceline analyses`: names, classes, parameters and results of all analyses."""

    analyses: list[dict[str, object]]


class ConvergenceDocument(Document):
    """Document of `paceline convergence`."""

    series: list[SampledSeries]
    answer: Annotated[str, "verdict on the system, in words"]


class ReplayDifference(TypedDict):
    """Value of a result that differs from the computed one."""

    place: Annotated[str, "row and column, index of an array, or name of a fact"]
    file: Annotated[str, "value in the file"]
    computed: Annotated[str, "value that was computed again"]


class ReplayedResult(TypedDict):
    """Outcome of checking a result."""

    name: FileName
    verdict: Literal["equal", "equal within tolerance", "differs", "not checked"]
    compared: Annotated[str, "size of the result, in words"]
    reasons: Annotated[list[str], "why numbers differ, or where files were found"]
    differences: Annotated[list[ReplayDifference], "the first ten differences"]
    largest: Annotated[
        ReplayDifference | None, "largest difference of two numbers, relative to their column"
    ]
    n_differences: Annotated[int, "number of all differences"]


class ReplayDocument(Document):
    """Document of `paceline replay`."""

    results: list[ReplayedResult]
    equal: Annotated[int, "number of results that are equal"]
    different: Annotated[int, "number of results that differ"]
    not_checked: Annotated[int, "number of results that could not be checked"]


class QuantityOfSurvey(TypedDict):
    """Quantity of a survey, with its mean between systems."""

    analysis: str
    quantity: str
    unit: Unit
    systems: Annotated[int, "number of systems with a mean"]
    mean: Annotated[float, "mean of the systems' means; of angles the circular mean"]
    standard_deviation: Annotated[float | None, "of the systems' means"]


class FailureOfSurvey(TypedDict):
    """Trajectory, or analysis of a trajectory, without results."""

    id: str
    replica: str
    analysis: Annotated[str, "empty if no analysis of the trajectory has results"]
    kind: Annotated[str, "name of the exception"]
    message: str


class SurveyDocument(Document):
    """Document of `paceline survey`."""

    folder: FileName
    tables: Annotated[dict[str, int], "number of rows of each table; empty for a shard"]
    quantities: NotRequired[list[QuantityOfSurvey]]
    failures: NotRequired[Annotated[list[FailureOfSurvey], "the first ones of the table"]]
    shard: NotRequired[Annotated[tuple[int, int], "number of the shard, and of all shards"]]


class PlotDocument(Document):
    """Document of `paceline plot`."""

    tables: list[FileName]


class ForecastRow(TypedDict):
    """Forecast for one number of workers, s."""

    workers: int
    from_memory_s: float | None
    from_the_disk_s: NotRequired[float | None]
    from_the_store_s: NotRequired[float | None]
    now_s: float | None
    at_least_s: float | None
    at_most_s: float | None
    efficiency: float | None


class StoreFigures(TypedDict):
    """Speed of an object store."""

    latency_s: float | None
    connection_bytes_per_s: float | None
    bytes_per_s: float | None


class StoreUse(TypedDict):
    """Requests, bytes and price of a run from an object store."""

    requests: int
    bytes: float | None
    price: float | None


class AdviseDocument(Document):
    """Document of `paceline advise`."""

    times: list[ForecastRow]
    store: NotRequired[StoreFigures]
    run: NotRequired[StoreUse]


class Predicted(TypedDict):
    """Predicted run; times in s."""

    schedule: str
    layout: str
    workers: int
    seconds: float | None
    speed_up: float | None
    efficiency: float | None


class PredictDocument(Document):
    """Document of `paceline predict`."""

    predictions: list[Predicted]
    price: float | None


class ReportDocument(Document):
    """Document of `paceline report`."""

    timings: Timing


class MeasuredRun(TypedDict):
    """Run of a benchmark."""

    mode: Literal["strong", "weak"]
    backend: str
    workers: int
    repeat: int
    values: Annotated[dict[str, float | None], "quantities by name, with units"]
    digest: str


class BenchDocument(Document):
    """Document of `paceline bench`."""

    title: str
    runs: list[MeasuredRun]


class ProgressState(TypedDict):
    """Completed units of a job."""

    unit: Literal["frame", "byte", "item"]
    done: int
    total: int
    run: Annotated[int, "number of the pass over the frames, from 1"]
    runs: Annotated[int, "number of passes"]
    seconds: Annotated[float, "time since the beginning of the job, s"]


class ProgressLine(TypedDict):
    """Line on standard error with --progress json."""

    progress: ProgressState


def document_named(name: str) -> type:
    """Return the class of this module that declares a document, by its name."""
    found = vars(sys.modules[__name__]).get(name)
    if not isinstance(found, type):
        raise UnsupportedError(f"no document {name!r} is declared")
    return found


def schema_of(documents: Mapping[str, object]) -> dict[str, object]:
    """Make the JSON Schema (draft 2020-12) of what commands print.

    `documents` maps names of commands to classes of documents. By the schema, an output is valid if
    it is the document of its command, the document of a failed command, or a line of progress.
    Objects may have further keys, because minor versions add keys.
    """
    definitions: dict[str, object] = {}
    commands: dict[str, list[str]] = {}
    for command, document in documents.items():
        name = str(_schema(document, definitions)["$ref"])
        commands.setdefault(name, []).append(command)
    choices: list[object] = [_schema(FailedDocument, definitions)]
    choices += [
        {"$ref": name, "properties": {"command": {"enum": some}}, "not": {"required": ["error"]}}
        for name, some in commands.items()
    ]
    choices.append(_schema(ProgressLine, definitions))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        "title": "Output of paceline's commands with --json, and lines of --progress json",
        "description": f"Version {SCHEMA_VERSION}. Unknown and infinite numbers are null.",
        "anyOf": choices,
        "$defs": definitions,
    }


def _schema(declared: object, definitions: dict[str, object]) -> dict[str, object]:
    """Convert a declared type to a schema; add the schemas of its classes to `definitions`."""
    origin, arguments = get_origin(declared), get_args(declared)
    if origin is Annotated:
        return {**_schema(arguments[0], definitions), "description": arguments[1]}
    if origin is NotRequired:
        return _schema(arguments[0], definitions)
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(one, definitions) for one in arguments]}
    if origin is Literal:
        return {"enum": [*arguments]}
    if origin is list:
        return {"type": "array", "items": _schema(arguments[0], definitions)}
    if origin is tuple:
        items = [_schema(one, definitions) for one in arguments]
        return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(arguments[1], definitions)}
    if isinstance(declared, type) and is_typeddict(declared):
        return _reference(declared, definitions)
    for kind, name in _SCALARS:
        if declared is kind:
            return {"type": name}
    if declared is object:
        return {}
    raise UnsupportedError(f"the schema of a document cannot describe {declared!r}")


#: Python types, with the names of the JSON types to which they are converted.
_SCALARS = (
    *((str, "string"), (bool, "boolean"), (int, "integer"), (float, "number")),
    (type(None), "null"),
)


def _reference(declared: type, definitions: dict[str, object]) -> dict[str, object]:
    """Return a reference to the schema of a class; add that schema if it is missing."""
    name = declared.__name__
    if name not in definitions:
        definitions[name] = {}  # a class may contain itself
        hints = get_type_hints(declared, include_extras=True)
        required: frozenset[str] = vars(declared)["__required_keys__"]
        definitions[name] = {
            "type": "object",
            "description": " ".join((declared.__doc__ or "").split()),
            "properties": {key: _schema(one, definitions) for key, one in hints.items()},
            "required": [key for key in hints if key in required],
        }
    return {"$ref": f"#/$defs/{name}"}
