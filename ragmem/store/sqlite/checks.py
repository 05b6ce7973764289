"""Whether the database keeps what a store promises."""

import msgspec

from ragmem.records import Finding
from ragmem.store.sqlite import text_index, vectors
from ragmem.store.sqlite.connection import Database
from ragmem.store.sqlite.read import summaries_by_id, turns_by_id
from ragmem.store.sqlite.text_index import words_of

WORDS = "what was said is found by its words"
_SHOWN = 3
_EXPANDED = 2000
"""Turns and summaries of which the words are made anew, evenly spread over all of them."""


def check(db: Database) -> list[Finding]:
    """What is broken; damage of the file alone, where there is some."""
    # Without a look into it, FTS5 checks its index by the list of parts that it read last, and
    # takes those that another connection has merged since for lost.
    db.column("SELECT count(*) FROM text_terms WHERE term = ''")
    said = db.column("PRAGMA integrity_check(10)")
    if said != ["ok"]:
        return [Finding("the file is whole", str(line)) for line in said]
    found = [(promise, db.column(query)) for promise, query in PROMISES]
    found.append((WORDS, _other_words(db)))
    return [
        Finding(promise, ", ".join(map(str, broken[:_SHOWN])), len(broken))
        for promise, broken in found
        if broken
    ]


def _other_words(db: Database) -> list[str]:
    """Records of which the words are not those that their text has; of a sample, when many."""
    broken = []
    for table, key in (("turns", "turn_id"), ("summaries", "summary_id")):
        sample = f"""
            SELECT {key}, digest FROM (
                SELECT {key}, row_number() OVER (ORDER BY rowid) AS place FROM {table}
            ) JOIN documents ON record_id = {key} WHERE place % :each = 0
        """
        count = db.get(f"SELECT count(*) FROM {table}")
        for record_id, digest in db.tuples(sample, each=-(-count // _EXPANDED) or 1):
            try:
                [found] = (turns_by_id if table == "turns" else summaries_by_id)(db, [record_id])
                if words_of(found).digest != digest:
                    broken.append(record_id)
            except msgspec.ValidationError:
                broken.append(record_id)
    return broken


# Each query yields the ids of what breaks the promise.
PROMISES = (
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
    (
        "what has ended can be found",
        """
        SELECT turn_id FROM turns WHERE status <> 'running'
        AND turn_id NOT IN (SELECT record_id FROM documents WHERE level = 0)
        UNION ALL SELECT summary_id FROM summaries
        WHERE summary_id NOT IN (SELECT record_id FROM documents WHERE level > 0)
        UNION ALL SELECT record_id FROM documents
        WHERE document NOT IN (SELECT id FROM texts_docsize)
        """,
    ),
    (
        "what is found is there",
        """
        SELECT record_id FROM documents WHERE level = 0
        AND record_id NOT IN (SELECT turn_id FROM turns WHERE status <> 'running')
        UNION ALL SELECT record_id FROM documents WHERE level > 0
        AND record_id NOT IN (SELECT summary_id FROM summaries)
        UNION ALL SELECT id FROM texts_docsize
        WHERE id NOT IN (SELECT document FROM documents)
        """,
    ),
    (
        "what can be found is counted",
        """
        SELECT project_id FROM project_numbers LEFT JOIN documents AS d USING (number)
        GROUP BY number HAVING count(d.document) <> document_count
        OR coalesce(sum(d.term_count), 0) <> project_numbers.term_count
        """,
    ),
    (
        "vectors are of what is complete",
        """
        SELECT place FROM vectors WHERE document NOT IN (
            SELECT document FROM documents WHERE level > 0
            OR record_id IN (SELECT turn_id FROM turns WHERE status = 'completed')
        )
        UNION ALL SELECT record_id FROM small_vectors WHERE NOT (
            (level = -1 AND record_id IN (SELECT memory_id FROM memories))
            OR (level = -2 AND record_id IN (SELECT session_id FROM sessions WHERE summary <> ''))
        )
        """,
    ),
    (
        "what is to be done is marked",
        f"""
        SELECT record_id FROM documents LEFT JOIN turns ON turn_id = record_id
        WHERE to_embed <> (
            (level > 0 OR turns.status = 'completed')
            AND document NOT IN (SELECT document FROM vectors)
        )
        OR to_summarize <> (
            level = 0 AND turns.status = 'completed' AND {text_index.TO_SUMMARIZE}
        )
        OR to_roll_up <> (level > 0 AND {text_index.TO_ROLL_UP})
        OR ((to_extract OR to_link) AND (level > 0 OR turns.status <> 'completed'))
        UNION ALL SELECT memory_id FROM memories WHERE to_embed <> {vectors.MEMORY_TO_EMBED}
        UNION ALL SELECT session_id FROM sessions
        WHERE to_embed <> {vectors.SESSION_TO_EMBED}
        """,
    ),
    (
        "a scope is defined by a file that is known",
        """
        SELECT scope_id FROM code_scopes AS s WHERE defined AND NOT EXISTS (
            SELECT 1 FROM code_files AS f WHERE f.project_id = s.project_id AND f.path = s.path
        )
        """,
    ),
    (
        "a scope is defined or referred to",
        """
        SELECT scope_id FROM code_scopes AS s WHERE NOT defined
        AND NOT EXISTS (SELECT 1 FROM code_references AS r WHERE r.scope = s.scope)
        """,
    ),
)
