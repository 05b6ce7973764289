"""What can still be read of code, and of what turns have to do with it."""

from collections.abc import Iterator
from contextlib import suppress

import msgspec

from ragmem.records import CodeFile, CodeReference, CodeScope, PutReferences
from ragmem.store.code import FoundScope
from ragmem.store.moved_code import MovedCode
from ragmem.store.sqlite.remains import Remains
from ragmem.store.sqlite.rows import record

replace = msgspec.structs.replace
_File = tuple[str, str]
"""Of a project, by path."""


class RemainsOfCode(Remains):
    """The tables of 0005_code.sql."""

    def _code(self) -> list[MovedCode]:
        """By project. A file that is lost is made up for the scopes that it defines."""
        if not self._has("code_scopes"):
            return []  # An older database has none.
        files = {
            (file.project_id, file.path): file for _, file in self._records("code_files", CodeFile)
        }
        defined: dict[_File, list[tuple[int, CodeScope]]] = {}
        lost: dict[str, list[FoundScope]] = {}
        for row in self._rows("code_scopes"):
            with suppress(msgspec.ValidationError):
                scope = record(CodeScope, row)
                of = str(row["project_id"]), str(row["path"])
                if row["defined"]:
                    defined.setdefault(of, []).append((int(row["place"] or 0), scope))
                    continue
                found = FoundScope(project_id=of[0], path=of[1], defined=False, scope=scope)
                lost.setdefault(of[0], []).append(found)
        whole: dict[str, list[CodeFile]] = {project_id: [] for project_id in lost}
        for of in sorted(files.keys() | defined.keys()):
            made_up = CodeFile(project_id=of[0], path=of[1], language="text", hash="")
            held = sorted(defined.get(of, ()), key=lambda each: (each[1].start_line, each[0]))
            scopes = tuple(scope for _, scope in held)
            whole.setdefault(of[0], []).append(replace(files.get(of, made_up), scopes=scopes))
        return [MovedCode(each, whole[each], lost.get(each, ())) for each in sorted(whole)]

    def _references(self) -> Iterator[PutReferences]:
        """What is left of them, a turn after the other."""
        if not self._has("code_references"):
            return
        ids = {row["row_number"]: str(row["scope_id"]) for row in self._rows("code_scopes")}
        found: dict[str, list[CodeReference]] = {}
        for held in self._either_way("code_references", "turn_id, scope"):
            with suppress(msgspec.ValidationError):
                reference = record(CodeReference, held | {"scope_id": ids.get(held["scope"])})
                found.setdefault(str(held["turn_id"]), []).append(reference)
        for turn_id, references in found.items():
            yield PutReferences(turn_id=turn_id, references=tuple(references))
