"""The settings with their defaults; what stands below each is its text in the settings' file."""

from typing import Annotated, Literal

import msgspec

Percent = Annotated[float, msgspec.Meta(ge=0, le=100)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]
Similarity = Annotated[float, msgspec.Meta(ge=0, le=1)]


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


class LLMConfig(_Section, frozen=True):
    """How models are reached."""

    client: Literal["auto", "openai", "litellm"] = "auto"
    """`auto`: directly for OpenAI-compatible servers, through litellm for all others."""
    api_base: str = ""
    """URL of an OpenAI-compatible server; empty: the provider's own."""
    timeout_s: Seconds = 120.0
    """Longest silence of a server, in seconds."""
    retries: Annotated[int, msgspec.Meta(ge=0, le=10)] = 3
    """Before the first word arrives."""


class StoreConfig(_Section, frozen=True):
    """Where memory is kept."""

    kind: Literal["sqlite", "neo4j"] = "sqlite"
    """`sqlite`: a file. `neo4j`: a graph database (`ragmem store use`)."""
    url: str = ""
    """Of Neo4j; empty: NEO4J_URI, else the local server of `ragmem neo4j up`."""
    database: str = ""
    """Of Neo4j; empty: NEO4J_DATABASE, else the server's default."""
    timeout_s: Seconds = 5.0
    """Longest wait for a busy or silent store, in seconds."""


class ContextConfig(_Section, frozen=True):
    """Budgets of the request, in percent of `max_chars`."""

    max_chars: Annotated[int, msgspec.Meta(ge=0)] = 0
    """0: 100,000, or half of the model's window (4 characters a token) if that is less."""
    instructions_percent: Percent = 20.0
    """AGENTS.md, or CLAUDE.md where there is none."""
    pinned_percent: Percent = 5.0
    """Pinned rules and memories, in the system message of every call."""
    user_profile_percent: Percent = 1.0
    """What you said of yourself."""
    thread_summary_percent: Percent = 3.0
    """The digest of the conversation so far."""
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
    retry_pause_s: Annotated[float, msgspec.Meta(ge=0)] = 2.0
    """Before a model is asked again where its answer was of no use, and three times as long before
    the last time. With `worker = "inline"` there are no pauses."""
    max_calls_per_session: Annotated[int, msgspec.Meta(ge=0)] = 2_000
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


class FactsConfig(_Section, frozen=True):
    """Facts, preferences, rules, decisions, deadlines, failures."""

    enabled: bool = True
    """False: none are kept or recalled, and the agent has no tools for them."""
    extract: bool = True
    """Learn them in the background from what is said; within the limits of summaries."""
    shown: Positive = 5
    """At most so many are recalled for a prompt."""


class MemoryConfig(_Section, frozen=True):
    """What is remembered and recalled."""

    enabled: bool = True
    """False: nothing is stored or recalled; the agent still answers."""
    scope: Literal["session", "project", "all"] = "project"
    """Where past turns are looked for: this conversation, its project, or everywhere."""
    worker: Literal["detached", "inline", "off"] = "detached"
    """What is left to do after `ask`: by a process of its own, before it ends, or next time."""
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


class ToolsConfig(_Section, frozen=True):
    """The agent's tools."""

    max_iterations: Positive = 25
    """Model calls in one turn."""
    command_timeout_s: Annotated[float, msgspec.Meta(gt=0, le=600)] = 120.0
    """Of a command that names none, in seconds."""


class UiConfig(_Section, frozen=True):
    """The terminal."""

    color: Literal["auto", "always", "never"] = "auto"
    """`auto`: on a terminal, unless NO_COLOR is set."""
    permission_mode: Literal["default", "acceptEdits", "plan"] = "default"
    """`default` asks before edits and commands, `acceptEdits` before commands; `plan` reads."""


class Config(_Section, frozen=True):
    """All settings, validated; `ragmem config show` prints them."""

    model: ModelConfig = ModelConfig()
    llm: LLMConfig = LLMConfig()
    store: StoreConfig = StoreConfig()
    memory: MemoryConfig = MemoryConfig()
    code: CodeConfig = CodeConfig()
    tools: ToolsConfig = ToolsConfig()
    ui: UiConfig = UiConfig()

    def passwords(self) -> dict[str, str]:
        """Those that stand in addresses, where they should not: for `ragmem.redact.know`."""
        from ragmem.redact import passwords_in

        return passwords_in({"llm.api_base": self.llm.api_base, "store.url": self.store.url})
