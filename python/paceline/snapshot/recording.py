"""One file that all ranks write together, frame after frame."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from paceline import _core
from paceline.errors import UnwritableError
from paceline.files import writing_to
from paceline.snapshot.choices import Choices
from paceline.snapshot.claims import claim, release
from paceline.snapshot.company import Company
from paceline.snapshot.containers.base import Container, Contents
from paceline.snapshot.facts import Unchanging, gather_facts, refuse_other_facts
from paceline.snapshot.own import Own, refuse_disagreement
from paceline.snapshot.writers import choose_writers, given_writers

#: What there may be once of atoms, for all frames.
FACTS = ("names", "masses", "charges")


class Recording:
    """A file that grows by frames whose atoms are spread over ranks.

    All that it does is collective, and raises the same on all ranks.

    Parameters
    ----------
    company : Company
        All ranks.
    choose : callable
        What a user chose on this rank, or the error that it cannot be.

    Attributes
    ----------
    path : str
        The file, as rank 0 knows it.
    n_frames : int
        That are written.
    writers : list of int
        Ranks that write, known from the first frame on.
    costs : list of SnapshotCost
        Of each frame, on this rank.
    """

    def __init__(self, company: Company, choose: Callable[[], Choices]):
        self.costs: list[_core.SnapshotCost] = []
        self.writers: list[int] = []
        self._company = company
        self._container: Container | None = None
        self._codings: dict[Contents, _core.SnapshotFormat] = {}
        self._prepare(choose)

    def _prepare(self, choose: Callable[[], Choices]) -> None:
        """Agree on what is to be made, and open it on rank 0."""
        company = self._company

        def told() -> dict[str, Any]:
            self._choices = choose()
            return self._choices.told()

        everywhere = company.share(told)
        with company.told():
            refuse_disagreement(everywhere)
        self._nodes = company.share(_node)
        wanted = self._choices.writers
        if wanted is not None:
            with company.told():
                self.writers = given_writers(wanted, self._nodes)

        def begin() -> tuple[str, int, bool]:
            settings = self._choices.settings
            claim(settings.path, self)
            try:
                container = self._container = self._choices.format.container(settings)
            except BaseException:
                release(self)
                raise
            return settings.path, container.n_frames, container.double

        # The path is rank 0's: others may have another working directory.
        self.path, self.n_frames, self._double = company.first(begin)
        self._to_compare = set(FACTS if self.n_frames else ())
        self._unchanging = Unchanging(company, self.path)

    def write(self, own: Own | None, error: Exception | None) -> None:
        """Write a frame.

        Parameters
        ----------
        own : Own or None
            What this rank has of it.
        error : Exception or None
            Why it has nothing.
        """
        company = self._company

        def told() -> dict[str, Any]:
            if own is None:
                assert error is not None
                raise error
            return own.told()

        with company.unbroken():
            everywhere = company.share(told)
            assert own is not None
            with company.told(), self._named():
                refuse_disagreement(everywhere)
            with company.told():
                contents = Contents(own.fields, own.heading.cell is not None)
                self._choices.format.refuse(self.path, own, contents)
                coding = self._coding(contents)
            types = {one["type"] for one in everywhere} - {None}
            own = own.as_double("float64" in types)
            atoms = own if self._choices.format.in_lines else own.without(*FACTS)
            with company.told(), self._named():
                _core.check_snapshot(
                    company.communicator, coding, self._choices.settings.n_atoms, atoms.for_core()
                )
            try:
                self._write_checked(own, atoms, contents, coding)
            except Exception:
                self._cut_back()
                raise

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Name the file in an error that does not."""
        try:
            yield
        except UnwritableError as error:
            raise UnwritableError(f"{self.path}: {error}") from None

    def _coding(self, contents: Contents) -> "_core.SnapshotFormat":
        """What makes bytes of atoms."""
        if contents not in self._codings:
            with self._named():
                self._codings[contents] = self._choices.format.coding(contents.fields, self._double)
        return self._codings[contents]

    def _write_checked(
        self, own: Own, atoms: Own, contents: Contents, coding: "_core.SnapshotFormat"
    ) -> None:
        """Write a frame that the file can hold."""
        company, n_atoms = self._company, self._choices.settings.n_atoms
        container = self._container
        if self._choices.format.in_facts:
            facts = {name: getattr(own, name) for name in FACTS}
            self._unchanging.refuse_changed(own.ids, facts)
        path, starts = company.first(lambda: container.place(contents, own.heading))  # type: ignore[union-attr]
        if self.n_frames == 0 and self._choices.format.in_facts:
            self._put_facts(own)
        self._refuse_others(own)
        if not self.writers:
            self.writers = choose_writers(self._nodes, n_atoms * sum(coding.sections))
        with company.told(), writing_to(self.path):
            cost = _core.write_snapshot(
                company.communicator,
                path,
                coding,
                starts,
                n_atoms,
                atoms.for_core(),
                method=self._choices.method,
                writers=self.writers,
                buffer=self._choices.buffer,
                sync=self._choices.settings.sync,
            )
        company.first(lambda: container.commit())  # type: ignore[union-attr]
        self._unchanging.keep()
        self.n_frames += 1
        self.costs.append(cost)

    def _refuse_others(self, own: Own) -> None:
        """See that atoms are those of a file that was there."""
        container = self._container
        for fact in FACTS:
            values = getattr(own, fact)
            if fact in self._to_compare and values is not None:
                refuse_other_facts(
                    self._company,
                    self.path,
                    own.ids,
                    fact,
                    values,
                    self._choices.settings.n_atoms,
                    lambda *which: container.held(*which),  # type: ignore[union-attr]
                )
                self._to_compare.remove(fact)

    def _put_facts(self, own: Own) -> None:
        """Write what does not change of atoms."""
        facts = {"mass": own.masses, "charge": own.charges}
        if own.names is not None:
            facts["name"] = own.names.view("S8")[:, 0]
        known = {name: values for name, values in facts.items() if values is not None}
        if known:
            container = self._container
            gather_facts(
                self._company,
                own.ids,
                known,
                self._choices.settings.n_atoms,
                lambda first, batch: container.put_facts(first, batch),  # type: ignore[union-attr]
            )

    def _cut_back(self) -> None:
        """Leave the frames before the one that was not written."""
        if self._container is not None:
            # Where that fails too, the file's head tells how many frames are whole.
            with contextlib.suppress(OSError):
                self._container.cut_back()

    def close(self) -> None:
        """Finish the file.

        Raises
        ------
        OSError
            The system could not write.
        """
        self._company.first(self.let_go)

    def let_go(self) -> None:
        """Close what this rank has open; not collective."""
        if self._container is not None:
            container, self._container = self._container, None
            release(self)
            container.close()


def _node() -> str:
    """Where this rank runs."""
    from mpi4py import MPI

    return MPI.Get_processor_name()
