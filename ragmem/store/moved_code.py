"""Code on its way into another store, with the scopes that no file defines any more.

Such a scope is there for the turns that have to do with it. So it is put as if its last file
defined it still, then come the turns with their references, then that file as it is.
"""

from collections.abc import Iterator, Sequence

import msgspec

from ragmem.records import CodeFile, CodeScope, DropCodeFiles, PutCodeFile
from ragmem.store.code import FoundScope

replace = msgspec.structs.replace


class MovedCode(msgspec.Struct, frozen=True):
    """The code of one project's folder."""

    project_id: str
    files: Sequence[CodeFile]
    lost: Sequence[FoundScope]
    """Scopes of it that no file defines."""

    def before_turns(self) -> Iterator[PutCodeFile]:
        """Every scope with a file. What is not so bears no hash: see `is_as_it_is`."""
        held = {file.path: file for file in self.files}
        lost: dict[str, list[CodeScope]] = {}
        for found in self.lost:
            lost.setdefault(found.path, []).append(found.scope)
        for path in sorted(held.keys() | lost.keys()):
            file = held.get(path) or CodeFile(
                project_id=self.project_id, path=path, language="text", hash=""
            )
            if path in lost:
                file = replace(file, hash="", scopes=(*file.scopes, *lost[path]))
            yield PutCodeFile(file=file)

    def after_turns(self) -> Iterator[PutCodeFile | DropCodeFiles]:
        """What of that was not so, as it is."""
        paths = {found.path for found in self.lost}
        for file in self.files:
            if file.path in paths:
                yield PutCodeFile(file=file)
                paths.remove(file.path)
        if paths:
            yield DropCodeFiles(project_id=self.project_id, paths=tuple(sorted(paths)))


def is_as_it_is(write: PutCodeFile) -> bool:
    """Whether the file is so, and not only put so until its turns are there."""
    return write.file.hash != ""
