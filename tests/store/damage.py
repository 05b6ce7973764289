"""Damage done to a graph, by hand or by a cut line: what the tests of each part of it share."""

from collections.abc import Sequence

import pytest

CUTS = ("before_commit", "after_commit", "in_answer", "deadlock")
"""Where a write's answer is lost; see `TcpProxy`."""


def mostly(kept: Sequence[object], every: Sequence[object]) -> list[object]:
    """All of them as parameters, tuples of several; those not among the kept are campaigns."""
    campaign = pytest.mark.campaign
    return [
        each
        if each in kept
        else pytest.param(*(each if isinstance(each, tuple) else (each,)), marks=campaign)
        for each in every
    ]
