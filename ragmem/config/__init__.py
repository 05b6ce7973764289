"""Settings: one TOML file per user, overridden by environment variables, then by flags.

Each setting is a field with its default, followed by its description, which the settings file also
contains. This is the only module that reads `os.environ`. A project's folder can't change settings:
no file inside it is read. Unknown keys are errors that name file, line and the closest key.
Provider keys are never settings; see `provider_key`.
"""

import os
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec

from ragmem.errors import ConfigError
from ragmem.files import NO_HOME, Paths as Paths, expanded
from ragmem.text import clean, in_words
from ragmem.themes import ThemeName

Percent = Annotated[float, msgspec.Meta(ge=0, le=100)]
_MOST = 1_000_000_000
"""Upper bound for counts: practically no limit, and within the range of databases and formats."""
Count = Annotated[int, msgspec.Meta(ge=0, le=_MOST)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=_MOST)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]
Similarity = Annotated[float, msgspec.Meta(ge=0, le=1)]
Effort = Literal["none", "low", "medium", "high"]
"""How long a model may think before it answers; each adapter translates it."""
ScopeName = Literal["session", "project", "all"]
WhenColored = Literal["auto", "always", "never"]
EditingKeys = Literal["emacs", "vi"]


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class ModelConfig(_Section, frozen=True):
    """Which models."""

    main: str = ""
    """`provider/model`; empty: the first available model (`ragmem models`)."""
    summary: str = ""
    """Model for background work; empty: a small model of the same provider as `main`."""
    embedding: str = ""
    """Embedding model for recall by meaning; empty: the local one included in ragmem."""
    effort: Literal["", Effort] = ""
    """How much the main model may think: `none`, `low` … `high`; empty: the provider's default."""


class LLMConfig(_Section, frozen=True):
    """How models are reached."""

    client: Literal["auto", "openai", "litellm"] = "auto"
    """`auto`: Anthropic, Gemini and OpenAI-compatible servers directly, others by litellm.
    `openai`: the same, but never OpenAI's Responses. `litellm`: all by litellm."""
    api_base: str = ""
    """URL of an OpenAI-compatible server; empty: the provider's own."""
    timeout_s: Seconds = 120.0
    """Seconds without data from the server before a request times out."""
    retries: Annotated[int, msgspec.Meta(ge=0, le=10)] = 3
    """Number of retries for a failed or interrupted model call."""


class StoreConfig(_Section, frozen=True):
    """Where memory is kept."""

    kind: Literal["sqlite", "neo4j"] = "sqlite"
    """`sqlite`: a file. `neo4j`: a graph database (`ragmem store use`)."""
    url: str = ""
    """Neo4j URI; empty: NEO4J_URI, else the local server of `ragmem neo4j up`."""
    database: str = ""
    """Neo4j database; empty: NEO4J_DATABASE, else the server's default."""
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 5.0
    """Seconds to wait for a busy or unresponsive store."""


class ContextConfig(_Section, frozen=True):
    """Budgets of the request, in percent of `max_chars`."""

    max_chars: Count = 0
    """0: 100,000, or half of the model's context window (4 characters a token) if that is less."""
    instructions_percent: Percent = 20.0
    """Your own AGENTS.md and the project's (or CLAUDE.md, if there is none)."""
    pinned_percent: Percent = 5.0
    """Pinned memories and rules, which are in the system message of every call."""
    user_profile_percent: Percent = 1.0
    """Your profile."""
    preferences_percent: Percent = 2.0
    """Your preferences, which are in every request."""
    thread_summary_percent: Percent = 3.0
    """Summary of the conversation so far."""
    last_time_percent: Percent = 6.0
    """Outcomes of your last sessions: in the first turns of a new one, or when you ask."""
    facts_percent: Percent = 5.0
    """Facts, decisions, deadlines and the like that are relevant to the prompt."""
    last_user_queries_percent: Percent = 5.0
    """Your last questions."""
    relevant_percent: Percent = 15.0
    """Turns and summaries that are relevant to the prompt, together."""
    summaries_percent: Percent = 10.0
    """Summaries of turns that no higher-level summary covers yet."""
    recently_accessed_files_percent: Percent = 5.0
    """Files read or changed recently."""
    code_percent: Percent = 10.0
    """Functions, classes and sections of the project that are relevant to the prompt."""


class RecentConfig(_Section, frozen=True):
    """The recent window."""

    window_percent: Percent = 40.0
    """Maximum size of the latest turns with their tool calls."""
    window_floor_percent: Percent = 25.0
    """Beyond it, the oldest are dropped down to this size: rarely, so that caches hold."""
    turns: Positive = 3
    """For a model without tool calls: maximum number of turns."""
    turns_percent: Percent = 5.0
    """For a model without tool calls: maximum size."""


class SummariesConfig(_Section, frozen=True):
    """Digests of what was said, made in the background."""

    enabled: bool = True
    """False: no summaries are made."""
    every_n_messages: Positive = 10
    """The summary of a session is renewed after this many messages; a turn has two."""
    rollup_chars: Positive = 5_000
    """When summaries cover more characters of turns than this, they are summarized one level up."""
    max_tokens: Positive = 300
    """Maximum length of a session's summary (4 characters a token)."""
    retry_pause_s: Annotated[float, msgspec.Meta(ge=0, le=3_600)] = 2.0
    """Seconds before a model is asked again after a useless answer; three times as long before
    the last attempt. With `worker = "inline"` there is no wait."""
    max_calls_per_session: Count = 2_000
    """Calls of a paid model per session; beyond that, summaries are excerpts of the turns."""
    max_cost_usd_per_session: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    """The same limit in dollars, as estimated."""
    max_cost_usd_per_day: Annotated[float, msgspec.Meta(ge=0)] = 5.0
    """The same limit for all sessions of a day; imported ones add up."""


class EmbeddingsConfig(_Section, frozen=True):
    """Recall by meaning, beside recall by words."""

    enabled: bool = True
    """False: no embeddings; search by words and everything else still works."""
    dimension: Annotated[int, msgspec.Meta(ge=0, le=16_384)] = 0
    """Dimensions of an embedding, if the model lets you choose; 0: the model's default."""
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=600)] = 1.0
    """Seconds a turn waits for the embedding of its prompt before it recalls by words only."""
    history_similarity: Similarity = 0.0
    """Minimum cosine similarity to recall a turn or summary; 0: fitted to the model."""
    fact_similarity: Similarity = 0.0
    """Minimum cosine similarity for a fact to be relevant; 0: fitted to the model."""
    duplicate_similarity: Similarity = 0.0
    """Minimum cosine similarity for two facts to be the same; 0: fitted to the model."""
    idle_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 300.0
    """Seconds the background process stays loaded to serve searches of others; 0: not at all."""


class FactsConfig(_Section, frozen=True):
    """Facts, preferences, rules, decisions, deadlines, failures."""

    enabled: bool = True
    """False: no facts are stored or recalled, and the agent has no tools for them."""
    extract: bool = True
    """Also let the small model learn facts in the background, within the limits of summaries."""
    shown: Positive = 5
    """Maximum number of facts recalled for a prompt."""


class MemoryConfig(_Section, frozen=True):
    """What is remembered and recalled."""

    enabled: bool = True
    """False: nothing is stored or recalled; the agent still answers."""
    scope: ScopeName = "project"
    """Where to recall turns from: this conversation (`session`), its `project`, or `all`."""
    worker: Literal["detached", "inline", "off"] = "detached"
    """Background work after `ask`: `detached` (own process), `inline` (before exit) or `off`."""
    thoughts: bool = True
    """False: the model's reasoning is not stored with its answers."""
    context: ContextConfig = ContextConfig()
    recent: RecentConfig = RecentConfig()
    embeddings: EmbeddingsConfig = EmbeddingsConfig()
    summaries: SummariesConfig = SummariesConfig()
    facts: FactsConfig = FactsConfig()


class CodeConfig(_Section, frozen=True):
    """The code index: the project's files by function, class and section."""

    enabled: bool = True
    """False: the project's code is not indexed or recalled."""
    max_files: Positive = 50_000
    """Maximum number of files; beyond it, files in the deepest folders are left out."""
    max_file_kb: Positive = 1_000
    """Files larger than this are left out."""
    vectors: bool = True
    """Also compute embeddings of code in the background, for search by meaning."""
    wait_s: Annotated[float, msgspec.Meta(ge=0, le=60)] = 0.3
    """Seconds a turn waits for changed files to be indexed, and again for the search."""

    @property
    def max_file_bytes(self) -> int:
        """The size of the largest file that is indexed."""
        return self.max_file_kb * 1_000


class ToolsConfig(_Section, frozen=True):
    """The agent's tools."""

    max_iterations: Positive = 25
    """Maximum number of model calls in a turn."""
    command_timeout_s: Annotated[float, msgspec.Meta(gt=0, le=600)] = 120.0
    """Seconds, for commands that don't set a timeout."""


Color = Annotated[str, msgspec.Meta(pattern=r"^(#[0-9a-fA-F]{6})?$")]
"""`#rrggbb`; empty: the theme's colour."""


class ColorsConfig(_Section, frozen=True):
    """Colours of your own, `#rrggbb`, in place of the theme's; empty: as the theme has it."""

    accent: Color = ""
    """Highlights: the prompt sign, command names, the selected line."""
    good: Color = ""
    """Success, and added lines."""
    bad: Color = ""
    """Failure, and removed lines."""
    warning: Color = ""
    """What needs attention, such as questions and notes."""
    mode: Color = ""
    """Plan mode, in the footer."""
    quiet: Color = ""
    """Secondary text."""


PermissionMode = Literal["default", "acceptEdits", "plan", "bypassPermissions"]
"""What needs the user's approval; the last one is not a setting, since it never asks."""


class UiConfig(_Section, frozen=True):
    """The terminal."""

    color: WhenColored = "auto"
    """`auto`: on a terminal, unless NO_COLOR is set."""
    theme: ThemeName = "auto"
    """`auto`: by the terminal's background; `plain`: bold and dim only."""
    colors: ColorsConfig = ColorsConfig()
    permission_mode: Literal["default", "acceptEdits", "plan"] = "default"
    """`default`: ask before edits and commands. `acceptEdits`: before commands. `plan`: read."""


Rule = Annotated[str, msgspec.Meta(pattern=r"^\s*[A-Za-z_][\w-]*(\([\s\S]+\))?\s*$")]


Place = Annotated[str, msgspec.Meta(pattern=r"^[~/]")]


class ProjectRules(_Section, frozen=True):
    """The rules of `permissions` for one project."""

    allow: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()


class PermissionsConfig(_Section, frozen=True):
    """What may be done without asking, and what never: `tool`, or `tool(pattern)`.

    `"run_command(git status*)"` is held against each command that a line runs, and
    `"edit_file(src/**)"` against the file's path. /permissions in a chat changes them.
    """

    allow: tuple[Rule, ...] = ()
    """Never asked for, except in plan mode and for files that can run by themselves."""
    deny: tuple[Rule, ...] = ()
    """Always denied, in any mode, whatever else allows it."""
    projects: dict[Place, ProjectRules] = {}
    """The same for a single project, by its folder: `[permissions.projects."/home/me/garden"]`."""

    def of_project(self, folder: str) -> ProjectRules:
        """Return the rules that apply only to the project with this folder."""
        own = self.named(folder).values()
        return ProjectRules(
            tuple(rule for each in own for rule in each.allow),
            tuple(rule for each in own for rule in each.deny),
        )

    def named(self, folder: str) -> dict[str, ProjectRules]:
        """Return the rules for this folder by how it is written: with `~`, over a link."""
        real = os.path.realpath(folder)
        names = {name: os.path.realpath(os.path.expanduser(name)) for name in self.projects}
        return {name: self.projects[name] for name in names if names[name] == real}


class SandboxConfig(_Section, frozen=True):
    """The sandbox of the agent's commands."""

    mode: Literal["on", "off", "required"] = "on"
    """`on`: if the system has one. `required`: commands run only in the sandbox."""
    network: Literal["none", "loopback", "all"] = "loopback"
    """Network of commands: `none`; `loopback`: what the same command started; `all`: any."""
    write: tuple[Place, ...] = ()
    """Extra folders commands may write to, such as `["~/.cache/go-build"]`."""
    deny_read: tuple[Place, ...] = ()
    """What commands can't read, in addition to keys, browser data and other people's homes."""
    auto_allow: bool = False
    """In `acceptEdits`, don't ask for commands that run in the sandbox (bubblewrap only)."""
    own_commands: bool = False
    """Also run your own `!` commands in it."""


class ChatConfig(_Section, frozen=True):
    """What a chat shows beside the answers, and the keys of its prompt."""

    memory_line: bool = True
    """Show, above each answer, what memory added to the request (`/why` lists it)."""
    title: bool = True
    """Show the session in the terminal's title, and when the chat needs you."""
    bell: bool = True
    """Ring the terminal's bell when the chat needs you, or an answer took 10 seconds or more."""
    editing_mode: EditingKeys = "emacs"
    """Key bindings of the prompt: `emacs` (arrows, Ctrl-A, Ctrl-E …) or `vi`."""


class McpServerConfig(_Section, frozen=True):
    """A server of the Model Context Protocol: a command that is started, or an address."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    """`${NAME}` in a value is replaced by that environment variable."""
    url: str = ""
    headers: dict[str, str] = {}
    """Sent to the URL; `${NAME}` as above."""
    tools: tuple[str, ...] = ()
    """Tools the agent may use, by name, with `*` as a wildcard; empty: all."""
    in_project: bool = False
    """Start the command in the project's folder, whose files it may take for parts of itself."""

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.url):
            raise ValueError("a server needs either a command or a url")
        if self.url and not is_address(self.url):
            raise ValueError("a server's url must begin with http:// or https://")


ServerName = Annotated[
    str, msgspec.Meta(pattern=r"^[A-Za-z][A-Za-z0-9]*([_-][A-Za-z0-9]+)*$", max_length=32)
]


class McpConfig(_Section, frozen=True):
    """Tools of others: servers that the agent may use. They need `ragmem[mcp]`."""

    servers: dict[ServerName, McpServerConfig] = {}
    """A table for each, `[mcp.servers.NAME]`, with `command`, `args` and `env`, or `url` and
    `headers`, and with `tools` where only some are wanted."""


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
        """Return the secrets in the settings, for `ragmem.redact.know`: credentials in URLs,
        although they do not belong there, and what MCP servers are given."""
        from ragmem.redact import passwords_in, secrets_given

        found = passwords_in({"llm.api_base": self.llm.api_base, "store.url": self.store.url})
        for called, server in self.mcp.servers.items():
            own = passwords_in({"url": server.url})
            own |= secrets_given({**server.env, **server.headers})
            found |= {name if name not in found else f"{called} {name}": own[name] for name in own}
        return found


_SHORT_NAMES = {"RAGMEM_MODEL": "RAGMEM_MODEL__MAIN", "RAGMEM_STORE": "RAGMEM_STORE__KIND"}
_OTHER_VARIABLES = {
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


def find_paths(environ: Mapping[str, str] = os.environ) -> Paths:
    """Return the paths of everything that ragmem stores; creates nothing.

    Raises ConfigError if they are not UTF-8, or RAGMEM_HOME begins with an unknown `~`.
    """
    paths = _found_paths(environ)
    if clean(str(paths.data_dir)) != str(paths.data_dir):
        raise ConfigError(
            f"{str(paths.data_dir)!r} can't hold a database: the path is not UTF-8.",
            hint="Set RAGMEM_HOME to another folder.",
        )
    return paths


def _found_paths(environ: Mapping[str, str]) -> Paths:
    home = environ.get("RAGMEM_HOME")
    if home:
        root = expanded(home).absolute()
        return Paths(root, root / "data", root / "logs")
    from platformdirs import PlatformDirs

    # If HOME is not set, the system may still know this user's home.
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
    """Read, merge and validate; errors name the file and line, the variable or the flag.

    `flags` maps key paths, `("model", "main")`, to values; None is skipped. Raises ConfigError.
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
    """Yield the sections of settings: dotted name, the section, and its own keys with their values.

    Nested sections follow the one that contains them.
    """
    fields = {name: getattr(section, name) for name in section.__struct_fields__}
    inner = {name: each for name, each in fields.items() if isinstance(each, msgspec.Struct)}
    if path:
        values = {name: each for name, each in fields.items() if name not in inner}
        yield ".".join(path), section, values
    for name, each in inner.items():
        yield from sections(each, (*path, name))


def keys() -> dict[str, Any]:
    """Return every key, dotted, with its default."""
    return {
        f"{section}.{name}": value
        for section, _, values in sections(Config())
        for name, value in values.items()
    }


UNSENDABLE = "a line break or another character that can't be sent"


def provider_key(name: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """Return a secret such as OPENAI_API_KEY from the environment, or None if it is empty or unset.

    Surrounding whitespace, such as a file's final line break, is removed. Raises ConfigError if the
    rest can't be sent.
    """
    key = environ.get(name, "").strip()
    if not key.isprintable():
        raise ConfigError(
            f"The key in {name} has {UNSENDABLE}.", hint=f"Set {name} again, to the key alone."
        )
    return key or None


def environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return a copy of the environment, for callers that pass one to a child process."""
    return dict(environ)


def read(file: Path) -> str:
    """Return the file's text; empty if it does not exist."""
    try:
        return file.read_bytes().decode("utf-8-sig")  # Line ends stay as they are.
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"Can't read {file}: {reason}.") from None


def as_tree(text: str, source: str) -> dict[str, Any]:
    """Parse the text of a settings file; raises ConfigError if it is not valid TOML."""
    if not text:
        return {}
    import tomllib

    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        hint = "Fix it, or move it away to start with the defaults."
        if str(error).startswith("Cannot declare"):
            hint = "A section's [header] may appear only once: put its lines below the first one."
        raise ConfigError(f"{source} is not valid TOML: {error}.", hint=hint) from None


def nearest(dotted: str) -> str:
    """Return a hint for an unknown key: the closest key, or one whose last part is close."""
    if within := [key for key in keys() if key.startswith(f"{dotted}.")]:
        return f"That is a section; one of its settings is {within[0]!r}."
    last_names = {key.rpartition(".")[2]: key for key in reversed(keys())}
    names = [*keys(), *(name for name, _, _ in sections(Config()))]
    close = get_close_matches(dotted, names, n=1)
    for name in get_close_matches(dotted.rpartition(".")[2], last_names, n=1, cutoff=0.75):
        close.append(last_names[name])
    return f"Did you mean {close[0]!r}?" if close else "`ragmem config show` lists all settings."


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
    "permissions.projects": "a project is identified by its folder, a path that begins with / or ~",
    "mcp.servers": "a server name has letters and numbers, with - or _ between them",
    "sandbox.write": "a folder must be a path that begins with / or ~",
    "sandbox.deny_read": "a file or folder must be a path that begins with / or ~",
}
"""Explanations of texts with an invalid form, by setting."""


def check_tree(tree: dict[str, Any], text: str, source: str) -> Config:
    """Validate a parsed file against the settings; errors name the line and the closest key."""
    try:
        return msgspec.convert(tree, Config)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at ")
        at = re.search(r"`\$\.([\w.]+)", place)
        dotted = at[1] if at else ""
        unknown = "" if "[" in place else reason.removeprefix("Object contains unknown field ")
        if unknown not in ("", reason):
            dotted = f"{dotted}.{unknown.strip('`')}".lstrip(".")
            problem, hint = f"unknown setting {dotted!r}.", nearest(dotted)
        else:
            within = re.search(r"\]\.(\w+)", place)
            explanation = _explained(reason, dotted, within[1] if within else "it")
            problem, hint = f"{dotted}: {explanation}.", _choices_hint(dotted)
        where = f"{source}, line {_line_of(text, tuple(dotted.split('.')))}" if text else source
        raise ConfigError(f"{where}: {problem}", hint=hint) from None


def _explained(reason: str, dotted: str, what: str = "it") -> str:
    """Explain to the user why a setting, or `what` within it, can't have a value."""
    if reason.startswith("Invalid enum value"):
        return "not a valid choice"
    if " matching regex " not in reason:
        explanation = in_words(f"{reason} - at `$.{what}`")
        return reason if explanation == f"{what} does not fit" else explanation
    if dotted.startswith("ui.colors"):
        return "a colour is written as #rrggbb, such as #5f87af; empty means the theme's own"
    return _FORMS.get(dotted, "the text is not in the right format")


def from_environment(environ: Mapping[str, str]) -> dict[tuple[str, ...], tuple[str, str]]:
    """Map key paths to (value, variable); a full name takes precedence over its short form."""
    found: dict[tuple[str, ...], tuple[str, str]] = {}
    for variable, named in _OTHER_VARIABLES.items():
        if value := environ.get(variable):
            found[named] = (value, variable)
    known = {tuple(key.split(".")) for key in keys()}
    for variable in sorted(environ, key=len):
        if not variable.startswith("RAGMEM_") or variable in _NOT_SETTINGS:
            continue
        full = _SHORT_NAMES.get(variable, variable)
        path = tuple(full.removeprefix("RAGMEM_").lower().split("__"))
        if path[0] in ("permissions", "sandbox") or path == ("ui", "permission_mode"):
            raise ConfigError(
                f"{variable}: permissions can't be set in the environment.",
                hint="Use the settings file, or flags such as --allow for a single run.",
            )
        if path[:2] == ("mcp", "servers"):
            raise ConfigError(
                f"{variable}: servers can't be set in the environment.",
                hint="Use the settings file: [mcp.servers.NAME].",
            )
        if path not in known:
            raise ConfigError(f"{variable}: unknown setting.", hint=nearest(".".join(path)))
        if environ[variable]:
            found[path] = (environ[variable], variable)
    return found


def named_in(dotted: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return where to correct a setting's value: the variable that sets it, else its key."""
    try:
        return from_environment(environ).get(tuple(dotted.split(".")), ("", dotted))[1]
    except ConfigError:
        return dotted


ADDRESS = "It must begin with http:// or https://, such as http://127.0.0.1:8080/v1."
"""Describes the address of a server of one's own."""


def is_address(base: str) -> bool:
    """Return whether a text is a URL that can be connected to."""
    from urllib.parse import urlsplit

    try:
        url = urlsplit(base)
        # The port is only parsed when it is accessed.
        return url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        return False


def how_to_set(dotted: str, value: str) -> str:
    """Tell the user how to give a setting this value; a variable overrides the file."""
    if (variable := named_in(dotted)) != dotted:
        return f"{variable} is set in the environment: unset it, or set it to {value}."
    return f"`ragmem config set {dotted} {value}` turns it on."


def parse(path: tuple[str, ...], value: str, where: str) -> Any:
    """Convert a text to a setting's value; raises ConfigError, which begins with `where`."""
    try:
        return msgspec.convert(value, _type_of(path), strict=False)
    except msgspec.ValidationError as error:
        dotted = ".".join(path)
        reason = _explained(str(error), dotted)
        raise ConfigError(f"{where}: {reason}.", hint=_choices_hint(dotted)) from None


def _type_of(path: tuple[str, ...]) -> Any:
    section: Any = Config()
    for name in path[:-1]:
        section = getattr(section, name)
    return next(f.type for f in msgspec.structs.fields(section) if f.name == path[-1])


def choices(dotted: str) -> tuple[str, ...]:
    """Return the possible values of a setting if it has a fixed set of them; else nothing."""
    kind = _type_of(tuple(dotted.split("."))) if dotted in keys() else None
    if kind is bool:
        return ("true", "false")
    return get_args(kind) if get_origin(kind) is Literal else ()


def _choices_hint(dotted: str) -> str:
    if dotted.startswith("permissions."):
        return 'Use a list of rules, such as ["run_command(git status*)", "edit_file(src/**)"].'
    names = [name or '"" (empty)' for name in choices(dotted)]
    return f"Use one of {', '.join(names)}." if names else ""


def _merge(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value
