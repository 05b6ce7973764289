"""What callers and texts say for the scopes that they call or name."""

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

import apsw
import msgspec

_DEFINED = 3
"""Scopes of one name at most: a call of a name that more have tells nothing."""
TEXTS = ("section", "text")
"""Kinds that call nothing, but tell of it."""


class Loan(NamedTuple):
    """A score that is another scope's."""

    score: float
    lender: int


def loans(
    connection: apsw.Connection, scores: Mapping[int, float]
) -> tuple[dict[int, Loan], dict[int, Loan]]:
    """Of scopes that these call, the best of their scores; and of those that texts name.

    Names that many have are left out.
    """
    lenders = msgspec.json.encode(list(scores)).decode()
    texts = {
        int(str(scope))
        for (scope,) in connection.execute(
            "SELECT s.scope FROM json_each(?) AS chosen CROSS JOIN scopes AS s"
            " ON s.scope = chosen.value WHERE s.kind IN (?, ?)",
            (lenders, *TEXTS),
        )
    }
    called = connection.execute(
        """
        SELECT name_key, json_group_array(scope) FROM calls
        WHERE scope IN (SELECT value FROM json_each(?)) GROUP BY name_key
        """,
        (lenders,),
    ).fetchall()
    lent, told = dict[int, Loan](), dict[int, Loan]()
    for name, found in called:
        defined = connection.execute(
            "SELECT scope FROM scopes WHERE name_key = ? LIMIT ?", (name, _DEFINED + 1)
        ).fetchall()
        if len(defined) > _DEFINED:
            continue
        for lender in msgspec.json.decode(str(found), type=list[int]):
            given = told if lender in texts else lent
            loan = Loan(scores[lender], lender)
            for (row,) in defined:
                scope = int(str(row))
                if scope != lender and loan > given.get(scope, Loan(0.0, 0)):
                    given[scope] = loan
    return lent, told


T = TypeVar("T", float, Loan)


def best_of(scores: Mapping[int, T], limit: int) -> list[int]:
    """The scopes with the highest scores, best first."""
    return sorted(scores, key=lambda scope: scores[scope], reverse=True)[:limit]
