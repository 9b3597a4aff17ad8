"""Results of trajectories from an earlier survey, or from this survey before it was stopped."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from paceline._util.journal import Journal
from paceline.analysis.read_survey_catalogue import SurveyCatalogue, SurveyEntry
from paceline.analysis.survey_one_trajectory import SurveySettings, state_of
from paceline.analysis.survey_result_encoding import SystemResults, decode
from paceline.analysis.survey_tables import FoundRows, StoredTables, rows_of
from paceline.errors import CheckpointError


@dataclass(frozen=True)
class Found:
    """Results of one trajectory: their key, the state of its files, and where they are stored.

    `place` is the journal, the offset of a record in it, and the index of the trajectory in the
    record; None if an earlier survey's tables contain the results.
    """

    key: str
    state: str
    place: tuple[Journal, int, int] | None = None

    @property
    def failed(self) -> bool:
        """True if a possibly temporary error ended the analysis, such as a missing file."""
        return self.key.endswith("-")

    def is_current(
        self, entry: SurveyEntry, settings: SurveySettings, *, unknown: bool = False
    ) -> bool:
        """True if the files have not changed; if their state cannot be read, return `unknown`."""
        state = state_of(entry, settings)
        return self.state == state if state else unknown


class FoundResults:
    """Results that earlier tables and journals contain, computed with the settings of this run."""

    def __init__(self, settings: SurveySettings):
        self._settings = settings
        self._stored: StoredTables | None = None
        #: Results by id and replica, in the order in which they were read.
        self._found: dict[tuple[str, str], list[Found]] = {}
        self._record: tuple[tuple[str, int], list[SystemResults]] = ("", 0), []
        #: True if a journal contains results that were computed with these settings.
        self.has_records = False
        #: For each folder of a catalogue, a journal that contains results of this catalogue.
        self.folders: dict[str, Journal] = {}

    def add_stored(self, stored: StoredTables, states: Mapping[tuple[str, str], str]) -> None:
        """Add the results of an earlier survey that were computed with these settings."""
        self._stored = stored
        for name, key in stored.keys().items():
            if key.startswith(f"{self._settings.digest}-"):
                self._found[name] = [Found(key, states.get(name, ""))]

    def read(self, journal: Journal) -> None:
        """Read a journal, and add its results that were computed with these settings."""
        for record in journal.records():
            self.add(journal, record)

    def add(self, journal: Journal, record: bytes) -> list[tuple[str, str]]:
        """Add the results in the last record of a journal; return their ids and replicas."""
        systems = _decode(journal, record)
        for k, one in enumerate(systems):
            if not one.facts["key"].startswith(f"{self._settings.digest}-"):
                continue
            self.has_records = True
            self.folders.setdefault(one.facts.get("folder", ""), journal)
            found = self._found.setdefault((one.facts["id"], one.facts["replica"]), [])
            place: tuple[Journal, int, int] | None = (journal, journal.size - len(record), k)
            if one.facts["unchanged"]:
                same = [other for other in found if other.key == one.facts["key"]]
                if not same:
                    continue
                place = same[-1].place
            found.append(Found(one.facts["key"], one.facts["state"], place))
        return [(one.facts["id"], one.facts["replica"]) for one in systems]

    def of(self, entry: SurveyEntry) -> Found | None:
        """Return the results for the current files of a trajectory, or else its last results."""
        found = self._found.get(entry.key, [])
        if len(found) > 1:
            state = state_of(entry, self._settings)
            found = [one for one in found if one.state == state] or found
        return found[-1] if found else None

    def states(self, catalogue: SurveyCatalogue) -> list[tuple[str, str, str]]:
        """Return id, replica, and the state of the files of each trajectory."""
        pairs = ((entry, self.of(entry)) for entry in catalogue.entries)
        return [(*entry.key, found.state) for entry, found in pairs if found is not None]

    def rows(self, entries: Sequence[SurveyEntry]) -> Iterator[FoundRows]:
        """Yield the rows of some trajectories, in order."""
        stored = self._stored
        for place, some in groupby(entries, self._place_of):
            if place is None:
                assert stored is not None
                yield from stored.rows([entry.key for entry in some])
                continue
            journal, offset, k = place
            if self._record[0] != (journal.path, offset):
                self._record = (journal.path, offset), decode(journal.read(offset))
            yield rows_of(self._record[1][k])

    def _place_of(self, entry: SurveyEntry) -> tuple[Journal, int, int] | None:
        """Return the `place` of a trajectory's results in a journal; None if they are in tables."""
        found = self.of(entry)
        return None if found is None else found.place


def _decode(journal: Journal, record: bytes) -> list[SystemResults]:
    """Decode a record without its long tables; raise `CheckpointError` for other content."""
    try:
        return decode(record, long=False)
    except (ValueError, TypeError, KeyError) as error:
        raise CheckpointError(
            f"{journal.path}: expected results of a survey, found another record ({error}); "
            "delete the file to begin anew"
        ) from error
