"""Units of time, and the choice of a readable unit."""

#: Picoseconds per unit.
TIME_UNITS = {"fs": 1e-3, "ps": 1.0, "ns": 1e3, "us": 1e6, "µs": 1e6, "ms": 1e9, "s": 1e12}
#: The same for titles of tables, which may have the Greek letter instead of the micro sign.
UNITS_IN_TITLES = {**TIME_UNITS, "μs": 1e6}
#: Longest time for which each unit is used, ps.
UNITS_BY_LENGTH = ((0.5, "fs"), (5e3, "ps"), (5e6, "ns"), (5e9, "µs"))


def readable_unit(longest: float) -> str:
    """Choose the unit in which times up to `longest` (ps) are easy to read.

    Examples
    --------
    >>> readable_unit(98), readable_unit(20_000), readable_unit(0)
    ('ps', 'ns', 'ps')
    """
    if longest == 0:
        return "ps"
    return next((unit for most, unit in UNITS_BY_LENGTH if longest < most), "ms")
