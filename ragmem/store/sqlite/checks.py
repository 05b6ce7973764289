"""Whether the database keeps what a store promises."""

import apsw

from ragmem.store.base import Finding

_SHOWN = 3


def check(connection: apsw.Connection) -> list[Finding]:
    """What is broken; damage of the file alone, where there is some."""
    said = [str(line) for (line,) in connection.execute("PRAGMA integrity_check(10)")]
    if said != ["ok"]:
        return [Finding("the file is whole", line) for line in said]
    findings = []
    for promise, query in _PROMISES:
        broken = [str(each) for (each,) in connection.execute(query)]
        if broken:
            findings.append(Finding(promise, ", ".join(broken[:_SHOWN]), len(broken)))
    return findings


# Each query yields the ids of what breaks the promise.
_PROMISES = (
    ("what is referred to exists", 'SELECT "table" FROM pragma_foreign_key_check'),
    (
        "turns are counted from 1 without gaps",
        """
        SELECT s.session_id FROM sessions AS s LEFT JOIN turns AS t USING (session_id)
        GROUP BY s.session_id
        HAVING count(t.turn_id) <> s.turn_count - coalesce(s.forked_at_index, 0)
        OR coalesce(max(t.turn_index), s.turn_count) <> s.turn_count
        OR coalesce(min(t.turn_index), coalesce(s.forked_at_index, 0) + 1)
            <> coalesce(s.forked_at_index, 0) + 1
        """,
    ),
    (
        "completed turns are counted",
        """
        SELECT s.session_id FROM sessions AS s LEFT JOIN turns AS t USING (session_id)
        GROUP BY s.session_id
        HAVING count(t.turn_id) FILTER (WHERE t.status = 'completed') <> s.completed_count
        """,
    ),
    (
        "a fork shares turns that exist",
        """
        SELECT s.session_id FROM sessions AS s JOIN sessions AS p
        ON p.session_id = s.parent_session_id WHERE s.forked_at_index > p.turn_count
        """,
    ),
    (
        "a turn that has ended says when",
        "SELECT turn_id FROM turns WHERE status <> 'running' AND finished_at IS NULL",
    ),
    (
        "a turn that runs has not ended",
        "SELECT turn_id FROM turns WHERE status = 'running' AND finished_at IS NOT NULL",
    ),
    (
        "characters of turns are counted",
        "SELECT turn_id FROM turns"
        " WHERE char_count <> length(user_message) + length(assistant_message)",
    ),
    (
        "a summary says what it digests",
        """
        SELECT summary_id FROM summaries AS s WHERE NOT EXISTS (
            SELECT 1 FROM summarized_turns AS l WHERE l.summary_id = s.summary_id AND s.level = 1
        ) AND NOT EXISTS (
            SELECT 1 FROM summarized_summaries AS l
            WHERE l.summary_id = s.summary_id AND s.level > 1
        )
        """,
    ),
)
