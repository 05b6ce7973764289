"""Which model answers, and how it is reached."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from ragmem.config import Config, LLMConfig, ModelConfig, find_paths, load_config, provider_key
from ragmem.errors import ConfigError, NoModel, NoWeights, UsageError
from ragmem.llm import models
from ragmem.llm.base import ModelInfo, UsageChunk
from ragmem.llm.models import (
    LOCAL_NAME,
    about,
    choose_effort,
    choose_model,
    choose_summary_model,
    list_models,
    model_info,
    open_llm,
)
from ragmem.llm.providers import BY_NAME, PROVIDERS, known_models, small_sibling
from ragmem.usage import UsageLog
from tests.attack.torrent import Torrent
from tests.fakes.llm_server import Answer, LLMServer
from tests.llm.adapters import complete


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """An environment with a home, and an Ollama that is not there."""
    (tmp_path / "data").mkdir()
    # One that is there answers, however busy the machine is.
    monkeypatch.setattr(models, "PROBE_S", 20.0)
    # Bound and not listened at: nobody else gets the port meanwhile.
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        yield {"RAGMEM_HOME": str(tmp_path), "OLLAMA_HOST": f"127.0.0.1:{port}"}


@pytest.fixture
def no_local_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "find_local_model", lambda _: None)
    monkeypatch.setattr(models, "_local_model_runs", lambda: False)


@pytest.fixture
def local_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(models, "find_local_model", lambda _: tmp_path / "model.gguf")


def named(model: str, **llm: object) -> Config:
    return Config(model=ModelConfig(main=model), llm=msgspec.convert(llm, LLMConfig))


OWN_SERVER = "http://127.0.0.1:9/v1"


# --- the order ---------------------------------------------------------------------


def test_flag_before_environment_before_file(environ: dict[str, str], tmp_path: Path) -> None:
    """-m, then RAGMEM_MODEL, then the file; each says where it came from."""
    file = tmp_path / "ragmem.toml"
    file.write_text('[model]\nmain = "ollama/from-file"\n')
    config = load_config(file, environ=environ)
    assert choose_model(config, environ).name == "ollama/from-file"
    assert choose_model(config, environ).why == "model.main"
    environ["RAGMEM_MODEL"] = "ollama/from-env"
    config = load_config(file, environ=environ)
    assert choose_model(config, environ).name == "ollama/from-env"
    assert choose_model(config, environ).why == "RAGMEM_MODEL"
    chosen = choose_model(config, environ, flag="ollama/from-flag")
    assert (chosen.name, chosen.why) == ("ollama/from-flag", "-m")


@pytest.mark.usefixtures("local_model")
def test_key_before_ollama_before_the_small_model(environ: dict[str, str]) -> None:
    for choose in (choose_model, choose_summary_model):
        assert choose(Config(), environ).name == LOCAL_NAME
    with LLMServer(ollama=True, models=["nomic-embed-text", "qwen3:8b"]) as server:
        environ["OLLAMA_HOST"] = f"http://127.0.0.1:{server.port}"
        chosen = choose_model(Config(), environ)
        assert (chosen.name, chosen.why) == ("ollama/qwen3:8b", "Ollama is running")
        environ["MISTRAL_API_KEY"] = "k"
        chosen = choose_model(Config(), environ)
    assert (chosen.provider, chosen.why) == ("mistral", "MISTRAL_API_KEY is set")
    assert chosen.paid


def test_who_bills_is_said_once_and_what_a_model_cannot_do_each_time(
    environ: dict[str, str], tmp_path: Path
) -> None:
    environ["MISTRAL_API_KEY"] = "k"
    paid, own = choose_model(Config(), environ), choose_model(named("ollama/x"), environ)
    said = [f"Using {paid.name} (MISTRAL_API_KEY is set): its provider bills you."]
    assert [about(paid, UsageLog(tmp_path)) for _ in range(2)] == [said, []]
    assert about(own, UsageLog(tmp_path)) == []
    environ["NOSUCH_API_KEY"] = "k"
    [unknown] = about(choose_model(named("nosuch/x"), environ), UsageLog(tmp_path))
    assert unknown.endswith(": its provider may bill you.")
    plain = msgspec.structs.replace(own, info=ModelInfo(name="x", supports_tools=False))
    for _ in range(2):
        [cant] = about(plain, UsageLog(tmp_path))
        assert "can't use tools" in cant


@pytest.mark.usefixtures("local_model")
def test_who_has_the_small_model_for_want_of_a_key_is_told_how_to_have_another(
    environ: dict[str, str], tmp_path: Path
) -> None:
    """Not who has asked for it."""
    [said] = about(choose_model(Config(), environ), UsageLog(tmp_path))
    for way in (LOCAL_NAME, "can't use tools", "export ANTHROPIC_API_KEY=", "Ollama"):
        assert way in said
    [said] = about(choose_model(Config(), environ, flag=LOCAL_NAME), UsageLog(tmp_path))
    assert "can't use tools" in said
    assert "export" not in said


@pytest.mark.usefixtures("no_local_model")
def test_nothing_to_answer_with(environ: dict[str, str]) -> None:
    for choose in (choose_model, choose_summary_model):
        with pytest.raises(NoModel, match="no model") as caught:
            choose(Config(), environ)
    assert caught.value.exit_code == 2
    for way in ("ANTHROPIC_API_KEY", "Ollama", "RAGMEM_API_BASE", "ragmem doctor"):
        assert way in caught.value.hint
    for name in (LOCAL_NAME, "local/other"):
        with pytest.raises(NoModel) as caught:
            choose_model(Config(), environ, flag=name)
        assert caught.value.hint


@pytest.mark.usefixtures("no_local_model")
def test_the_small_model_lacks_its_weights_alone(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked for by name, and where it would be the last resort."""
    monkeypatch.setattr(models, "_local_model_runs", lambda: True)
    for flag in (LOCAL_NAME, ""):
        with pytest.raises(NoWeights, match="weights") as caught:
            choose_model(Config(), environ, flag=flag)
        assert "`ragmem models fetch` downloads" in caught.value.hint
    assert choose_model(Config(), {**environ, "OPENAI_API_KEY": "k"}).provider == "openai"


@pytest.mark.usefixtures("no_local_model")
@pytest.mark.parametrize("variable", [v for p in PROVIDERS for v in p.key_variables])
def test_each_key_opens_its_provider(environ: dict[str, str], variable: str) -> None:
    with pytest.raises(NoModel):
        choose_model(Config(), {**environ, variable: ""})
    chosen = choose_model(Config(), {**environ, variable: "k"})
    assert chosen.key_variable == variable
    # Its models think: that is what its Responses are for.
    newer = {"openai": "responses"}
    protocol = BY_NAME[chosen.provider].protocol
    assert chosen.client == newer.get(chosen.provider, protocol)
    elsewhere = choose_model(Config(llm=LLMConfig(client="openai")), {**environ, variable: "k"})
    assert elsewhere.client == protocol
    summary = choose_summary_model(Config(), {**environ, variable: "k"})
    assert summary.provider == chosen.provider


def test_default_models_exist() -> None:
    """Each default stands in litellm's table, calls tools and has a price."""
    for provider in PROVIDERS:
        for model in filter(None, (provider.main, provider.small)):
            name = f"{provider.name}/{model}"
            if provider.name == "openrouter":
                # Its router picks the model, so it has no price of its own.
                continue
            info = model_info(name)
            assert name in known_models()
            assert info.supports_tools
            assert info.input_usd_per_token is not None
            assert (info.context_window or 0) >= 100_000


# --- a server of one's own ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "client", "sent"),
    [
        (named("openai/scripted", api_base=OWN_SERVER), "openai", "scripted"),
        (named("openai/openai/gpt-oss-20b", api_base=OWN_SERVER), "openai", "openai/gpt-oss-20b"),
        (named("openai/gpt-5.4", api_base=OWN_SERVER), "openai", "gpt-5.4"),
        (named("qwen3-coder", api_base=OWN_SERVER), "openai", "qwen3-coder"),
        (named("Qwen/Qwen3-8B", api_base=OWN_SERVER), "openai", "Qwen/Qwen3-8B"),
        (named("openai/x", api_base=OWN_SERVER, client="litellm"), "litellm", "openai/x"),
    ],
)
def test_api_base_takes_any_model(
    environ: dict[str, str], config: Config, client: str, sent: str
) -> None:
    """And its key is looked for in its own variable, whoever else has one."""
    chosen = choose_model(config, {**environ, "OPENAI_API_KEY": "k"})
    assert (chosen.client, chosen.model) == (client, sent)
    assert (chosen.base_url, chosen.key_variable) == (OWN_SERVER, "RAGMEM_API_KEY")
    assert chosen.info == ModelInfo(name=config.model.main)
    assert not chosen.paid


@pytest.mark.parametrize(
    ("name", "client", "variable", "found"),
    [
        ("gpt-5.4", "responses", "OPENAI_API_KEY", "openai/gpt-5.4"),
        ("bedrock/anthropic.claude-x", "litellm", "", ""),
        ("cohere_chat/command-x", "litellm", "", ""),
    ],
)
def test_a_name_finds_its_provider_and_others_go_through_litellm(
    environ: dict[str, str], name: str, client: str, variable: str, found: str
) -> None:
    environ["OPENAI_API_KEY"] = "k"
    chosen = choose_model(Config(), environ, flag=name)
    assert (chosen.client, chosen.key_variable) == (client, variable)
    assert chosen.name == (found or name)
    through = choose_model(Config(llm=LLMConfig(client="litellm")), environ, flag=name)
    assert through.client == "litellm"


@pytest.mark.parametrize(
    ("config", "kind", "said", "hint"),
    [
        (named("openai/gpt-5.4"), NoModel, "OPENAI_API_KEY is not set", "export OPENAI_API_KEY"),
        (
            named("claude-sonet-5-5"), ConfigError, "names no provider",
            "anthropic/claude-sonnet-5-5",
        ),
        (
            named("", api_base="http://me:s3cret@127.0.0.1:9/v1"), NoModel,
            "No model is named, and http://127.0.0.1:9/v1 lists none",
            "Start it, or check llm.api_base (it often ends in /v1). Set model.main, ",
        ),
        (named("openai/"), ConfigError, "names no model", "openai/NAME"),
        (
            named("openai/", api_base="http://me:s3cret@127.0.0.1:9/v1"), ConfigError,
            "names no model", "openai/NAME",
        ),
        (named("openai/gp\udcff"), ConfigError, "can't be sent", "ragmem models"),
        (
            named("openai/x", api_base="http://me:a#s3cret@127.0.0.1:9/v1"), ConfigError,
            "'127.0.0.1:9/v1', which is not an address", "http://",
        ),
    ],
    ids=[
        "no key", "a name that nobody knows", "a server that tells of none",
        "a provider alone", "a provider alone, at a server",
        "a byte that isn't UTF-8", "a password that is not quoted",
    ],
)  # fmt: skip
def test_what_is_missing_to_ask_a_model_is_named(
    environ: dict[str, str], config: Config, kind: type[Exception], said: str, hint: str
) -> None:
    with pytest.raises(kind, match=said) as caught:
        choose_model(config, environ)
    assert hint in caught.value.hint
    assert "s3cret" not in str(caught.value)


async def test_only_its_own_key_goes_to_a_server_of_ones_own(environ: dict[str, str]) -> None:
    """CVE-2026-21852: OPENAI_API_KEY stays at home; RAGMEM_API_KEY is for this server."""
    environ["OPENAI_API_KEY"] = "sk-openai"
    with LLMServer([Answer("a"), Answer("b")]) as server:
        config = named("openai/scripted", api_base=server.url)
        for key in ("", "own-key"):
            environ["RAGMEM_API_KEY"] = key
            choice = choose_model(config, environ)
            llm = open_llm(choice, config, find_paths(environ), environ)
            await complete(llm)
            await llm.aclose()
    assert "authorization" not in server.requests[0].headers
    assert server.requests[1].headers["authorization"] == "Bearer own-key"


@pytest.mark.parametrize("client", ["auto", "litellm"])
@pytest.mark.parametrize(
    "base",
    [
        "127.0.0.1:9/v1", "file:///etc/passwd", "http://", "ftp://x/v1", "me:s3cret@127.0.0.1:9/v1",
        "http://me:s3cret@[::1/v1", "http://me:s3cret@127.0.0.1:99999/v1",
        "http://127.0.0.1:port/v1",
    ],
)  # fmt: skip
def test_an_api_base_that_is_no_address(
    environ: dict[str, str], base: str, client: Literal["auto", "litellm"]
) -> None:
    """A bad setting gets a clear error, whoever would use it; no password is shown."""
    with pytest.raises(ConfigError, match="not an address") as caught:
        choose_model(named("openai/x", api_base=base, client=client), environ)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "host", ["ftp://x", "http://[::1", "http://h:99999", "tcp://h", "[::1", ":"]
)
def test_an_odd_ollama_host_is_no_crash(environ: dict[str, str], host: str) -> None:
    assert models.ollama_url({"OLLAMA_HOST": host}).startswith("http://")
    environ["OLLAMA_HOST"] = host
    list_models(environ, Config())


def test_the_models_of_ones_own_server_are_found(environ: dict[str, str]) -> None:
    """The only one answers; of several an error names them, and they are listed."""
    with LLMServer([], models=["acme/embed-1", "openai/gpt-oss-20b"]) as server:
        config = Config(llm=LLMConfig(api_base=server.url))
        chosen = choose_model(config, environ)
        assert (chosen.name, chosen.model) == ("openai/openai/gpt-oss-20b", "openai/gpt-oss-20b")
        server.models += ("qwen3:8b",)
        with pytest.raises(NoModel) as caught:
            choose_model(config, environ)
        assert caught.value.hint.endswith("one of them: openai/openai/gpt-oss-20b, qwen3:8b")
        listed = [each for each in list_models(environ, config) if each.base_url == server.url]
        assert [each.model for each in listed] == ["openai/gpt-oss-20b", "qwen3:8b"]
        named = msgspec.structs.replace(config, model=ModelConfig(main="openai/qwen3:8b"))
        listed = [each for each in list_models(environ, named) if each.base_url == server.url]
        assert [each.name for each in listed] == ["openai/qwen3:8b", "openai/openai/gpt-oss-20b"]


# --- names and keys --------------------------------------------------------------------------


def test_nobody_bills_for_a_provider_that_is_not_known(environ: dict[str, str]) -> None:
    """One with a key may be litellm's; those of clouds sign in otherwise."""
    keyed = {**environ, "NOSUCH_API_KEY": "canary-key"}
    paid = [
        choose_model(Config(), given, flag=name).paid
        for given, name in ((environ, "nosuch/x"), (keyed, "nosuch/x"), (environ, "bedrock/x"))
    ]
    assert paid == [False, True, True]


# --- Ollama ------------------------------------------------------------------------------------


@pytest.mark.parametrize("pause_s", [600, 0.1], ids=["silent", "never comes to an end"])
def test_an_ollama_that_does_not_answer_costs_little(pause_s: float) -> None:
    """It is waited for so long in all, not for each of its bytes."""
    with Torrent(b"H", head=b"", pause_s=pause_s) as server:
        started = time.monotonic()
        assert models.ollama_models({"OLLAMA_HOST": server.url.removesuffix("/v1")}) == []
        assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://127.0.0.1:11434"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:8080", "http://127.0.0.1:8080"),
        (":8080", "http://127.0.0.1:8080"),
        ("gpu-box", "http://gpu-box:11434"),
        ("https://gpu-box/", "https://gpu-box:443"),
        ("http://gpu-box:1234", "http://gpu-box:1234"),
        ("[::1]:99", "http://[::1]:99"),
        ("host:notaport", "http://127.0.0.1:11434"),
    ],
)
def test_ollama_host_as_ollama_reads_it(host: str, url: str) -> None:
    assert models.ollama_url({"OLLAMA_HOST": host}) == url


@pytest.mark.parametrize(
    ("model", "tokens", "cost"),
    [
        ("anthropic/claude-haiku-4-5", (1_000_000, 0), 1.0),
        ("anthropic/claude-haiku-4-5", (0, 1_000_000), 5.0),
        ("anthropic/claude-haiku-4-5", (1_000_000, 0, 1_000_000), 0.1),
        # Anthropic's own figures for Sonnet 4.5 per million: 3, 3.75 written, 0.30 read, 15 out;
        # of 125,000 100,000 were read before, 20,000 are kept for the next call, 5,000 are new.
        (
            "anthropic/claude-sonnet-4-5", (125_000, 1_000, 100_000, 20_000),
            0.1 * 0.30 + 0.02 * 3.75 + 0.005 * 3 + 0.001 * 15,
        ),
        # What the cache gave is counted beside the rest by some: never less than nothing is paid.
        ("anthropic/claude-haiku-4-5", (1, 0, 1_000_000), 0.1),
        ("openai/never-heard-of", (10, 10), None),
    ],
)  # fmt: skip
def test_a_request_costs_its_price(model: str, tokens: tuple[int, ...], cost: float | None) -> None:
    """Tokens in, out, read from the cache and written to it."""
    names = ("input_tokens", "output_tokens", "cached_tokens", "written_tokens")
    used = UsageChunk(**dict(zip(names, tokens, strict=False)))
    assert model_info(model).cost_usd(used) == (cost if cost is None else pytest.approx(cost))


# --- the table ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "efforts", "by_name"),
    [
        ("anthropic/claude-sonnet-5-5", ("low", "medium", "high"), True),
        ("anthropic/claude-haiku-5-5", ("none", "low", "medium", "high"), True),
        ("anthropic/claude-sonnet-4-5", ("none", "low", "medium", "high"), False),
        ("gemini/gemini-2.5-flash", ("none", "low", "medium", "high"), False),
        ("gemini/gemini-2.5-pro", ("low", "medium", "high"), False),
        ("gemini/gemini-3.8-flash", ("low", "medium", "high"), True),
        ("openai/gpt-6-luna", ("none", "low", "medium", "high"), True),
        ("openai/gpt-4o", (), True),
        ("openai/of-tomorrow", None, True),
    ],
)
def test_how_it_thinks_is_known(model: str, efforts: tuple[str, ...] | None, by_name: bool) -> None:
    info = model_info(model)
    assert (info.efforts, info.effort_by_name) == (efforts, by_name)


def test_an_effort_that_a_model_has_not_is_refused_with_those_that_it_has() -> None:
    """A flag is meant for this model; a setting for all, where they can."""
    always, never = model_info("openai/gpt-6.1-sol"), model_info("openai/gpt-4o")
    with pytest.raises(UsageError, match="does not support the effort 'none'") as told:
        choose_effort(always, Config(), "none")
    assert told.value.hint == "It supports low, medium, high."
    with pytest.raises(UsageError, match="does not support thinking"):
        choose_effort(never, Config(), "high")
    assert choose_effort(never, Config(), "none") is None
    unset = Config(model=ModelConfig(effort="none"))
    assert choose_effort(always, unset, None) is None
    assert choose_effort(always, unset, "high") == "high"
    assert choose_effort(model_info("openai/gpt-6-luna"), unset, None) == "none"
    assert choose_effort(model_info("openai/of-tomorrow"), unset, "low") == "low"


def test_the_table_is_small_and_carries_its_licence() -> None:
    file = Path(models.__file__).with_name("models.json")
    assert file.stat().st_size < 150_000
    table = msgspec.json.decode(file.read_bytes())
    assert table["licence"].startswith("MIT License")
    assert "Copyright (c) 2023 Berri AI" in table["licence"]
    assert "litellm" in table["source"]


def test_the_script_makes_the_table_as_it_is() -> None:
    root = Path(models.__file__).parents[2]
    code = (
        "import runpy, sys\n"
        "module = runpy.run_path(sys.argv[1])\n"
        "class Target:\n"
        "    name = 'models.json'\n"
        "    def write_text(self, text, encoding): sys.stderr.write(text)\n"
        "module['main'].__globals__['TARGET'] = Target()\n"
        "module['main']()\n"
    )
    command = [sys.executable, "-c", code, str(root / "scripts" / "build_models")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    ours = msgspec.json.decode((root / "ragmem" / "llm" / "models.json").read_bytes())
    theirs = msgspec.json.decode(done.stderr)
    assert ours.keys() == theirs.keys()
    assert ours["source"] != theirs["source"] or ours == theirs


# --- the model for background work: set, or found beside the main one ----------------------------


SMALL_SIBLINGS = {
    "anthropic/claude-sonnet-5-5": "anthropic/claude-haiku-5-5",
    "anthropic/claude-opus-4-5-20251101": "anthropic/claude-haiku-5-5",
    "openai/gpt-5": "openai/gpt-6-luna",
    "gemini/gemini-2.5-pro": "gemini/gemini-3.5-flash-lite",
    "mistral/devstral-latest": "mistral/mistral-small-latest",
    "deepseek/deepseek-v4-pro": "deepseek/deepseek-v4-flash",
    "groq/openai/gpt-oss-120b": "groq/openai/gpt-oss-20b",
    "vertex_ai/gemini-3.1-pro-preview": "vertex_ai/gemini-3.5-flash-lite",
    "zai/glm-5.3": "zai/glm-5.3-flash",
    "dashscope/qwen3.8-max": "dashscope/qwen3.8-flash",
}
WITHOUT_SIBLING = [
    "anthropic/claude-haiku-5-5", "openai/gpt-5-nano", "openai/ft:gpt-4o-2024-11-20",
    "gemini/gemini-2.5-flash-lite", "vertex_ai/claude-opus-5", "bedrock/anthropic.claude-sonnet-5",
    "azure/gpt-5", "openrouter/openrouter/auto", "ollama/qwen3:8b", "hosted_vllm/anything",
    "local/smollm2-135m-instruct", "openai/my-own-finetune", "nobody/knows", "",
]  # fmt: skip


@pytest.mark.parametrize(
    ("main", "small"), [*SMALL_SIBLINGS.items(), *zip(WITHOUT_SIBLING, repeat(""), strict=False)]
)
def test_the_small_sibling(main: str, small: str) -> None:
    """Same provider; none for a model that is unknown, local or as cheap."""
    assert small_sibling(main) == small


def test_a_sibling_is_known_cheaper_and_reads_enough() -> None:
    """Whatever main model of the table: its sibling has a price below its own."""
    found = {name: small for name in known_models() if (small := small_sibling(name))}
    assert len(found) > 100
    for name, small in found.items():
        info, main = model_info(small), model_info(name)
        assert name.partition("/")[0] == small.partition("/")[0]
        assert info.input_usd_per_token is not None
        assert (info.context_window or 0) >= 100_000
        if main.input_usd_per_token is not None and main.output_usd_per_token is not None:
            used = UsageChunk(input_tokens=800, output_tokens=100)
            assert info.cost_usd(used) < main.cost_usd(used)  # type: ignore[operator]
    for each in PROVIDERS:
        has_sibling = bool(small_sibling(f"{each.name}/{each.main}"))
        assert has_sibling is (each.main != each.small), each.name


BOTH = ModelConfig(main="openai/gpt-5.4", summary="ollama/x")


@pytest.mark.parametrize(
    ("config", "flag", "name", "why"),
    [
        (named("openai/gpt-5.4"), "", "openai/gpt-6-luna", "sibling of openai/gpt-5.4"),
        (Config(model=BOTH), "", "ollama/x", "model.summary"),
        (named("openai/mine"), "", "openai/mine", "model.main"),
        (named("ollama/qwen3:8b"), "", "ollama/qwen3:8b", "model.main"),
        (Config(), "", "openai/gpt-6-luna", "sibling of openai/gpt-6.1-sol"),
        (Config(), "anthropic/claude-opus-5", "anthropic/claude-haiku-5-5", "sibling"),
        (named("openai/gpt-5.4", api_base=OWN_SERVER), "", "openai/gpt-5.4", ""),
    ],
    ids=["sibling", "set", "unknown", "ollama", "by-key", "by-flag", "a server of one's own"],
)
def test_says_why(environ: dict[str, str], config: Config, flag: str, name: str, why: str) -> None:
    environ["ANTHROPIC_API_KEY" if flag else "OPENAI_API_KEY"] = "k"
    choice = choose_summary_model(config, environ, flag=flag)
    assert (choice.name, why in choice.why) == (name, True)


# --- what is usable ------------------------------------------------------------------------------


@pytest.mark.usefixtures("local_model")
def test_what_is_usable_now(environ: dict[str, str]) -> None:
    environ["OPENAI_API_KEY"] = "k"
    with LLMServer(ollama=True, models=["qwen3:8b"]) as server:
        environ["OLLAMA_HOST"] = f"127.0.0.1:{server.port}"
        found = list_models(environ, named("openai/gpt-5.4"))
    assert [c.name for c in found] == [
        "openai/gpt-5.4", "openai/gpt-6.1-sol", "openai/gpt-6-luna", "ollama/qwen3:8b", LOCAL_NAME,
    ]  # fmt: skip
    assert all(c.why for c in found)
    served = {each.name: each.info.context_window for each in found}
    assert served["ollama/qwen3:8b"] == 4096
    environ["OLLAMA_CONTEXT_LENGTH"] = "32768"
    assert choose_model(Config(), environ, flag="ollama/x").info.context_window == 32768


@pytest.mark.parametrize(
    "variable", ["RAGMEM_API_KEY", *sorted({v for p in PROVIDERS for v in p.key_variables})]
)
def test_an_unsendable_key_is_named_and_not_shown(environ: dict[str, str], variable: str) -> None:
    """It was sent up to the HTTP library, whose error showed the whole key."""
    provider = next((p for p in PROVIDERS if variable in p.key_variables), None)
    model = f"{provider.name}/m" if provider else "openai/m"
    config = named(model, **({} if provider else {"api_base": "http://127.0.0.1:9/v1"}))
    for within in ("\n", "\r\n", "\t", "\0", "\x7f", "\u200b", "\udc80"):
        environ[variable] = f"fern12345{within}moss67890"
        with pytest.raises(ConfigError) as caught:
            open_llm(choose_model(config, environ), config, find_paths(environ), environ)
        told = f"{caught.value} {caught.value.hint}"
        assert variable in told
        assert "fern" not in told
        assert "moss" not in told


def test_the_line_break_at_the_end_of_a_key_is_not_sent(environ: dict[str, str]) -> None:
    assert provider_key("K", {"K": " fern12345\r\n"}) == "fern12345"
    assert provider_key("K", {"K": " \n"}) is None
    environ |= {"ANTHROPIC_API_KEY": "\n", "MISTRAL_API_KEY": "a\nb", "OPENAI_API_KEY": "fern12345"}
    with pytest.raises(NoModel, match="not set"):
        choose_model(named("anthropic/m"), environ)
    assert "openai" in {choice.provider for choice in list_models(environ)}
