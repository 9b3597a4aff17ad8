"""What makes two runs the same run: facts, and in what they differ."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from paceline._core import __version__
from paceline.digest import digest

if TYPE_CHECKING:
    from paceline.passes import Analysis, Pass
    from paceline.plan import Plan

#: What a fact is about, how it is shown to a person, and by what it is compared.
Fact = tuple[str, str, str]


def facts(passes: Sequence["Pass"]) -> list[Fact]:
    """All that the bits of the results depend on, but for the machine.

    Parameters
    ----------
    passes : sequence of Pass
        Dealt.

    Returns
    -------
    list of (str, str, str)
        Of each fact its name, its value in words, and its digest; the same in any process in which
        the same is run.
    """
    python = ".".join(map(str, sys.version_info[:2]))
    found = [
        _fact("version of paceline", __version__),
        _fact("version of Python", python),
        _fact("version of NumPy", np.__version__),
        _fact("number of trajectories", str(len(passes))),
    ]
    for k, one in enumerate(passes):
        which = f" of trajectory {k}" if len(passes) > 1 else ""
        found += [(what + which, shown, value) for what, shown, value in _of_pass(one)]
    return found


def difference(there: Sequence[Sequence[str]], here: Sequence[Fact]) -> str | None:
    """The first thing in which two runs differ.

    Parameters
    ----------
    there, here : sequence of (str, str, str)
        Facts of an earlier run and of this one.

    Returns
    -------
    str or None
        In words; None where they are the same run.

    Examples
    --------
    >>> difference([("frames", "10 from 0 to 9", "ab")], [("frames", "5 from 0 to 4", "cd")])
    'frames: 10 from 0 to 9 there, 5 from 0 to 4 here'
    """
    for (what, before, digest_before), (_, now, digest_now) in zip(there, here, strict=False):
        if digest_before != digest_now:
            if before != now:
                return f"{what}: {before} there, {now} here"
            return f"{what}: not the same as there ({now})"
    return None


def _fact(what: str, shown: str, *compared: Any) -> Fact:
    return what, shown, digest(*(compared or (shown,)))


def _of_pass(one: "Pass") -> Iterator[Fact]:
    provenance, source = one.trajectory.provenance(), one.job.source
    yield _fact("trajectory", str(provenance["trajectory"]), provenance["fingerprint"])
    yield _fact("times", f"{source.clock}", vars(source.clock))
    yield _fact("frames", _describe(one.plan), one.plan.frames)
    yield _fact("on_error", "skip" if one.job.skip_damaged else "raise")
    done = "; ".join(transform.parameters() for transform in one.transforms) or "none"
    yield _fact("transforms", done, done, list(one.job.transforms))
    yield _fact("analyses", ", ".join(analysis.name for analysis in one.analyses))
    for analysis, part in zip(one.analyses, one.job.parts, strict=True):
        indices = np.asarray(analysis.indices)
        atoms = f"{len(indices)}"
        yield _fact(f"atoms of {analysis.name}", atoms, indices, dict(part.attributes))
        given = _parameters(analysis)
        shown = ", ".join(f"{name}={value}" for name, value in given.items())
        yield _fact(f"parameters of {analysis.name}", shown, given)
        computed = [part.computation, list(analysis.fields)]
        yield _fact(f"function or reference of {analysis.name}", "its code and numbers", computed)


def _describe(plan: "Plan") -> str:
    return f"{len(plan.frames)} from {plan.frames[0]} to {plan.frames[-1]}"


def _parameters(analysis: "Analysis") -> Mapping[str, Any]:
    """Not every analysis keeps a record of them."""
    return analysis.parameters() if hasattr(analysis, "parameters") else {}
