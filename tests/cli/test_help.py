"""Help texts: what the program says it can do, and nothing else."""

import subprocess
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from ragmem.cli.main import command
from ragmem.cli.options import TOOL_NAMES
from ragmem.tools.base import deny_all
from ragmem.tools.standard import standard_toolset
from ragmem.tools.workspace import Workspace
from tests.cli.process import COMMAND


def test_the_commands() -> None:
    """Only what works is in --help."""
    root = command()
    tree = {}
    for name, child in root.commands.items():  # type: ignore[attr-defined]
        tree[name] = sorted(getattr(child, "commands", {}))
    assert tree == snapshot(
        {
            "chat": [],
            "ask": [],
            "sessions": [
                "archive",
                "delete",
                "export",
                "fork",
                "import",
                "insights",
                "list",
                "rename",
                "resume",
                "search",
                "show",
                "similar",
                "summarize",
                "tag",
            ],
            "context": [],
            "search": [],
            "memory": [
                "add",
                "cleanup",
                "edit",
                "episodes",
                "export",
                "forget",
                "import",
                "list",
                "owner",
                "pin",
                "profile",
                "show",
                "unpin",
                "why",
            ],
            "import": ["claude-code", "codex"],
            "files": [],
            "index": [],
            "store": ["backup", "check", "info", "migrate", "reembed", "repair", "use"],
            "neo4j": ["down", "logs", "password", "status", "up"],
            "stats": [],
            "models": [],
            "config": ["init", "path", "set", "show"],
            "doctor": [],
            "work": [],
        }
    )


def test_a_command_says_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert help_of() == snapshot("""\
Usage: ragmem [OPTIONS] COMMAND [ARGS]...

  A terminal coding agent whose memory lasts.

  `ragmem` alone is `ragmem chat`; `ragmem -p "…"` is `ragmem ask "…"`.

Options:
  -V, --version         Print the version and exit.
  --install-completion  Install completion for the current shell.
  --show-completion     Show completion for the current shell, to copy it or
                        customize the installation.
  -h, --help            Show this message and exit.

Commands:
  chat      Talk with the agent in this folder.
  ask       Ask one question and print the answer.
  sessions  Find, show, resume, name, fork, move and delete sessions.
  context   Show exactly what `ask` would send, with budgets and reasons.
  search    Find what was said and done, by its words and its meaning.
  memory    Show, add, correct and forget facts, rules and preferences.
  import    Take over sessions of other coding agents.
  files     List the files that a session has touched.
  index     Bring the index of this project's code up to date.
  store     Show and choose where memory is kept; move, keep and mend it.
  neo4j     Run a local Neo4j, for `ragmem store use neo4j`.
  stats     Show how much is remembered, how fast, how well, at what cost.
  models    List the models that can be used now; * answers by default.
  config    Show and change the settings.
  doctor    Check what ragmem needs; exit 1 when something is broken.
""")
    assert help_of("chat") == snapshot("""\
Usage: ragmem chat [OPTIONS]

  Talk with the agent in this folder. Bare `ragmem` does the same.

Options:
  -c, --continue                  Continue the newest session of this folder.
  -r, --resume [ID]               Resume a session: its id, the tail of one,
                                  or its name.
  -n, --name NAME                 Name the session.
  --fork-session                  With -c or -r: go on in a copy of the
                                  session.
  --everyone                      With -c or -r: sessions of other people in
                                  the same database too.
  -m, --model MODEL               Model, as provider/model.
  --permission-mode <default|acceptEdits|plan|bypassPermissions>
                                  default asks before edits and commands,
                                  acceptEdits before commands, plan only
                                  reads, bypassPermissions never asks.
  --yolo                          Short for bypassPermissions.
  --add-dir DIR                   Another folder that tools may use; may be
                                  repeated.
  --ephemeral                     Write neither session nor memory.
  --color <auto|always|never>     When to use colour; NO_COLOR turns it off.
  -h, --help                      Show this message and exit.
""")
    assert help_of("ask") == snapshot("""\
Usage: ragmem ask [OPTIONS] [PROMPT|-]

  Ask one question and print the answer.

  With a PROMPT and a pipe, what is piped follows the prompt in a <stdin>
  block.

Arguments:
  PROMPT|- <str>  The question; - is stdin.

Options:
  -c, --continue                  Continue the newest session of this folder.
  -r, --resume [ID]               Resume a session: its id, the tail of one,
                                  or its name.
  --fork-session                  With -c or -r: go on in a copy of the
                                  session.
  --everyone                      With -c or -r: sessions of other people in
                                  the same database too.
  -m, --model MODEL               Model, as provider/model.
  --output-format <text|json|stream-json>
                                  text: the answer. json: one result. stream-
                                  json: one event a line.  [default: text]
  --include-partial-messages      With stream-json: the words as they come.
  --max-turns N                   At most so many calls of the model.  [x>=1]
  --max-budget-usd X              At most so many dollars.
  --permission-mode <default|acceptEdits|plan|bypassPermissions>
                                  default asks before edits and commands,
                                  acceptEdits before commands, plan only
                                  reads, bypassPermissions never asks.
  --yolo                          Short for bypassPermissions.
  --allow TOOL                    Allow this tool without asking; may be
                                  repeated.
  --no-tools                      Give the model no tools.
  --raw                           Into a pipe: terminal controls of the answer
                                  too.
  --add-dir DIR                   Another folder that tools may use; may be
                                  repeated.
  --ephemeral                     Write neither session nor memory.
  --color <auto|always|never>     When to use colour; NO_COLOR turns it off.
  -h, --help                      Show this message and exit.
""")
    assert help_of("sessions", "list") == snapshot("""\
Usage: ragmem sessions list [OPTIONS]

  List the sessions of this folder, newest activity first.

Options:
  --project                   Those of the whole project, not of this folder
                              only.
  --join                      First join this project to one with the same
                              remote; asks you.
  --all                       Those of every folder.
  --cwd DIR                   Those of another folder.
  --status <active|archived>  Only active or archived ones.
  --tag T                     With this tag; repeated: any of them.
  --everyone                  And those of other people in the same database.
  --limit N                   At most so many.  [default: 50; x>=1]
  --format <table|json>       How to print it.  [default: table]
  -h, --help                  Show this message and exit.
""")
    assert help_of("sessions", "show") == snapshot("""\
Usage: ragmem sessions show [OPTIONS] {ID}

  Show a session with its turns and tool calls.

Arguments:
  ID <str>  An id, the tail of one, or a name.  [required]

Options:
  --reasoning           And what the model thought.
  --results             And what the tools answered.
  --format <text|json>  How to print it.  [default: text]
  -h, --help            Show this message and exit.
""")
    assert help_of("context") == snapshot("""\
Usage: ragmem context [OPTIONS] {PROMPT}

  Show exactly what `ask` would send, with budgets and reasons.

  Nothing is sent and nothing is stored.

Arguments:
  PROMPT <str>  The prompt.  [required]

Options:
  -c, --continue                  Continue the newest session of this folder.
  -r, --resume [ID]               Resume a session: its id, the tail of one,
                                  or its name.
  --strategy <recent|relevant|hybrid>
                                  recent: the latest turns; relevant: what
                                  bears on it; hybrid: both.  [default:
                                  hybrid]
  -m, --model MODEL               Model, as provider/model.
  --format <text|json>            How to print it.  [default: text]
  -h, --help                      Show this message and exit.
""")
    assert help_of("search") == snapshot("""\
Usage: ragmem search [OPTIONS] {QUERY}

  Find what was said and done, by its words and its meaning.

  In this project, unless --scope says otherwise; `session` is the newest one
  of this folder, or that of -r. With --code: find functions, classes and
  sections by what they are called, say and do; of one that QUERY names, which
  sessions had to do with it and what was decided there.

Arguments:
  QUERY <str>  What to look for.  [required]

Options:
  --scope <session|project|all>  Where to look; the project, unless
                                 configured.
  --levels 0,1,2                 0 for turns, 1 and up for summaries; all by
                                 default.
  --code                         In the project's files, with the sessions
                                 about each find.
  --no-semantic                  By words alone, not by meaning.
  --limit N                      At most so many.  [default: 10; 1<=x<=100]
  -c, --continue                 Continue the newest session of this folder.
  -r, --resume [ID]              Resume a session: its id, the tail of one, or
                                 its name.
  --format <table|json>          How to print it.  [default: table]
  -h, --help                     Show this message and exit.
""")
    assert help_of("stats") == snapshot("""\
Usage: ragmem stats [OPTIONS]

  Show how much is remembered, how fast, how well, at what cost.

  Times, tokens and costs are those of this machine, kept from run to run.

Options:
  --format <table|json>  How to print it.  [default: table]
  -h, --help             Show this message and exit.
""")
    assert help_of("store", "reembed") == snapshot("""\
Usage: ragmem store reembed [OPTIONS]

  Make all vectors anew, with the embedder of the settings.

  Those of turns and summaries, for when `model.embedding` has changed: until
  then search goes by words alone. Stopped half-way, it can be run again and
  goes on.

Options:
  -h, --help  Show this message and exit.
""")
    assert help_of("sessions", "summarize") == snapshot("""\
Usage: ragmem sessions summarize [OPTIONS] [ID]

  Sum a session up now, and show what came of it.

Arguments:
  ID <str>  An id, the tail of one, or a name; else the newest of this folder.

Options:
  -m, --model MODEL  Model, as provider/model.
  -h, --help         Show this message and exit.
""")
    assert help_of("files") == snapshot("""\
Usage: ragmem files [OPTIONS] [PATH]

  List the files that a session has touched.

  Without -r: the newest session of this folder. With PATH: what changes
  together with that file, what it imports and what imports it, which sessions
  touched it, and what was decided there; --related tells that of each file of
  the session.

Arguments:
  PATH <str>  Tell of this file, whoever touched it.

Options:
  --related              Of each file: what changes with it, imports,
                         sessions, decisions.
  --since WHEN           What the agent has changed in this project since: 7d,
                         12h, 2w, a date, or the end of a session (its id or
                         name).
  -r, --resume [ID]      Resume a session: its id, the tail of one, or its
                         name.
  --format <table|json>  How to print it.  [default: table]
  -h, --help             Show this message and exit.
""")
    assert help_of("store", "use") == snapshot("""\
Usage: ragmem store use [OPTIONS] {sqlite|neo4j}

  Keep memory in another store from now on; nothing is moved.

  The store is opened first: one that can't be is not chosen.

Arguments:
  sqlite|neo4j <str>  The store.  [required]

Options:
  -h, --help  Show this message and exit.
""")
    assert help_of("store", "migrate") == snapshot("""\
Usage: ragmem store migrate [OPTIONS]

  Copy all of memory into another store, or a backup into one.

  What is there stays, what is copied from is left untouched, and both are
  compared afterwards. Stopped half-way, it can be run again.

Options:
  --to sqlite|neo4j  The store that is to have it all.
  --from FILE        Take it from a backup, not the other store.
  --yes              Don't ask.
  -h, --help         Show this message and exit.
""")
    assert help_of("neo4j") == snapshot("""\
Usage: ragmem neo4j [OPTIONS] COMMAND [ARGS]...

  Run a local Neo4j, for `ragmem store use neo4j`.

Options:
  -h, --help  Show this message and exit.

Commands:
  up      Start a local Neo4j, unless one is configured or runs already.
  down    Stop the local Neo4j that `up` started; its data stays.
  status  Say whether a Neo4j is there, and where; exit 1 when it is not.
  logs    Print the end of the local server's log.
""")
    assert help_of("config") == snapshot("""\
Usage: ragmem config [OPTIONS] COMMAND [ARGS]...

  Show and change the settings.

Options:
  -h, --help  Show this message and exit.

Commands:
  show  Print the settings in force: the file, with the environment over it.
  path  Print where the file of settings is, or would be.
  init  Write a file with every setting and its default, commented out.
  set   Change one setting in the file; the rest of it stays as it is.
""")
    assert help_of("doctor") == snapshot("""\
Usage: ragmem doctor [OPTIONS]

  Check what ragmem needs; exit 1 when something is broken.

Options:
  -h, --help  Show this message and exit.
""")


def help_of(*words: str) -> str:
    done = subprocess.run(
        [*COMMAND, *words, "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.stderr == ""
    return done.stdout


def test_the_tools_that_allow_knows_are_the_agents_tools(tmp_path: Path) -> None:
    toolset = standard_toolset(Workspace(tmp_path), data_dir=tmp_path, approver=deny_all)
    assert sorted(toolset.names) == sorted(TOOL_NAMES)
