"""Code as the memory knows it: files, the scopes that they define, and what turns have to do with
them.

A scope is a piece of a file with a name of its own: a function, a class, a section of a text. Its
id stays while its name and kind stay in the file, and goes with it where it is moved or renamed.
"""

from datetime import datetime
from typing import Literal

import msgspec

from ragmem.records.conversation import AccessType, Record

ScopeKind = Literal["class", "function", "method", "type", "constant", "block", "section", "text"]
ReferenceHow = Literal["edited", "read", "found", "named"]
"""The strongest first: a turn has one reference to a scope."""

SCOPE_KINDS: tuple[ScopeKind, ...] = (
    "class",
    "function",
    "method",
    "type",
    "constant",
    "block",
    "section",
    "text",
)
REFERENCE_HOWS: tuple[ReferenceHow, ...] = ("edited", "read", "found", "named")


class CodeScope(Record, frozen=True, kw_only=True):
    """A scope as it stands in its file; never its text, which is in the file."""

    texts = ("name", "qualified_name", "signature", "docstring")
    scope_id: str
    kind: ScopeKind
    name: str
    """`validate`; a section's heading; empty for a block or text without one."""
    qualified_name: str
    """With what it is in, joined with dots: `AuthService.validate`; unique within kind and file."""
    signature: str = ""
    """Its first line or lines, at most 300 characters."""
    docstring: str = ""
    """What stands about it in the file, at most 500 characters."""
    start_line: int
    """1-based."""
    end_line: int
    """The last one, included."""
    hash: str
    """Of its text without its name and what indents it: follows it where it is moved or renamed."""


class CodeFile(Record, frozen=True, kw_only=True):
    """A file of a project with what it defines."""

    texts = ("scopes",)
    project_id: str
    """Of the folder that it is in, itself, not of what that was joined to."""
    path: str
    """Relative to the project's folder, with `/`; as in `FileAccess`."""
    language: str
    """`python`, `markdown`, …; `text` where none is known."""
    hash: str
    """Of its bytes."""
    scopes: tuple[CodeScope, ...] = ()
    """In the order of their first lines."""
    imports: tuple[str, ...] = ()
    """Paths of the files of the project that it imports."""


class CodeReference(Record, frozen=True, kw_only=True):
    """What a turn has to do with a scope."""

    scope_id: str
    how: ReferenceHow


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
