"""The part of SQLiteStore that knows of code."""

from collections.abc import Sequence

from ragmem.records import CodeFile, PutReferences
from ragmem.store.code import ChangedTogether, CodeTurn, FoundScope, ScopeQuery, TurnsQuery
from ragmem.store.sqlite import code
from ragmem.store.sqlite.handle import Handle


class CodeHandle(Handle):
    """See `ragmem.store.code.CodeStore` for what each method promises."""

    async def code_projects(self) -> list[str]:
        """Every project whose files define scopes."""
        return await self._read(code.code_projects)

    async def code_files(self, project_id: str, paths: Sequence[str] = ()) -> list[CodeFile]:
        """The files that define scopes, with those, by path; of these paths, or all."""
        return await self._read(lambda db: code.code_files(db, project_id, paths))

    async def find_scopes(self, query: ScopeQuery) -> list[FoundScope]:
        """Those that match, those that no file defines any more too."""
        return await self._read(lambda db: code.find_scopes(db, query))

    async def code_turns(self, query: TurnsQuery) -> list[CodeTurn]:
        """Newest first; a turn once, with all that it has to do with what was asked for."""
        return await self._read(lambda db: code.code_turns(db, query))

    async def changed_with(
        self, project_ids: Sequence[str], path: str, *, limit: int = 20
    ) -> list[ChangedTogether]:
        """Other files that turns wrote to which wrote to this one; most turns first."""
        return await self._read(lambda db: code.changed_with(db, project_ids, path, limit))

    async def references_of(self, turn_ids: Sequence[str]) -> list[PutReferences]:
        """Of those of them that have some, in this order; the strongest references first."""
        return await self._read(lambda db: code.references_of(db, turn_ids))
