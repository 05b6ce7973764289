"""What the code index asks of a store: which scopes there are, and which turns concern them.

A part of the Store protocol (`ragmem.store.base`). The index that is searched is a file of this
machine (`ragmem.index`), made from the files and made anew at any time; what can't be made
anew is here: the identity of scopes, and what was done with them. Promises:

- A file's scopes are replaced in one transaction, a turn's references too.
- A scope that turns refer to stays when it leaves its file, and is found again by its id.
- In the graph a File DEFINES its Scopes and IMPORTS Files, a turn REFERENCES_CODE {how} a Scope
  and has ACCESSED a File.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from ragmem.records import AccessType, CodeFile, CodeScope, PutReferences, ReferenceHow

MOST_CHANGED = 50
"""Files that a turn may write to, that something be learned of what changes together."""


class ScopeQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which scopes; conditions combine with AND. By path, then by first line."""

    project_ids: tuple[str, ...] = ()
    """Of these; one that was joined to another counts as that one. Empty: of all."""
    name: str = ""
    """Of those that are called so: by name, qualified name, or the last dotted parts of that
    (`Service.validate`); upper and lower case alike. Empty: any."""
    path: str = ""
    """Of this file."""
    defined: bool | None = None
    """Only those that their file defines still, or only those that it doesn't; None: both."""
    limit: int = 100


class FoundScope(msgspec.Struct, frozen=True, kw_only=True):
    """A scope, and where it is."""

    project_id: str
    path: str
    """Of the file that defines it, or did last."""
    defined: bool
    """Whether that file defines it still."""
    scope: CodeScope


class TurnsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Turns that have to do with any of these scopes or files."""

    scope_ids: tuple[str, ...] = ()
    project_ids: tuple[str, ...] = ()
    """Of the files; as in ScopeQuery, but never empty where `paths` is not."""
    paths: tuple[str, ...] = ()
    limit: int = 100
    """The newest so many."""


class CodeTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that has to do with code, and how."""

    turn_id: str
    session_id: str
    turn_index: int
    at: datetime
    """When it began."""
    hows: tuple[ReferenceHow, ...] = ()
    """Of the scopes that were asked for; each once, in the order of REFERENCE_HOWS."""
    accesses: tuple[AccessType, ...] = ()
    """Of the files that were asked for; each once, sorted."""


class ChangedTogether(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was changed in the same turns as another."""

    path: str
    turn_count: int
    session_count: int
    last_at: datetime


class CodeStore(Protocol):
    """See the module's text."""

    async def code_files(self, project_id: str, paths: Sequence[str] = ()) -> list[CodeFile]:
        """The files that define scopes, with those, by path; of these paths, or all."""

    async def find_scopes(self, query: ScopeQuery) -> list[FoundScope]:
        """Those that match, those that no file defines any more too."""

    async def code_turns(self, query: TurnsQuery) -> list[CodeTurn]:
        """Newest first; a turn once, with all that it has to do with what was asked for."""

    async def changed_with(
        self, project_ids: Sequence[str], path: str, *, limit: int = 20
    ) -> list[ChangedTogether]:
        """Other files that turns wrote to which wrote to this one; most turns first, then newest.

        Of turns that wrote to more than 50 files nothing is learned: they are left out.
        """

    async def references_of(self, turn_ids: Sequence[str]) -> list[PutReferences]:
        """Of those of them that have some, in this order; the strongest references first."""
