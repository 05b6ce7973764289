"""Fifteen turns of coding sessions, as they are recorded, to be summarised."""

import json

from ragmem.records import ToolCall, Turn

from .builders import a_call, a_turn

Said = tuple[str, str, tuple[tuple[str, dict[str, str], str], ...]]

_EXCHANGES: tuple[Said, ...] = (
    (
        "Why does `ragmem sessions list` show nothing after I moved my project folder?",
        "The sessions are still there, but they are filed under the old path. `locate()` in "
        "`ragmem/memory/projects.py:41` looks a project up by its real path, and the move "
        "changed it. With the same git remote and the old folder gone it is taken for the moved "
        "one; yours has no remote. Run `ragmem sessions list --join /old/path` once.",
        (
            ("grep_files", {"pattern": "def locate"}, "ragmem/memory/projects.py:41: def locate("),
            (
                "read_file",
                {"path": "ragmem/memory/projects.py"},
                '     1\t"""Which project a folder belongs to."""\n     2\t\n     3\timport os',
            ),
        ),
    ),
    (
        "Fix the crash: sqlite3.OperationalError: database is locked, when two chats start.",
        "Fixed. `SQLiteStore.open` in `ragmem/store/sqlite/store.py` set `busy_timeout` only after "
        "`PRAGMA journal_mode=WAL`, so the switch itself could fail. I moved `busy_timeout=5000` "
        "to the first statement. `pytest tests/store/test_sqlite_processes.py` passes: 14 passed.",
        (
            ("read_file", {"path": "ragmem/store/sqlite/store.py"}, "     1\timport apsw"),
            (
                "edit_file",
                {
                    "path": "ragmem/store/sqlite/store.py",
                    "old_text": "journal_mode=WAL",
                    "new_text": "busy_timeout=5000; PRAGMA journal_mode=WAL",
                },
                "Changed ragmem/store/sqlite/store.py: 1 place.",
            ),
            (
                "run_command",
                {"command": "pytest -q tests/store/test_sqlite_processes.py"},
                "Exit code 0\n..............\n14 passed in 6.31s",
            ),
        ),
    ),
    (
        "Which port does the dev server use?",
        "Port 8123, set by `DEV_PORT` in `.env.example`; `vite.config.ts` falls back to 5173.",
        (("grep_files", {"pattern": "PORT"}, ".env.example:3: DEV_PORT=8123"),),
    ),
    (
        "Let's decide how to store amounts of money in the invoices table.",
        "Decision: store amounts as integer cents in `amount_cents BIGINT NOT NULL`, with a "
        "`currency CHAR(3)` column beside it. No floats, no DECIMAL: SQLite has none. Rounding "
        "happens once, half-even, when the tax of a line is computed in `billing/tax.py`.",
        (),
    ),
    (
        "Pourquoi le test test_reminder_sent_once échoue-t-il depuis hier ?",
        "Le test échoue parce que `send_reminder` est appelé deux fois : le commit 4f2c91e a "
        "ajouté un appel dans `on_save()` sans enlever celui de `cron_reminders()`. J'ai retiré "
        "le second dans `app/jobs/reminders.py`. Les 31 tests passent maintenant.",
        (
            ("run_command", {"command": "git log -3 --oneline"}, "Exit code 0\n4f2c91e on_save"),
            (
                "edit_file",
                {"path": "app/jobs/reminders.py", "old_text": "send(x)", "new_text": ""},
                "Changed app/jobs/reminders.py: 1 place.",
            ),
            ("run_command", {"command": "pytest -q"}, "Exit code 0\n31 passed in 2.02s"),
        ),
    ),
    (
        "Add pagination to GET /api/orders.",
        "Done: `list_orders` in `api/orders.py` takes `page` (from 1) and `per_page` (default 50, "
        "at most 200), and answers with `X-Total-Count`. I added `tests/api/test_orders.py`; all "
        "pass. Not done: the mobile client still asks without `page` and gets the first 50.",
        (
            ("read_file", {"path": "api/orders.py"}, "     1\tfrom flask import request"),
            (
                "edit_file",
                {"path": "api/orders.py", "old_text": "return all", "new_text": "return page"},
                "Changed api/orders.py: 1 place.",
            ),
            (
                "create_file",
                {"path": "tests/api/test_orders.py", "content": "def test_pages(): ..."},
                "Created tests/api/test_orders.py: 41 lines.",
            ),
            (
                "run_command",
                {"command": "pytest -q tests/api"},
                "Exit code 0\n9 passed in 0.80s",
            ),
        ),
    ),
    (
        "The Docker image is 1.9 GB. Make it smaller.",
        "It is 312 MB now. The `Dockerfile` uses two stages: `python:3.12` builds the wheels, "
        "`python:3.12-slim` runs them. `.dockerignore` leaves out `data/` (840 MB) and `.git`. "
        "The health check needs curl, which slim lacks, so it calls `python -m app.health`.",
        (
            ("read_file", {"path": "Dockerfile"}, "     1\tFROM python:3.12"),
            (
                "write_file",
                {"path": "Dockerfile", "content": "FROM python:3.12 AS build"},
                "Wrote Dockerfile: 22 lines.",
            ),
            (
                "create_file",
                {"path": ".dockerignore", "content": "data/"},
                "Created .dockerignore: 6 lines.",
            ),
            (
                "run_command",
                {"command": "docker build -t app . && docker images app"},
                "Exit code 0\napp latest 312MB",
            ),
        ),
    ),
    (
        "Warum ist die Suche nach Umlauten so langsam?",
        "Die Spalte `name_search` hat keinen Index, und `unaccent()` läuft für jede Zeile. Ich "
        "habe die Migration `0042_name_search_index.sql` geschrieben, die einen GIN-Index mit "
        "`gin_trgm_ops` anlegt: 1.840 ms werden zu 12 ms. Ausgeführt ist sie noch nicht.",
        (
            (
                "run_command",
                {"command": "psql -c 'EXPLAIN ANALYZE SELECT ...'"},
                "Exit code 0\nSeq Scan on people  (actual time=1840.2)",
            ),
            (
                "create_file",
                {"path": "migrations/0042_name_search_index.sql", "content": "CREATE INDEX"},
                "Created migrations/0042_name_search_index.sql: 3 lines.",
            ),
        ),
    ),
    (
        "run the linter",
        "`ruff check` reports 3 problems, all unused imports: `os` in `cli/main.py`, `re` and "
        "`json` in `cli/output.py`. Nothing was changed.",
        (
            (
                "run_command",
                {"command": "ruff check"},
                "Exit code 1\ncli/main.py:3:8: F401 `os` imported but unused\n"
                "cli/output.py:1:8: F401 `re` imported but unused\nFound 3 errors.",
            ),
        ),
    ),
    (
        "Explain what TurnRecording.begin does when the store is away.",
        "`TurnRecording.begin` writes a `BeginTurn`. When the store stalls for 200 ms the "
        "`SpooledStore` appends the write to `spool/sqlite/000001.jsonl`, syncs it, and returns "
        "without a turn index. The recording then takes the next index that this process knows; "
        "the real one is assigned when the spool is replayed.",
        (
            ("read_file", {"path": "ragmem/memory/recording.py"}, "     1\timport asyncio"),
            ("read_file", {"path": "ragmem/store/spool.py"}, "     1\timport json"),
        ),
    ),
    (
        "Rename getUserName to displayName everywhere.",
        "Renamed in 4 files: `src/user.ts`, `src/header.tsx`, `src/mail/template.ts` and "
        "`test/user.test.ts`. `npm test` fails in one place that I did not touch: "
        "`mail.test.ts:88` expects the old name in a snapshot. Update it with `npm test -- -u`.",
        (
            (
                "grep_files",
                {"pattern": "getUserName"},
                "src/user.ts:12: getUserName()\nsrc/header.tsx:40: getUserName()",
            ),
            (
                "run_command",
                {"command": "sed -i s/getUserName/displayName/ src/user.ts"},
                "Exit code 0",
            ),
            (
                "run_command",
                {"command": "npm test"},
                "Exit code 1\nTests: 1 failed, 57 passed, 58 total",
            ),
        ),
    ),
    (
        "What did we say about the deadline?",
        "The release is due on Friday, 2026-03-13; the feature freeze is on Tuesday the 10th.",
        (),
    ),
    (
        "¿Puedes traducir los mensajes de error de login.py al español?",
        "He traducido los 6 mensajes de `auth/login.py`; las claves siguen iguales en "
        "`auth/messages_es.json`. El mensaje de bloqueo dice ahora cuántos minutos quedan (15).",
        (
            ("read_file", {"path": "auth/login.py"}, '     1\tERRORS = {"locked": "Locked"}'),
            (
                "create_file",
                {"path": "auth/messages_es.json", "content": "{}"},
                "Created auth/messages_es.json: 8 lines.",
            ),
        ),
    ),
    (
        "The nightly backup failed with `pg_dump: error: server version mismatch`. Why?",
        "The server was upgraded to PostgreSQL 17.2 on Sunday, while the backup container still "
        "has `pg_dump` 15.6, and pg_dump refuses servers that are newer than itself. Change "
        "`image: postgres:15` to `postgres:17` in `ops/backup/compose.yml`, line 7. I did not "
        "change it, because the file is owned by root.",
        (
            ("read_file", {"path": "ops/backup/compose.yml"}, "     7\t  image: postgres:15"),
            (
                "run_command",
                {"command": "psql -c 'select version()'"},
                "Exit code 0\nPostgreSQL 17.2",
            ),
        ),
    ),
    (
        "Write a function that parses durations like 1h30m.",
        "I added `parse_duration(text: str) -> timedelta` to `util/durations.py`. It takes `d`, "
        "`h`, `m` and `s` in this order, raises `ValueError` for anything else, and has 12 tests "
        "in `tests/util/test_durations.py`. `-5m` and an empty text are errors.",
        (
            (
                "create_file",
                {"path": "util/durations.py", "content": "import re"},
                "Created util/durations.py: 34 lines.",
            ),
            (
                "run_command",
                {"command": "pytest -q tests/util/test_durations.py"},
                "Exit code 0\n12 passed in 0.05s",
            ),
        ),
    ),
)


def coding_turns() -> list[Turn]:
    """The turns, 1 to 15, with their tool calls."""
    return [
        a_turn(
            index,
            asked,
            answered,
            tuple(_call(index, order, *done) for order, done in enumerate(calls)),
        )
        for index, (asked, answered, calls) in enumerate(_EXCHANGES, 1)
    ]


def _call(turn: int, order: int, name: str, arguments: dict[str, str], text: str) -> ToolCall:
    result: dict[str, object] = {"text": text}
    if "path" in arguments:
        result["path"] = arguments["path"]
    if text.startswith("Exit code"):
        result["exit_code"] = int(text.split()[2])
    if name == "grep_files":
        result["files"] = list(dict.fromkeys(line.split(":")[0] for line in text.split("\n")))
    return a_call(
        order,
        tool_call_id=f"01a2005f-a99f-7000-9ce2-{100 * turn + order:012x}",
        tool_name=name,
        arguments=json.dumps(arguments),
        result=json.dumps(result),
    )


def facts() -> list[tuple[str, str, str]]:
    """Of each turn, three things that a summary of it should hold, word for word."""
    return [
        ("ragmem/memory/projects.py", "--join", "old path"),
        ("SQLiteStore.open", "busy_timeout", "14 passed"),
        ("8123", "DEV_PORT", "5173"),
        ("amount_cents", "integer cents", "half-even"),
        ("send_reminder", "4f2c91e", "31"),
        ("list_orders", "per_page", "mobile client"),
        ("312 MB", "python:3.12-slim", ".dockerignore"),
        ("name_search", "GIN", "12 ms"),
        ("3 problems", "cli/main.py", "cli/output.py"),
        ("BeginTurn", "200 ms", "spool/sqlite/000001.jsonl"),
        ("displayName", "src/user.ts", "mail.test.ts:88"),
        ("2026-03-13", "Friday", "freeze"),
        ("auth/login.py", "auth/messages_es.json", "15"),
        ("17.2", "15.6", "ops/backup/compose.yml"),
        ("parse_duration", "util/durations.py", "ValueError"),
    ]
