"""Session files of other agents, into the same store.

values.py       what is found, and what becomes of it
fields.py       reading objects of which nothing is certain
lines.py        records of a file, one a line, streamed
touched.py      the files that a tool call touched
building.py     a turn, put together from records
parsing.py      what reading a session is, whichever agent has written it
claude_code.py  records of Claude Code     codex.py, codex_items.py  records of Codex
finding.py      the files, and titles that stand beside them
importing.py    turns into the store: only those that it does not have
"""

from ragmem.store.transfer.foreign.finding import (
    AGENTS,
    AgentFiles,
    Search,
    find_files,
    titles_beside,
)
from ragmem.store.transfer.foreign.importing import Importer
from ragmem.store.transfer.foreign.values import (
    AgentName,
    ForeignFolder,
    FoundFile,
    Outcome,
    Rules,
    Tally,
)

__all__ = [
    "AGENTS",
    "AgentFiles",
    "AgentName",
    "ForeignFolder",
    "FoundFile",
    "Importer",
    "Outcome",
    "Rules",
    "Search",
    "Tally",
    "find_files",
    "titles_beside",
]
