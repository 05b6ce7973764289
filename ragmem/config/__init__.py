"""Settings: one user-wide TOML file, the environment over it, flags over both.

Each stands here with its default, and below it its text for the file. The only reader of
`os.environ`. A project's folder can change nothing here: no file inside it is read. Unknown keys
are errors that name file, line and the nearest key. Provider keys are never settings; see
`provider_key`.
"""

import os
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec

from ragmem.errors import ConfigError
from ragmem.files import NO_HOME, Paths as Paths
from ragmem.text import in_words
from ragmem.themes import ThemeName

Percent = Annotated[float, msgspec.Meta(ge=0, le=100)]
_MOST = 1_000_000_000
"""Of what is counted: as good as no limit, and within what databases and formats hold."""
Count = Annotated[int, msgspec.Meta(ge=0, le=_MOST)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=_MOST)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]
Similarity = Annotated[float, msgspec.Meta(ge=0, le=1)]
Effort = Literal["none", "low", "medium", "high"]
"""How long a model may think before it answers, as each adapter translates it."""
ScopeName = Literal["session", "project", "all"]
WhenColored = Literal["auto", "always", "never"]
EditingKeys = Literal["emacs", "vi"]


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class ModelConfig(_Section, frozen=True):
    """Which models."""

    main: str = ""
    """`provider/model`; empty: the first that is available (`ragmem models`)."""
    summary: str = ""
    """For background work; empty: the small sibling of `main`."""
    embedding: str = ""
    """For recall by meaning; empty: the one that comes with ragmem and runs on this machine."""
    effort: Literal["", Effort] = ""
    """How long the main model may think: `none`, `low` … `high`; empty: as its provider has it."""


class LLMConfig(_Section, frozen=True):
    """How models are reached."""

    client: Literal["auto", "openai", "litellm"] = "auto"
    """`auto`: directly to Anthropic, Gemini and OpenAI-compatible servers, by litellm to others."""
    api_base: str = ""
    """URL of an OpenAI-compatible server; empty: the provider's own."""
    timeout_s: Seconds = 120.0
    """Longest silence of a server, in seconds."""
    retries: Annotated[int, msgspec.Meta(ge=0, le=10)] = 3
    """So often a model that can't be asked, or whose answer breaks off, is asked again."""


class StoreConfig(_Section, frozen=True):
    """Where memory is kept."""

    kind: Literal["sqlite", "neo4j"] = "sqlite"
    """`sqlite`: a file. `neo4j`: a graph database (`ragmem store use`)."""
    url: str = ""
    """Of Neo4j; empty: NEO4J_URI, else the local server of `ragmem neo4j up`."""
    database: str = ""
    """Of Neo4j; empty: NEO4J_DATABASE, else the server's default."""
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 5.0
    """Longest wait for a busy or silent store, in seconds."""


class ContextConfig(_Section, frozen=True):
    """Budgets of the request, in percent of `max_chars`."""

    max_chars: Count = 0
    """0: 100,000, or half of the model's window (4 characters a token) if that is less."""
    instructions_percent: Percent = 20.0
    """AGENTS.md, or CLAUDE.md where there is none."""
    pinned_percent: Percent = 5.0
    """Pinned rules and memories, in the system message of every call."""
    user_profile_percent: Percent = 1.0
    """What you said of yourself."""
    preferences_percent: Percent = 2.0
    """How you like things done: in every request."""
    thread_summary_percent: Percent = 3.0
    """The digest of the conversation so far."""
    last_time_percent: Percent = 6.0
    """What your last sessions came to: in the first turns of a new one, or when you ask."""
    facts_percent: Percent = 5.0
    """Facts, decisions, deadlines and the like that bear on the prompt."""
    last_user_queries_percent: Percent = 5.0
    """Your last questions."""
    relevant_percent: Percent = 15.0
    """Turns and summaries that bear on the prompt, together."""
    summaries_percent: Percent = 10.0
    """Summaries of turns that no summary of a higher level covers yet."""
    recently_accessed_files_percent: Percent = 5.0
    """The list of files that were read or changed of late."""
    code_percent: Percent = 10.0
    """Functions, classes and sections of the project that bear on the prompt."""


class RecentConfig(_Section, frozen=True):
    """The recent window."""

    window_percent: Percent = 40.0
    """The latest turns with their tool calls: up to this."""
    window_floor_percent: Percent = 25.0
    """When they pass it, the oldest go until this is reached: less often, so that caches hold."""
    turns: Positive = 3
    """For a model without tool calls: at most so many turns."""
    turns_percent: Percent = 5.0
    """For a model without tool calls: within this much."""


class SummariesConfig(_Section, frozen=True):
    """Digests of what was said, made in the background."""

    enabled: bool = True
    """False: none are made."""
    every_n_messages: Positive = 10
    """A session's own summary is renewed when so many messages came in; a turn has two."""
    rollup_chars: Positive = 5_000
    """Past so many characters of turns, their summaries are summed up in one above them."""
    max_tokens: Positive = 300
    """Of a session's own summary (4 characters a token)."""
    retry_pause_s: Annotated[float, msgspec.Meta(ge=0, le=3_600)] = 2.0
    """Before a model is asked again where its answer was of no use, and three times as long before
    the last time. With `worker = "inline"` there are no pauses."""
    max_calls_per_session: Count = 2_000
    """Of a paid model, for one session; beyond them summaries are cut from the turns."""
    max_cost_usd_per_session: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    """The same, in dollars as estimated."""
    max_cost_usd_per_day: Annotated[float, msgspec.Meta(ge=0)] = 5.0
    """The same, for all sessions of a day together: imported ones add up."""


class EmbeddingsConfig(_Section, frozen=True):
    """Recall by meaning, beside recall by words."""

    enabled: bool = True
    """False: nothing is embedded; text search and all else go on."""
    dimension: Annotated[int, msgspec.Meta(ge=0, le=16_384)] = 0
    """Numbers in a vector, where the model lets one choose; 0: the model's own."""
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=600)] = 1.0
    """A turn waits no longer for its question's vector; then it recalls by words alone."""
    history_similarity: Similarity = 0.0
    """Cosine above which a past turn or summary is recalled; 0: as fitted for the model."""
    fact_similarity: Similarity = 0.0
    """Cosine above which a fact has to do with a question; 0: as fitted for the model."""
    duplicate_similarity: Similarity = 0.0
    """Cosine above which two facts are one; 0: as fitted for the model."""
    idle_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 300.0
    """The background process stays for others' searches so long, all loaded; 0: not at all."""


class FactsConfig(_Section, frozen=True):
    """Facts, preferences, rules, decisions, deadlines, failures."""

    enabled: bool = True
    """False: none are kept or recalled, and the agent has no tools for them."""
    extract: bool = True
    """The small model learns them too, in the background; within the limits of summaries."""
    shown: Positive = 5
    """At most so many are recalled for a prompt."""


class MemoryConfig(_Section, frozen=True):
    """What is remembered and recalled."""

    enabled: bool = True
    """False: nothing is stored or recalled; the agent still answers."""
    scope: ScopeName = "project"
    """Past turns are looked for in this conversation (`session`), its `project`, or in `all`."""
    worker: Literal["detached", "inline", "off"] = "detached"
    """Work after `ask`: by its own process (`detached`), before it ends (`inline`), or `off`."""
    thoughts: bool = True
    """False: what a model thinks is not stored with its answers."""
    context: ContextConfig = ContextConfig()
    recent: RecentConfig = RecentConfig()
    embeddings: EmbeddingsConfig = EmbeddingsConfig()
    summaries: SummariesConfig = SummariesConfig()
    facts: FactsConfig = FactsConfig()


class CodeConfig(_Section, frozen=True):
    """The code index: the project's files by function, class and section."""

    enabled: bool = True
    """False: nothing is indexed, and no code is looked for."""
    max_files: Positive = 50_000
    """Of a project with more, those of the deepest folders are left out."""
    max_file_kb: Positive = 1_000
    """Larger files are left out."""
    vectors: bool = True
    """Search by meaning too; they are made in the background."""
    wait_s: Annotated[float, msgspec.Meta(ge=0, le=60)] = 0.3
    """A turn waits so long for files that have changed to be indexed, and so long for a search."""

    @property
    def max_file_bytes(self) -> int:
        """The size of the largest file that is indexed."""
        return self.max_file_kb * 1_000


class ToolsConfig(_Section, frozen=True):
    """The agent's tools."""

    max_iterations: Positive = 25
    """Model calls in one turn."""
    command_timeout_s: Annotated[float, msgspec.Meta(gt=0, le=600)] = 120.0
    """Of a command that names none, in seconds."""


Color = Annotated[str, msgspec.Meta(pattern=r"^(#[0-9a-fA-F]{6})?$")]
"""`#rrggbb`; empty: as the theme has it."""


class ColorsConfig(_Section, frozen=True):
    """Colours of your own, `#rrggbb`, in place of the theme's; empty: as the theme has it."""

    accent: Color = ""
    """What stands out: the prompt's sign, names of commands, the line that is picked."""
    good: Color = ""
    """What went well, and what an edit adds."""
    bad: Color = ""
    """What failed, and what an edit takes away."""
    warning: Color = ""
    """What needs a look, such as a question or a note."""
    mode: Color = ""
    """The footer's word for plan mode."""
    quiet: Color = ""
    """What is less important."""


PermissionMode = Literal["default", "acceptEdits", "plan", "bypassPermissions"]
"""What is asked of the person; the last is no setting, since it asks nothing."""


class UiConfig(_Section, frozen=True):
    """The terminal."""

    color: WhenColored = "auto"
    """`auto`: on a terminal, unless NO_COLOR is set."""
    theme: ThemeName = "auto"
    """`auto`: for the background that the terminal tells; `plain`: bold and dim alone."""
    colors: ColorsConfig = ColorsConfig()
    permission_mode: Literal["default", "acceptEdits", "plan"] = "default"
    """`default` asks before edits and commands, `acceptEdits` before commands; `plan` reads."""


Rule = Annotated[str, msgspec.Meta(pattern=r"^\s*[A-Za-z_][\w-]*(\([\s\S]+\))?\s*$")]


Place = Annotated[str, msgspec.Meta(pattern=r"^[~/]")]


class ProjectRules(_Section, frozen=True):
    """What `permissions` has for one project."""

    allow: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()


class PermissionsConfig(_Section, frozen=True):
    """What may be done without asking, and what never: `tool`, or `tool(pattern)`.

    `"run_command(git status*)"` is held against each command that a line runs, and
    `"edit_file(src/**)"` against the file's path. /permissions in a chat changes them.
    """

    allow: tuple[Rule, ...] = ()
    """Never asked for, but in plan mode and for files that can run by themselves."""
    deny: tuple[Rule, ...] = ()
    """Never done, in any mode, whatever else allows it."""
    projects: dict[Place, ProjectRules] = {}
    """The same for one project alone, by its folder: `[permissions.projects."/home/me/garden"]`."""

    def of_project(self, folder: str) -> ProjectRules:
        """Return the rules for the project with this folder alone."""
        held = {os.path.expanduser(name).rstrip("/"): each for name, each in self.projects.items()}
        return held.get(folder.rstrip("/"), ProjectRules())


class SandboxConfig(_Section, frozen=True):
    """The sandbox of the agent's commands; docs/sandbox.md tells what it holds back."""

    mode: Literal["on", "off", "required"] = "on"
    """`on`: where the system has one. `required`: no command runs without it or outside of it."""
    network: Literal["none", "loopback", "all"] = "loopback"
    """Commands reach: `none`; `loopback`: what the same one started; `all`: whatever you reach."""
    write: tuple[Place, ...] = ()
    """Where commands write beside the project's folder, such as `["~/.cache/go-build"]`."""
    deny_read: tuple[Place, ...] = ()
    """What commands don't read, beside keys, browsers' data and other people's homes."""
    auto_allow: bool = False
    """In `acceptEdits`, what runs in the sandbox is not asked for (with bubblewrap only)."""
    own_commands: bool = False
    """What you run with `!` runs in it too."""


class ChatConfig(_Section, frozen=True):
    """What a chat shows beside the answers, and the keys of its prompt."""

    memory_line: bool = True
    """Before each answer a row that says what memory put into the request (`/why` lists it)."""
    title: bool = True
    """The terminal's title names the session, and says when the chat needs you."""
    bell: bool = True
    """The terminal's bell rings when the chat needs you, or an answer took 10 seconds or more."""
    editing_mode: EditingKeys = "emacs"
    """Keys of a chat's prompt: `emacs`, with arrows, Ctrl-A, Ctrl-E …, or `vi`."""


class McpServerConfig(_Section, frozen=True):
    """A server of the Model Context Protocol: a command that is started, or an address."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    """`${NAME}` in a value stands for the variable of your own environment."""
    url: str = ""
    headers: dict[str, str] = {}
    """Sent to the address; `${NAME}` as above."""
    tools: tuple[str, ...] = ()
    """Those that the agent is told of, by names with `*` for anything; empty for all."""

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.url):
            raise ValueError("a server has either a command or a url")
        if self.url and not is_address(self.url):
            raise ValueError("a server's url begins with http:// or https://")


ServerName = Annotated[
    str, msgspec.Meta(pattern=r"^[A-Za-z][A-Za-z0-9]*([_-][A-Za-z0-9]+)*$", max_length=32)
]


class McpConfig(_Section, frozen=True):
    """Tools of others: servers that the agent may use (docs/agents.md). They need `ragmem[mcp]`."""

    servers: dict[ServerName, McpServerConfig] = {}
    """A table for each, `[mcp.servers.NAME]`, with `command`, `args` and `env`, or `url`, and with
    `tools` where only some are wanted."""


class Config(_Section, frozen=True):
    """All settings, validated; `ragmem config show` prints them."""

    model: ModelConfig = ModelConfig()
    llm: LLMConfig = LLMConfig()
    store: StoreConfig = StoreConfig()
    memory: MemoryConfig = MemoryConfig()
    code: CodeConfig = CodeConfig()
    tools: ToolsConfig = ToolsConfig()
    ui: UiConfig = UiConfig()
    permissions: PermissionsConfig = PermissionsConfig()
    sandbox: SandboxConfig = SandboxConfig()
    chat: ChatConfig = ChatConfig()
    mcp: McpConfig = McpConfig()

    def passwords(self) -> dict[str, str]:
        """Return those that stand in the settings, for `ragmem.redact.know`: in addresses, where
        they should not, and what servers are given."""
        from ragmem.redact import passwords_in, secrets_among

        found = passwords_in({"llm.api_base": self.llm.api_base, "store.url": self.store.url})
        for server in self.mcp.servers.values():
            given = {**server.env, "url": server.url}
            found |= secrets_among(given) | server.headers
            found |= {name: value for name, value in server.env.items() if _is_like_a_key(value)}
        return found


def _is_like_a_key(value: str) -> bool:
    """Whether a value could be a key, whatever it is called."""
    return re.fullmatch(r"(?=.*\d)(?=.*[A-Za-z])[\w.+=:-]{16,}", value) is not None


_SHORT_NAMES = {"RAGMEM_MODEL": "RAGMEM_MODEL__MAIN", "RAGMEM_STORE": "RAGMEM_STORE__KIND"}
_NAMED = {
    "RAGMEM_API_BASE": ("llm", "api_base"),
    "NEO4J_URI": ("store", "url"),
    "NEO4J_DATABASE": ("store", "database"),
}
_NOT_SETTINGS = {
    "RAGMEM_HOME",
    "RAGMEM_API_BASE",
    "RAGMEM_API_KEY",
    "RAGMEM_FAILPOINT",
    "RAGMEM_TEST_NEO4J_URI",
    "RAGMEM_TEST_NEO4J_PASSWORD",
}
# Permissions never come from the environment.
_NEVER_FROM_ENV = {
    ("ui", "permission_mode"),
    ("permissions", "allow"),
    ("permissions", "deny"),
    ("permissions", "projects"),
}


def find_paths(environ: Mapping[str, str] = os.environ) -> Paths:
    """Return where all that ragmem keeps lies; creates nothing."""
    home = environ.get("RAGMEM_HOME")
    if home:
        root = Path(home).expanduser().absolute()
        return Paths(root, root / "data", root / "logs")
    from platformdirs import PlatformDirs

    # Where HOME names none, the system may know a home of this user.
    known = "HOME" not in os.environ and os.path.isabs(os.path.expanduser("~"))
    if not environ.get("HOME") and not known:
        return NO_HOME
    dirs = PlatformDirs("ragmem", appauthor=False)
    return Paths(Path(dirs.user_config_dir), Path(dirs.user_data_dir), Path(dirs.user_log_dir))


def load_config(
    file: Path,
    *,
    environ: Mapping[str, str] = os.environ,
    flags: Mapping[tuple[str, ...], Any] | None = None,
) -> Config:
    """Read, merge and validate; ConfigError names the file and line, the variable or the flag.

    `flags` maps key paths, `("model", "main")`, to values; None values are skipped.
    """
    text = read(file)
    tree = as_tree(text, str(file))
    check_tree(tree, text, str(file))
    for path, (value, variable) in from_environment(environ).items():
        _merge(tree, path, parse(path, value, f"{variable}={value!r}"))
    for path, value in (flags or {}).items():
        if value is not None:
            _merge(tree, path, value)
            check_tree(tree, "", f"the flag for {'.'.join(path)}")
    return check_tree(tree, "", str(file))


def sections(
    section: msgspec.Struct, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, msgspec.Struct, dict[str, Any]]]:
    """The sections of some settings: dotted name, the section, and its own keys with their values.

    One within another comes behind it.
    """
    held = {name: getattr(section, name) for name in section.__struct_fields__}
    inner = {name: each for name, each in held.items() if isinstance(each, msgspec.Struct)}
    if path:
        values = {name: each for name, each in held.items() if name not in inner}
        yield ".".join(path), section, values
    for name, each in inner.items():
        yield from sections(each, (*path, name))


def keys() -> dict[str, Any]:
    """Every key, dotted, with its default."""
    return {
        f"{section}.{name}": value
        for section, _, values in sections(Config())
        for name, value in values.items()
    }


UNSENDABLE = "a line break or another character within that can't be sent"


def provider_key(name: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """A secret from the environment, such as OPENAI_API_KEY, without blanks at its ends, such as
    the line break that a file ends with; empty is absent. ConfigError where it can't be sent.
    """
    key = environ.get(name, "").strip()
    if not key.isprintable():
        raise ConfigError(
            f"The key in {name} has {UNSENDABLE}.",
            hint=f"Set {name} anew, to the key alone.",
        )
    return key or None


def environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """A copy of the environment, for those who must hand one to a child."""
    return dict(environ)


def read(file: Path) -> str:
    """The file's text; empty where there is none."""
    try:
        return file.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{file} can't be read: {reason}.") from None


def as_tree(text: str, source: str) -> dict[str, Any]:
    """The text of a file of settings as TOML has it; ConfigError where it is none."""
    if not text:
        return {}
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        hint = "Mend it, or move it away to start afresh."
        if str(error).startswith("Cannot declare"):
            hint = (
                "The header [in brackets] of a section stands once: put the lines below that one."
            )
        raise ConfigError(f"{source} is not valid TOML: {error}.", hint=hint) from None


def nearest(dotted: str) -> str:
    """What to say to a key that there is not: the like-named one, or one with a like last name."""
    if within := [key for key in keys() if key.startswith(f"{dotted}.")]:
        return f"That is a section; a setting in it is {within[0]!r}."
    last_names = {key.rpartition(".")[2]: key for key in reversed(keys())}
    names = [*keys(), *(name for name, _, _ in sections(Config()))]
    close = get_close_matches(dotted, names, n=1)
    for name in get_close_matches(dotted.rpartition(".")[2], last_names, n=1):
        close.append(last_names[name])
    return f"Did you mean {close[0]!r}?" if close else "`ragmem config show` lists them all."


def _line_of(text: str, path: tuple[str, ...]) -> int:
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.split("\n"), 1):
        if header := re.match(r"\s*\[+\s*([^\]]+?)\s*\]", line):
            table = tuple(part.strip(" \"'") for part in header[1].split("."))
            if table[: len(path)] == path:
                return number
        elif (key := re.match(r"\s*([\w\-.\"' ]+?)\s*=", line)) and (
            *table,
            *(part.strip(" \"'") for part in key[1].split(".")),
        ) == path:
            return number
    return 1


_FORMS = {
    "permissions.projects": "a project is named by its folder, a path that begins with / or ~",
    "mcp.servers": "a server is named by letters and numbers, with - or _ between them",
    "sandbox.write": "a folder is named by its path, which begins with / or ~",
    "sandbox.deny_read": "a file or folder is named by its path, which begins with / or ~",
}
"""What is said of a text that has another form, where there is more to say."""


def check_tree(tree: dict[str, Any], text: str, source: str) -> Config:
    """Validate a parsed file against the settings; errors name line and nearest key."""
    try:
        return msgspec.convert(tree, Config)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at ")
        at = re.search(r"`\$\.([\w.]+)", place)
        dotted = at[1] if at else ""
        unknown = "" if "[" in place else reason.removeprefix("Object contains unknown field ")
        if unknown not in ("", reason):
            dotted = f"{dotted}.{unknown.strip('`')}".lstrip(".")
            said, hint = f"there is no setting {dotted!r}.", nearest(dotted)
        else:
            within = re.search(r"\]\.(\w+)", place)
            told = _in_words(reason, dotted, within[1] if within else "it")
            said, hint = f"{dotted}: {told}.", _choices(dotted)
        where = f"{source}, line {_line_of(text, tuple(dotted.split('.')))}" if text else source
        raise ConfigError(f"{where}: {said}", hint=hint) from None


def _in_words(reason: str, dotted: str, what: str = "it") -> str:
    """Why a value, or `what` within it, can't be one of a setting, in a person's words."""
    if reason.startswith("Invalid enum value"):
        return "there is no such choice"
    if " matching regex " not in reason:
        told = in_words(f"{reason} - at `$.{what}`")
        return reason if told == f"{what} does not fit" else told
    if dotted.startswith("ui.colors"):
        return "a colour is written as #rrggbb, such as #5f87af; empty is the theme's own"
    return _FORMS.get(dotted, "that text does not have the form that it needs")


def from_environment(
    environ: Mapping[str, str],
) -> dict[tuple[str, ...], tuple[str, str]]:
    """Key path to (value, variable); the longer, exact name wins over its short form."""
    found: dict[tuple[str, ...], tuple[str, str]] = {}
    for variable, named in _NAMED.items():
        if value := environ.get(variable):
            found[named] = (value, variable)
    known = {tuple(key.split(".")) for key in keys()}
    for variable in sorted(environ, key=len):
        if not variable.startswith("RAGMEM_") or variable in _NOT_SETTINGS:
            continue
        full = _SHORT_NAMES.get(variable, variable)
        path = tuple(full.removeprefix("RAGMEM_").lower().split("__"))
        if path in _NEVER_FROM_ENV or path[0] == "sandbox":
            raise ConfigError(
                f"{variable}: permissions never come from the environment.",
                hint="The file of settings has them; flags such as --allow are for one run.",
            )
        if path[:2] == ("mcp", "servers"):
            raise ConfigError(
                f"{variable}: servers never come from the environment.",
                hint="The file of settings has them: [mcp.servers.NAME].",
            )
        if path not in known:
            raise ConfigError(f"{variable}: no such setting.", hint=nearest(".".join(path)))
        if environ[variable]:
            found[path] = (environ[variable], variable)
    return found


def named_in(dotted: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return what to mend a setting's value in: the variable that gives it, else its key."""
    try:
        return from_environment(environ).get(tuple(dotted.split(".")), ("", dotted))[1]
    except ConfigError:
        return dotted


ADDRESS = "It begins with http:// or https://, such as http://127.0.0.1:8080/v1."
"""What the address of a server of one's own is."""


def is_address(base: str) -> bool:
    """Return whether it is a URL that can be connected to."""
    from urllib.parse import urlsplit

    try:
        url = urlsplit(base)
        # The port is only looked at when it is asked for.
        return url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        return False


def how_to_set(dotted: str, value: str, environ: Mapping[str, str] = os.environ) -> str:
    """What a person does so that a setting gets this value: a variable wins over the file."""
    if (variable := named_in(dotted, environ)) != dotted:
        return f"{variable} is set in the environment: unset it, or set it to {value}."
    return f"`ragmem config set {dotted} {value}` switches it on."


def parse(path: tuple[str, ...], value: str, where: str) -> Any:
    """A setting's value from text; ConfigError, which begins with `where`, if it can't be one."""
    try:
        return msgspec.convert(value, _type_of(path), strict=False)
    except msgspec.ValidationError as error:
        dotted = ".".join(path)
        reason = _in_words(str(error), dotted)
        raise ConfigError(f"{where}: {reason}.", hint=_choices(dotted)) from None


def _type_of(path: tuple[str, ...]) -> Any:
    section: Any = Config()
    for name in path[:-1]:
        section = getattr(section, name)
    return next(f.type for f in msgspec.structs.fields(section) if f.name == path[-1])


def choices(dotted: str) -> tuple[str, ...]:
    """What a setting may be, where that is one of a few words; else nothing."""
    kind = _type_of(tuple(dotted.split("."))) if dotted in keys() else None
    if kind is bool:
        return ("true", "false")
    return get_args(kind) if get_origin(kind) is Literal else ()


def _choices(dotted: str) -> str:
    if dotted.startswith("permissions."):
        return 'A list of rules such as ["run_command(git status*)", "edit_file(src/**)"].'
    names = [name or '"" (empty)' for name in choices(dotted)]
    return f"It is one of {', '.join(names)}." if names else ""


def _merge(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value
