"""Whose what is written is, where a write does not say so itself."""

import re
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from ragmem.config import Paths
from ragmem.errors import StoreUnavailable, UsageError
from ragmem.files import replace_private, write_new_private
from ragmem.ids import new_id
from ragmem.records import CreateSession, PutMemory, PutOwner, PutProfile, PutSession, Write

_IDS = re.compile(r"[0-9A-Za-z-]{1,64}")


def owned(writes: Sequence[Write], owner: str) -> list[Write]:
    """The writes, each that says nothing of it being this owner's."""
    return [_owned(write, owner) for write in writes] if owner else list(writes)


def _owned(write: Write, owner: str) -> Write:
    match write:
        case CreateSession() | PutSession() if not write.session.owner:
            session = msgspec.structs.replace(write.session, owner=owner)
            return msgspec.structs.replace(write, session=session)
        case PutMemory() if not write.memory.owner:
            memory = msgspec.structs.replace(write.memory, owner=owner)
            return msgspec.structs.replace(write, memory=memory)
        case PutProfile() | PutOwner() if not write.owner:
            return msgspec.structs.replace(write, owner=owner)
    return write


def home_owner(paths: Paths) -> str:
    """Id of the person whose home it is, made up when it is asked for first.

    Of two processes that do so at once the one that is first decides. StoreUnavailable where it
    can't be known: to a store that is opened for nobody everybody's memory would be shown.
    """
    file = paths.owner_file
    try:
        if not file.exists():
            with suppress(FileExistsError):
                write_new_private(file, f"{new_id()}\n".encode())
        found = file.read_text("utf-8", "replace").strip()
    except OSError as error:
        why = error.strerror or str(error)
        raise StoreUnavailable(f"Whose home this is can't be kept in {file}: {why}.") from None
    if not _IDS.fullmatch(found):
        raise StoreUnavailable(
            f"Whose home this is can't be read in {file}: it holds no id.",
            hint="`ragmem memory owner --take ID` sets it anew.",
        )
    return found


def owner_of_file(paths: Paths) -> str:
    """The home's owner; nobody where that can't be kept: a database says better what is wrong."""
    try:
        return home_owner(paths)
    except StoreUnavailable:
        return ""


def take_owner(paths: Paths, owner: str) -> None:
    """From now on this home is that person's too, as another one of theirs is."""
    if not _IDS.fullmatch(owner):
        raise UsageError(
            "That is no owner's id.",
            hint="`ragmem memory owner`, on the other machine, shows the one to take over.",
        )
    replace_private(paths.owner_file, f"{owner}\n".encode(), sync=True)
