"""What can't be done is an error in words and exit 2; nothing is printed, sent or stored."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.process import Ragmem
from tests.fakes.llm_server import LLMServer

NO_FILE = "\nGive a file that exists and that you can read."
REFUSED = [
    # --- ask, chat, context
    ("ask", "error: The prompt is empty.\nType your question after the command.\n"),
    ("-p", "error: The prompt is empty.\nType your question after the command.\n"),
    ("context ' '", "\nType your question after the command."),
    ("context Hello -r nosuch", "nosuch"),
    ("", "use `ragmem ask`"),
    ("chat", "use `ragmem ask`"),
    ("-c", "use `ragmem ask`"),
    ("chat -r abc", "use `ragmem ask`"),
    ("ask Hello -r nosuch", "nosuch"),
    ("ask Hello -c", "No session in"),
    ("ask Hello -r", "No session in"),
    ("ask Hello -c -r x", "can't be used together"),
    ("ask Hello --fork-session", "--fork-session requires a session"),
    ("ask Hello --yolo --permission-mode plan", "can't be used together"),
    ("ask Hello --include-partial-messages", "stream-json"),
    ("ask Hello --add-dir nosuch", "nosuch is not a folder"),
    ("ask Hello --max-turns 0", "0 is not in the range x>=1"),
    ("ask Hello --max-turns many", "'many' is not a whole number.\n"),
    ("ask Hello --max-budget-usd much", "'much' is not a number.\n"),
    ("ask Hello --output-format xml", "'xml' is not one of 'text', 'json', 'stream-json'"),
    ("ask Hello --raw --output-format json", "--raw"),
    ("ask Hello --max-budget-usd -1", "must be greater than 0"),
    ("ask Hello --max-budget-usd 1", "price of openai/scripted is not known"),
    ("ask Hello --bogus", "No such option: --bogus"),
    ("ask Hello --allow nosuch", "unknown tool 'nosuch'"),
    ("ask ? --json-schema nowhere.json", "nowhere.json can't be read: No such file"),
    ("ask ? --json-schema .", "--json-schema: . can't be read: Is a directory."),
    (
        """ask ? --json-schema '{"type":'""",
        "--json-schema is not JSON: Expecting value: line 1 col",
    ),
    ("""ask ? --json-schema '{"type": "numbr"}'""", "--json-schema is not a valid JSON Schema: "),
    ("ask ? --json-schema deep.json", "--json-schema is not a valid JSON Schema: "),
    ("ask ? --json-schema ''", "--json-schema is empty."),
    ("ask ? --json-schema bytes.json", "--json-schema: bytes.json can't be read: 'utf-8' codec"),
    # --- commands and options that there are not
    ("sesions", "error: No such command 'sesions'. Did you mean 'sessions'?"),
    ("explain", "error: No such command 'explain'.\nRun `ragmem --help` for usage. To"),
    ("stats --plan", "error: No such option: --plan ("),
    ("sessions lst", "error: No such command 'lst'. Did you mean 'list'?"),
    ("ask a b", "error: Got unexpected extra argument(s) (b)"),
    ("sessions show", "error: Missing argument 'ID'."),
    ("sessions list --limit 0", "error: Invalid value for '--limit': 0 is not in"),
    ("sessions list --status x", "error: Invalid value for '--status': 'x' is not"),
    ("\x1b[31m", "error: No such command "),
    # --- sessions
    ("sessions show nosuch", "nosuch"),
    ("sessions show ac23", "Use the end of an id (e2ab of ac23e2ab), not its beginning."),
    ("sessions rename nosuch name", "nosuch"),
    ("sessions list --all --project", "error: Use only one of --project, --all and --cwd.\n"),
    ("sessions list --join", "\nRun `ragmem sessions list --join` in a terminal.\n"),
    ("sessions list --join --all", "--join applies to this folder"),
    ("sessions list --join --cwd .", "--join applies to this folder"),
    ("sessions import nofile", NO_FILE),
    ("sessions export --anonymous", "--anonymous"),
    ("sessions search ' '", "\nGive one or more words to search for."),
    # --- search
    ("search ''", "error: The query is empty.\nGive one or more words to search for.\n"),
    ("search ' '", "error: The query is empty.\nGive one or more words to search for.\n"),
    ("search --code ' '", "\nGive one or more words to search for."),
    ("search hello --levels=x", "--levels takes numbers"),
    ("search hello --levels=", "--levels takes numbers"),
    ("search hello --levels=-1", "--levels takes numbers"),
    ("search hello --scope session", "No session in"),
    ("search x --scope all --code", "error: --code searches this project's files"),
    ("search x --levels 0 --code", "error: --code searches this project's files"),
    ("search x -c --code", "error: --code searches this project's files"),
    ("search x -r x --code", "error: --code searches this project's files"),
    # --- files, the index, the graph
    ("files -r nosuch", "nosuch"),
    ("files --since 1h water.py", "--since can't be combined with"),
    ("files --since 1h --related", "--since can't be combined with"),
    ("files --since 1h -r x", "--since can't be combined with"),
    ("files water.py -r x", "PATH covers all sessions"),
    ("files --since 2026-99-99", "'2026-99-99' is not a valid date"),
    ("files --since soon", "'soon' is not an age, a date or a session"),
    ("files ' '", "PATH is empty."),
    ("index --status --rebuild", "error: --status can't be combined"),
    ("index --status --watch", "error: --status can't be combined"),
    ("index --watch --format json", "error: --watch can't be used with"),
    ("graph --all --file a.py", "Use only one of"),
    ("graph --memory 0ddba11", "`ragmem memory list` shows memories with their ids."),
    ("graph --since soon", "is not an age, a date or a session"),
    ("graph -r nothing", "nothing"),
    ("graph --file none.py", "error: Nothing is remembered about none.py.\n"),
    ("stats --html --format json", "--html"),
    ("stats -o x.html", "--html"),
    # --- memory
    ("memory add ' '", "error: The text is empty.\n"),
    ("memory add x --ttl soon", "error: --ttl takes a number and h, d or w, or `never`"),
    ("memory add x --ttl -1d", "error: "),
    ("memory add x --kind rumour", "error: Invalid value for '--kind': 'rumour' is not"),
    ("memory add x --scope all", "error: Invalid value for '--scope'"),
    ("memory add x --subject ''", "error: --subject is empty.\n"),
    ("memory add Hello!", "error: Not remembered: it is a greeting"),
    ("memory edit cafe1234", "error: Nothing to change.\n"),
    ("memory edit cafe1234 --subject a --no-subjects", "error: Use either --subject or"),
    ("memory show cafe1234", "cafe1234"),
    ("memory show cafe", "Use the end of an id"),
    ("memory why nonsense", "nonsense"),
    ("memory list --all --scope user", "error: --all and --scope can't be used together.\n"),
    ("memory import nofile", NO_FILE),
    ("memory owner --name '  '", "error: "),
    ("memory profile set a=b x", "error: "),
    ("memory profile set 'a;b' x", "error: "),
    ("memory profile set '' x", "error: "),
    (f"memory profile set {'k' * 200} x", "error: "),
    (f"memory profile set k {'v' * 500}", "error: "),
    # --- settings, stores, servers
    ("config set ui.colour never", "error: "),
    ("config set nosuch 1", "error: "),
    ("config set ui.color pink", "error: ui.color can't be 'pink'"),
    ("config set memory.recent.turns -3", "error: memory.recent.turns can't be '-3'"),
    ("config set llm.api_base notaurl", "not a valid address"),
    ("config set llm.api_base file:///etc", "not a valid address"),
    ("config set model.main a\udcff", "error: A setting must be valid UTF-8.\n"),
    ("config set model.main --yes", "No such option: --yes."),
    ("config set model.main -x", "No such option: -x."),
    ("config set model.main --global", "No such option: --global."),
    ("config get llm.timeout", "Unknown setting 'llm.timeout'"),
    ("config unset llm.timeout", "Unknown setting 'llm.timeout'"),
    ("store use qdrant", "error: Unknown store: 'qdrant'.\nAvailable stores: sqlite and neo4j.\n"),
    ("store migrate", "error: No target given.\nAdd `--to neo4j` or `--to sqlite`.\n"),
    ("store migrate --to postgres", "postgres"),
    ("store migrate --from nofile --to sqlite", NO_FILE),
    ("neo4j logs", "error: No log at"),
    ("mcp --project none", "is not a folder"),
    *(
        (f"{typed} ~nosuch/x", "error: '~nosuch/x': there is no such home folder.\nWrite the whole")
        for typed in (
            "ask Hello --add-dir",
            "ask Hello --json-schema",
            "sessions list --cwd",
            "sessions split",
            "mcp --project",
            "import codex",
            "store backup",
            "memory export -o",
        )
    ),
    (
        "import codex --since soon",
        "'soon' is neither an age nor a date.\nUse, for example, 7d, 12h, 2w or 2026-11",
    ),
]


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ragmem]:
    """A home in which none of it leaves anything, and a model that none of it reaches."""
    with LLMServer() as server:
        ragmem = Ragmem(tmp_path_factory.mktemp("refused"), server.env)
        (ragmem.project / "bytes.json").write_bytes(b"\xff\xfe{}")
        deep = '{"properties":{"a":' * 400 + "{}" + "}}" * 400
        (ragmem.project / "deep.json").write_text(deep)
        yield ragmem
        assert server.requests == []
        assert ragmem.sessions() == ragmem.read("memory", "list", "--all") == []
        assert ragmem.read("memory", "profile", "show")["values"] == {}
        assert not (ragmem.home / "ragmem.toml").exists()


@pytest.mark.parametrize(("typed", "said"), REFUSED, ids=lambda value: str(value)[:60])
def test_what_can_not_be_done_is_said(empty: Ragmem, typed: str, said: str) -> None:
    told = empty.refused(*shlex.split(typed))
    assert said in told
    assert "\x1b" not in told


@pytest.mark.parametrize(
    ("switched_off", "typed", "said"),
    [
        ("memory.enabled", "search hello", "memory.enabled"),
        ("memory.enabled", "memory list", "memory is turned off"),
        ("memory.embeddings.enabled", "store reembed", "memory.embeddings.enabled"),
        ("memory.embeddings.enabled", "index --vectors", "turned off"),
        ("memory.embeddings.enabled", "sessions similar x", "memory.embeddings.enabled"),
        ("code.vectors", "index --vectors", "turned off"),
        ("code.enabled", "search --code litres", "turned off"),
    ],
)
def test_what_is_switched_off_is_said_to_be(
    empty: Ragmem, switched_off: str, typed: str, said: str
) -> None:
    env = {f"RAGMEM_{switched_off.upper().replace('.', '__')}": "false"}
    code = 1 if switched_off == "memory.enabled" else 2
    told = empty.refused(*shlex.split(typed), code=code, env=env)
    assert said.casefold() in told.casefold()


def test_a_project_that_is_all_of_home_is_not_indexed(empty: Ragmem, tmp_path: Path) -> None:
    told = empty.refused("search", "--code", "x", cwd=tmp_path, env={"HOME": str(tmp_path)})
    assert "it is your home folder" in told


def test_who_copies_into_the_store_in_use_is_told_that_it_is(empty: Ragmem) -> None:
    done = empty.run("store", "migrate", "--to", "sqlite")
    assert done.code == 1
    assert done.err.startswith(
        "note: sqlite is already in use; the contents of neo4j are copied into it.\nerror: No Neo4j"
    )
