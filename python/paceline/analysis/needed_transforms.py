"""Choose the transformations that each analysis of a battery needs."""

from collections.abc import Sequence

import numpy as np

from paceline.analysis.base import AnalysisBase
from paceline.contract.transform_interface import Transform
from paceline.errors import warn
from paceline.transform.apply_transforms import TransformsOfEach, check_transforms
from paceline.transform.molecules import unwrap_known


def needed_transforms(
    analyses: Sequence[AnalysisBase],
    given: Sequence[Transform],
    battery: Sequence[AnalysisBase],
    *,
    unwrap: bool,
) -> TransformsOfEach:
    """Return, for each analysis, the transformations of a run that the analysis needs.

    `battery` contains all analyses of the battery, also those of other runs. With `unwrap`, the
    first transformation of every analysis makes whole all molecules that any analysis of the
    battery needs whole, so that results do not depend on which analyses run together. This
    transformation is left out if bonds are unknown, or if one of `given` makes molecules whole.

    Rotating transformations are only used for analyses that need them; if none does, a warning is
    issued. The other analyses superpose frames themselves, use distances, or use the axes of the
    cell.
    """
    check_transforms(given)
    turning = [one for one in given if one.rotates]
    if turning and not any(one.needs_fit for one in battery):
        names = ", ".join(one.parameters() for one in turning)
        warn(
            f"{names}: left out, because no analysis of the battery needs it; RMSF and principal "
            "components superpose frames by themselves (align)"
        )
    unwraps = unwrap and not any(one.makes_whole for one in given)
    first: dict[int, list[Transform]] = {}
    for universe in {
        id(one.atomgroup.universe): one.atomgroup.universe for one in analyses
    }.values():
        needing = [
            np.asarray(one.indices)
            for one in battery
            if one.needs_whole and one.atomgroup.universe is universe
        ]
        made = unwrap_known(universe, np.unique(np.concatenate(needing))) if needing else None
        first[id(universe)] = [made] if unwraps and made is not None else []
    return TransformsOfEach(
        [
            (
                one,
                [
                    *first[id(one.atomgroup.universe)],
                    *(step for step in given if one.needs_fit or not step.rotates),
                ],
            )
            for one in analyses
        ]
    )
