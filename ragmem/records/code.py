"""Code as the memory knows it: files, the scopes that they define, and what turns have to do with
them.

A scope is a piece of a file with a name of its own: a function, a class, a section of a text. Its
id stays while its name and kind stay in the file, and goes with it where it is moved or renamed.
"""

from typing import Literal

from ragmem.records.conversation import Record

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
