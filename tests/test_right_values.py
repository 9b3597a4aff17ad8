"""Tests of files that state little about their content: paceline's values must be right."""

import pytest

from benchmarks.right_values.__main__ import cases


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_the_value_is_right(case, tmp_path):
    found = case.compute(tmp_path)
    assert case.holds(found), found
