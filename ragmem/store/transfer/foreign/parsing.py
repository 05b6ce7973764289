"""What reading a session is, whichever agent has written it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import datetime

from ragmem.records import PutTurn
from ragmem.store.transfer.foreign.building import Keys, TurnBuilder, session_id_of
from ragmem.store.transfer.foreign.fields import Fields, moment
from ragmem.store.transfer.foreign.values import AgentName, FileFacts, Tally
from ragmem.text import one_line

_SETTLED_S = 3600
"""After so long without a record, nothing more is expected of the last turn."""
_TITLE_LIMIT = 120
_KEY_CHARS = 200


class SessionParser(ABC):
    """The state of reading one file: what is known of the session, and the turn that goes on."""

    def __init__(self, agent: AgentName, facts: FileFacts, tally: Tally, *, now: datetime) -> None:
        self.facts = facts
        self.tally = tally
        self.now = now
        self.turn: TurnBuilder | None = None
        self._agent = agent
        self._unnamed = 0
        self._is_beginning = True
        """Whether no prompt has come yet."""
        self.identify(facts.foreign_id)

    @abstractmethod
    def feed(self, record: Fields) -> Iterator[PutTurn]:
        """Take one record; the turns that it completes, without their places in the session."""

    def finish(self) -> Iterator[PutTurn]:
        """The file has ended: the last turn, complete when nothing more is expected of it."""
        quiet = (self.now - self.facts.last_at).total_seconds() > _SETTLED_S
        yield from self.end(over=quiet)

    def end(self, *, over: bool) -> Iterator[PutTurn]:
        """The turn that went on, if there is one; `over`: nothing can follow in it."""
        turn, self.turn = self.turn, None
        if turn is not None:
            yield turn.build(over=over)

    def identify(self, foreign_id: str) -> None:
        """Say which session it is; before its first turn."""
        self.facts.foreign_id = foreign_id
        self._session_id = session_id_of(self._agent, foreign_id)
        self._keys = Keys(self._session_id)

    def begin(self, words: str, at: datetime, key: str = "") -> TurnBuilder:
        """A prompt; `key` is what the file calls it, else its words stand for it."""
        self._is_beginning = False
        turn_id = self._keys.turn_id(key or words[:_KEY_CHARS])
        self.turn = TurnBuilder(self._session_id, turn_id, words, at)
        return self.turn

    def entitle(self, title: str) -> None:
        """Say what the session is called."""
        self.facts.title = one_line(title, _TITLE_LIMIT) or self.facts.title

    def time(self, record: Fields) -> tuple[datetime, bool]:
        """When it was written, and whether it says so itself."""
        facts = self.facts
        at = moment(record.get("timestamp"), self.now)
        if at is None:
            return facts.last_at, False
        if facts.started_at is None:
            facts.started_at = facts.last_at = at
        facts.last_at = max(facts.last_at, at)
        return at, True

    def next_name(self) -> str:
        """For what has no name of its own."""
        self._unnamed += 1
        return f"unnamed {self._unnamed}"

    def leave_out(self, what: str) -> None:
        """Count something that is no part of the conversation."""
        self.tally.left_out[what] += 1

    def wonder(self, where: str, kind: str) -> None:
        """Count a kind of record that is not known."""
        self.tally.unknown[f"{where} {one_line(kind, 60) or '(none)'}".strip()] += 1
