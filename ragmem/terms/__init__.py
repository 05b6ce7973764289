"""Text into the terms that both stores index and search, so that both find the same."""

from ragmem.terms.expansion import (
    JOINTS,
    LONGEST,
    TERMS_VERSION,
    QueryTerm,
    TermKind,
    condensed,
    query_terms,
    summary_terms,
    terms,
    turn_terms,
)
from ragmem.terms.languages import guess_language

__all__ = [
    "JOINTS",
    "LONGEST",
    "TERMS_VERSION",
    "QueryTerm",
    "TermKind",
    "condensed",
    "guess_language",
    "query_terms",
    "summary_terms",
    "terms",
    "turn_terms",
]
