"""Describe a folder of results as an RO-Crate, which repositories and other programs read.

The file `ro-crate-metadata.json` follows the profile Process Run Crate 0.5
(https://w3id.org/ro/wfrun/process/0.5), and RO-Crate 1.1, on which this profile is based: the
command is an action of paceline on input files, with the files of the folder as results. All facts
are read from the result files. The date of the run is not included. RO-Crate requires a date of
publication; the date of the latest change of an input file is used.
"""

import json
import mimetypes
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain, zip_longest
from pathlib import Path
from urllib.parse import quote, unquote_to_bytes, urlsplit

from paceline._util.files import is_address, new_file
from paceline._util.json_types import JsonObject
from paceline._util.python_object_digest import file_digest
from paceline.analysis.compare_recomputed_results import ENDINGS, ResultFile
from paceline.analysis.read_survey_catalogue import SEPARATOR
from paceline.analysis.saved_table_format import COMMAND, FOLDER, INPUT, METADATA, names_in
from paceline.analysis.survey_result_encoding import PROGRAMS as OF_SURVEY
from paceline.analysis.survey_result_encoding import WITH_INCLUDED
from paceline.analysis.survey_tables import Survey
from paceline.errors import UnsupportedError
from paceline.hdf5 import mdcath
from paceline.performance.number_format import many
from paceline.trajectory.addresses import source_name
from paceline.trajectory.open import files_named

CRATE = "https://w3id.org/ro/crate/1.1"
PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
#: Name and page of each program, by the name of the fact that contains its version.
PROGRAMS = {
    "paceline": ("paceline", "https://pypi.org/project/paceline/"),
    "MDAnalysis": ("MDAnalysis", "https://www.mdanalysis.org/"),
    "numpy": ("NumPy", "https://numpy.org/"),
    "python": ("Python", "https://www.python.org/"),
}
#: Facts that contain names of files, and the facts with the SHA-256 or fingerprints of these files.
_INPUTS = {
    "topology": "topology sha256",
    "trajectory": "fingerprint",
    "files": "files sha256",
}
#: Characters that are not escaped in addresses, and a pattern for percent signs that are not the
#: beginning of an escaped character.
_OF_ADDRESSES, _NOT_ESCAPED = ":/?#@!$&'()*+,;=%", re.compile("%(?![0-9A-Fa-f]{2})")
#: Media types that Python does not know.
_TYPES = {".npz": "application/zip", ".toml": "application/toml", ".xvg": "text/plain"}
#: Number of hex digits of a SHA-256.
_SHA256_DIGITS = 64


def write_crate(folder: str | os.PathLike, files: Iterable[Path], *, overwrite: bool) -> None:
    """Write `ro-crate-metadata.json` into a folder of results.

    `files` are possible results in the folder; those that exist are described. Raises
    `FileExistsError` if `ro-crate-metadata.json` exists and may not be replaced, and
    `UnsupportedError` if no result names a command.
    """
    folder = Path(folder)
    existing = sorted({path for path in files if path.is_file()})
    facts = [ResultFile.read(path).facts for path in existing if path.suffix.lower() in ENDINGS]
    facts = [one for one in facts if COMMAND in one]
    if not facts:
        raise UnsupportedError(f"{folder}: no result names the command that computed it")
    _write(folder, existing, facts, overwrite=overwrite)


def write_crate_of_survey(
    survey: Survey, files: Iterable[Path], command: str, *, overwrite: bool
) -> bool:
    """Write `ro-crate-metadata.json` into the folder of a survey, of which `files` are the results.

    Trajectories that could not be opened are left out. Without `overwrite`, an existing file that
    describes these tables is not replaced, because someone may have added authors. The result is
    then False, otherwise True. Raises `FileExistsError` if an existing file describes other tables.
    """
    path = survey.folder / METADATA
    if path.exists() and not overwrite:
        known = path.read_text(encoding="utf-8", errors="replace")
        if all(one["sha256"] in known for one in survey.facts["tables"].values()):
            return False
        raise FileExistsError(
            f"{path} describes other tables: move it away, and repeat the command, which writes a "
            "new one and computes nothing again"
        )
    folder = survey.facts["catalogue"]["folder"]
    facts = {name: survey.facts[name] for name in OF_SURVEY}
    facts |= {COMMAND: command, "build": survey.facts["core"]}
    for row in survey.systems.to_pylist():
        if not row["digests"]:  # the files could not be opened
            continue
        topology, *digests = row["digests"].split(SEPARATOR)
        named = [source_name(name, folder) for name in row["trajectory"].split(SEPARATOR)]
        files_of_row = list(chain.from_iterable(map(files_named, named)))
        # In an mdCATH file, the topology is inside the trajectory file, which is listed below.
        if topology and not row["topology"].endswith(f"/{mdcath.ATOMS}"):
            facts[f"{INPUT}{source_name(row['topology'], folder)}"] = topology
        if len(files_of_row) == len(digests):  # else new files match a pattern
            facts |= {INPUT + name: one for name, one in zip(files_of_row, digests, strict=True)}
    _write(survey.folder, sorted(files), [facts], overwrite=overwrite)
    return True


def _write(
    folder: Path,
    files: Sequence[Path],
    facts: Sequence[Mapping[str, str]],
    *,
    overwrite: bool,
) -> None:
    described = _graph(folder, files, facts)
    with new_file(folder / METADATA, overwrite=overwrite) as file:
        file.write(json.dumps(described, indent=1, ensure_ascii=False) + "\n")


def _graph(folder: Path, files: Sequence[Path], facts: Sequence[Mapping[str, str]]) -> JsonObject:
    """Return the content of `ro-crate-metadata.json`: results, inputs, programs and the command."""
    results = [_result(folder, path) for path in files]
    inputs = _inputs(facts)
    programs: list[JsonObject] = [
        {
            "@id": f"{page}#{quote(facts[0][key], safe='')}",
            "@type": "SoftwareApplication",
            "name": name,
            "softwareVersion": facts[0][key],
            "url": page,
        }
        for key, (name, page) in PROGRAMS.items()
        if key in facts[0]
    ]
    programs[0]["softwareRequirements"] = [_id(one) for one in programs[1:]]
    programs[0]["identifier"] = f"build {facts[0].get('build', 'unknown')}"
    command = facts[0][COMMAND]
    action = {
        "@id": "#run",
        "@type": "CreateAction",
        "name": " ".join(command.split()[:2]),
        "description": command,
        "instrument": _id(programs[0]),
        "object": [_id(one) for one in inputs],
        "result": [_id(one) for one in results],
        "actionStatus": "http://schema.org/CompletedActionStatus",
    }
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": f"Results of {command.split()[1]} by paceline",
        "description": f"{many(len(results), 'file')}, computed by: {command}. The date is that of "
        "the latest change of an input file.",
        "datePublished": _latest_change(inputs, files),
        "license": {"@id": "#license"},
        "conformsTo": {"@id": PROFILE},
        "hasPart": [_id(one) for one in (*results, *inputs)],
        "mentions": {"@id": "#run"},
    }
    licence = {
        "@id": "#license",
        "@type": "CreativeWork",
        "name": "not stated",
        "description": "Whoever publishes these results sets the license.",
    }
    profile = {
        "@id": PROFILE,
        "@type": "CreativeWork",
        "name": "Process Run Crate",
        "version": PROFILE.rpartition("/")[2],
    }
    head = {
        "@id": METADATA,
        "@type": "CreativeWork",
        "about": {"@id": "./"},
        "conformsTo": {"@id": CRATE},
    }
    sha256 = {"sha256": "https://w3id.org/ro/terms/workflow-run#sha256"}
    return {
        "@context": [f"{CRATE}/context", sha256],
        "@graph": [head, root, profile, licence, action, *programs, *inputs, *results],
    }


def _id(entity: Mapping[str, object]) -> dict[str, object]:
    """Make a reference to an entity, which contains only its identifier."""
    return {"@id": entity["@id"]}


def _result(folder: Path, path: Path) -> JsonObject:
    """Describe a result file of the folder as an entity of the RO-Crate."""
    return {
        "@id": _uri_path(path.relative_to(folder).parts),
        "@type": "File",
        "name": path.name,
        "encodingFormat": _media_type(path),
        "contentSize": f"{path.stat().st_size}",
        "sha256": file_digest(path),
    }


def _media_type(path: Path) -> str:
    """Return the media type of a file, by its name."""
    # Use only the types that Python itself knows, so that a crate does not depend on the system.
    known = _TYPES.get(path.suffix.lower()) or mimetypes.MimeTypes().guess_type(path.name)[0]
    return known or "application/octet-stream"


def _uri_path(parts: Sequence[str]) -> str:
    """Join the parts of a path to a relative reference of RFC 3986, with escaped characters."""
    return "/".join(quote(os.fsencode(part), safe="") for part in parts)


def _uri_of(name: str, folder: str) -> str:
    """Return the URI of an input, or a relative reference if its folder is not known."""
    if is_address(name):
        return quote(_NOT_ESCAPED.sub("%25", name), safe=_OF_ADDRESSES)
    path = Path(folder, name)
    return path.as_uri() if path.is_absolute() else _uri_path(path.parts)


def _inputs(facts: Sequence[Mapping[str, str]]) -> list[JsonObject]:
    """Describe each input file once, with its SHA-256 or fingerprint."""
    found: dict[str, JsonObject] = {}
    for one in facts:
        pairs = [(key.removeprefix(INPUT), one[key]) for key in one if key.startswith(INPUT)]
        for key, of_content in _INPUTS.items():
            contents = one.get(of_content, "").split(", ")
            # There is one fingerprint per file. Without fingerprints, the number of files is
            # unknown.
            is_known = key == "topology" or contents[0][:4] not in ("", "none")
            names = names_in(one[key], len(contents) if is_known else None) if key in one else []
            pairs += zip_longest(names, contents[: len(names)], fillvalue="")
        for name, content in pairs:
            uri, path = _uri_of(name, one.get(FOLDER, "")), Path(name)
            described = {
                "@id": uri,
                "@type": "File",
                "name": path.name,
                "encodingFormat": _media_type(path),
            }
            if len(content) == _SHA256_DIGITS:
                described["sha256"] = content
            elif content and not content.startswith("none"):
                # The digest of a topology that includes other files is a digest of all these files.
                is_of_several = content.startswith(WITH_INCLUDED)
                described["identifier"] = content if is_of_several else f"fingerprint {content}"
            if uri not in found or len(described) > len(found[uri]):
                found[uri] = described
    return [found[uri] for uri in sorted(found)]


def _latest_change(inputs: Sequence[JsonObject], files: Sequence[Path]) -> str:
    """Date and time, UTC, of the latest change of a local input, or of a result if none exists."""
    uris = [f"{one['@id']}" for one in inputs]
    local = [
        os.fsdecode(unquote_to_bytes(urlsplit(uri).path)) for uri in uris if uri.startswith("file:")
    ]
    times = [os.stat(path).st_mtime for path in local if os.path.exists(path)]
    times = times or [path.stat().st_mtime for path in files]
    return datetime.fromtimestamp(int(max(times)), UTC).isoformat()
