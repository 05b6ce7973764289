"""Choosing a model, and opening the adapter for it.

The order: the model named by a flag, RAGMEM_MODEL or the configuration, a provider whose key is
set, a local Ollama, the installed small model.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from ragmem.config import (
    ADDRESS,
    Config,
    Effort,
    Paths,
    find_paths,
    is_address,
    named_in,
    provider_key,
)
from ragmem.errors import ConfigError, NoModel, NoWeights, UsageError
from ragmem.llm.base import LLM, ModelInfo
from ragmem.llm.providers import (
    BY_NAME,
    PROVIDERS,
    WITHOUT_A_KEY,
    Protocol,
    Provider,
    is_known,
    known_models,
    model_info,
    small_sibling,
)
from ragmem.text import one_line, visible
from ragmem.usage import UsageLog

PROBE_S = 0.15
"""How long to wait for Ollama, which may not be running."""
DEFAULT_WINDOW = 4096
"""Ollama's context window in tokens without OLLAMA_CONTEXT_LENGTH; it silently drops the rest."""
_SERVER_TIMEOUT_S = 1.0
"""How long to wait for the server at `llm.api_base`, which may be on another machine."""
_MOST_BYTES = 4 << 20


class _Offered(msgspec.Struct):
    name: str = ""
    id: str = ""


class _Offer(msgspec.Struct):
    models: list[_Offered] = []
    """The models in Ollama's format."""
    data: list[_Offered] = []
    """The models in OpenAI's format."""


def ollama_url(environ: Mapping[str, str]) -> str:
    """Return Ollama's URL: from OLLAMA_HOST, as Ollama itself reads it, else its default."""
    host = environ.get("OLLAMA_HOST", "").strip().rstrip("/")
    usual = {"https": 443, "http": 80} if "://" in host else {}
    try:
        url = urlsplit(host if "://" in host else f"http://{host}")
        port = url.port or usual.get(url.scheme, 11434)
    except ValueError:
        return "http://127.0.0.1:11434"
    scheme = "https" if url.scheme == "https" else "http"
    name = url.hostname or "127.0.0.1"
    name = "127.0.0.1" if name in ("0.0.0.0", "::", "localhost") else name
    return f"{scheme}://{f'[{name}]' if ':' in name else name}:{port}"


def ollama_window(environ: Mapping[str, str]) -> int:
    """Return the context window of this Ollama, in tokens."""
    value = environ.get("OLLAMA_CONTEXT_LENGTH", "")
    return int(value) if value.isdigit() and int(value) > 0 else DEFAULT_WINDOW


def ollama_models(environ: Mapping[str, str]) -> list[str]:
    """Return the names of Ollama's chat models, newest first; none without an answer in 150 ms."""
    return _chat_models(f"{ollama_url(environ)}/api/tags", PROBE_S)


def served_models(config: Config, environ: Mapping[str, str]) -> list[str]:
    """Return names for the models that `llm.api_base` lists; none without an answer in 1 s."""
    key = provider_key(LOCAL_KEY, environ)
    url = urlsplit(config.llm.api_base)
    listing = url._replace(path=f"{url.path.rstrip('/')}/models").geturl()
    found = _chat_models(listing, _SERVER_TIMEOUT_S, key)
    # A known provider before a slash would be taken for a prefix.
    return [f"openai/{m}" if m.partition("/")[0] in BY_NAME else m for m in found]


def _chat_models(url: str, within_s: float, key: str | None = None) -> list[str]:
    """Return the listed models; none if there is no such server, or it doesn't answer in time."""
    found: list[list[str]] = []
    # In a thread: DNS lookups have no timeout, nor does a response that arrives byte by byte.
    asking = Thread(target=lambda: found.append(_fetch_models(url, within_s, key)), daemon=True)
    asking.start()
    asking.join(within_s * 1.5)
    return found[0] if found else []


def _fetch_models(url: str, within_s: float, key: str | None) -> list[str]:
    from http.client import HTTPConnection, HTTPException, HTTPSConnection

    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "127.0.0.1", parts.port, timeout=within_s)
    try:
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", path, headers={"Authorization": f"Bearer {key}"} if key else {})
        response = connection.getresponse()
        if response.status != 200:
            return []
        offer = msgspec.json.decode(response.read(_MOST_BYTES), type=_Offer)
    except (OSError, HTTPException, msgspec.DecodeError, ValueError):
        return []
    finally:
        connection.close()
    names = dict.fromkeys(each.name or each.id for each in (*offer.data, *offer.models))
    return [name for name in names if name and "embed" not in name]


Client = Literal[Protocol, "responses", "litellm", "local"]

_CLIENTS = {
    "openai": ("http_client", "OpenAIClient"),
    "responses": ("http_client", "ResponsesClient"),
    "anthropic": ("anthropic_client", "AnthropicClient"),
    "gemini": ("gemini_client", "GeminiClient"),
    "litellm": ("litellm_client", "LiteLLMClient"),
}
"""The module, which is imported on demand, and the class of each adapter of providers."""
LOCAL_NAME = "local/smollm2-135m-instruct"
LOCAL_KEY = "RAGMEM_API_KEY"
"""The environment variable with the key for the server at `llm.api_base`."""


class ModelChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A chosen model, the reason, and how to reach it."""

    name: str
    """`provider/model`."""
    info: ModelInfo
    why: str
    """The reason to show: `-m`, `OPENAI_API_KEY is set` …"""
    provider: str
    client: Client
    key_variable: str = ""
    """The environment variable for its key; empty if it needs none."""
    base_url: str = ""
    base_variable: str = ""
    """The environment variable with its address; empty for the provider's default one."""
    model: str = ""
    """The server's name of the model."""
    paid: bool = False
    """Whether its use may be billed; the app says so at first use."""


_MOST_LISTED = 12
"""The most models of a server that an error message lists."""
_LAST_RESORT = "the small local model is installed"


def choose_model(config: Config, environ: Mapping[str, str], *, flag: str = "") -> ModelChoice:
    """Choose the model to use.

    Raises NoModel, with a hint, if there is none or its key is missing, and ConfigError for an
    invalid name or address. May query a local Ollama, for at most 150 ms.
    """
    if name := flag or config.model.main:
        why = "-m" if flag else _source(environ)
        return _choice_of(name, why, config, environ)
    if config.llm.api_base:
        _check_address(config.llm.api_base)
        served = served_models(config, environ)
        if len(served) == 1:
            return _choice_of(served[0], "the only model", config, environ)
        raise _none_named(config.llm.api_base, served, environ)
    for each in PROVIDERS:
        if each.main and (variable := _key_variable(each, environ)):
            return _choice_of(f"{each.name}/{each.main}", f"{variable} is set", config, environ)
    if found := ollama_models(environ):
        return _choice_of(f"ollama/{found[0]}", "Ollama is running", config, environ)
    if find_local_model(environ) is not None:
        return _choice_of(LOCAL_NAME, _LAST_RESORT, config, environ)
    raise _no_model()


def choose_summary_model(
    config: Config, environ: Mapping[str, str], *, flag: str = ""
) -> ModelChoice:
    """Choose the model for background work: `model.summary`, else a small sibling of the main one.

    With `llm.api_base`, or without a known sibling, it is the main model itself. Raises the same
    as `choose_model`.
    """
    if config.model.summary:
        return _choice_of(config.model.summary, "model.summary", config, environ)
    main = choose_model(config, environ, flag=flag)
    if config.llm.api_base or not (small := small_sibling(main.name)):
        return main
    return _choice_of(small, f"the small sibling of {main.name}", config, environ)


def choose_effort(info: ModelInfo, config: Config, flag: Effort | None) -> Effort | None:
    """Return the reasoning effort: the flag, else the setting if the model accepts it.

    Raises UsageError for a flag that this model is known not to accept.
    """
    wanted: Effort | None = flag or config.model.effort or None
    if wanted is None or info.efforts is None or wanted in info.efforts:
        return wanted
    if flag is None or (flag == "none" and not info.efforts):
        return None
    if not info.efforts:
        raise UsageError(f"{info.name} does not support thinking.", hint="Leave --effort out.")
    raise UsageError(
        f"{info.name} does not support the effort {flag!r}.",
        hint=f"It supports {', '.join(info.efforts)}.",
    )


def list_models(environ: Mapping[str, str], config: Config | None = None) -> list[ModelChoice]:
    """Return the models that can be used now: the configured one, then others, best first."""
    config = config or Config()
    found: list[ModelChoice] = []
    if config.model.main:
        with suppress(NoModel):  # It is configured, but its key is missing.
            found.append(_choice_of(config.model.main, _source(environ), config, environ))
    for name in served_models(config, environ) if config.llm.api_base else ():
        found.append(_choice_of(name, "offered", config, environ))
    plain = Config(llm=msgspec.structs.replace(config.llm, api_base=""))
    for provider in PROVIDERS:
        variable = _key_variable(provider, environ)
        for model in dict.fromkeys((provider.main, provider.small)) if variable else ():
            if model:
                name = f"{provider.name}/{model}"
                with suppress(ConfigError):  # Its key or its address is invalid.
                    found.append(_choice_of(name, f"{variable} is set", plain, environ))
    for model in ollama_models(environ):
        found.append(_choice_of(f"ollama/{model}", "Ollama is running", plain, environ))
    if find_local_model(environ) is not None:
        found.append(_choice_of(LOCAL_NAME, "installed", plain, environ))
    # With `llm.api_base`, `openai/name` and `name` are one model.
    unique: dict[tuple[str, str], ModelChoice] = {}
    for choice in found:
        unique.setdefault((choice.base_url, choice.model or choice.name), choice)
    return list(unique.values())


def find_local_model(environ: Mapping[str, str]) -> Path | None:
    """Return the small model's file if it and its library are installed; imports neither."""
    from ragmem.llm.local import find_weights

    return find_weights(find_paths(environ)) if _local_model_runs() else None


def _local_model_runs() -> bool:
    return find_spec("xllamacpp") is not None


def open_llm(choice: ModelChoice, config: Config, paths: Paths, environ: Mapping[str, str]) -> LLM:
    """Return the adapter for a choice, which connects at the first request."""
    timeout_s = config.llm.timeout_s
    key = provider_key(choice.key_variable, environ) if choice.key_variable else None
    if choice.client == "local":
        from ragmem.llm.local import LocalLLM

        file = find_local_model(environ)
        if file is None:
            raise _no_model("The small local model can't be used")
        return LocalLLM(
            choice.info,
            model_file=file,
            runtime_dir=paths.data_dir,
            log_file=paths.log_dir / "local-model.log",
            timeout_s=timeout_s,
        )
    from ragmem.llm.http_client import Endpoint

    custom = bool(config.llm.api_base)
    provider = BY_NAME.get(choice.provider)
    endpoint = Endpoint(
        base_url=choice.base_url,
        base_variable=choice.base_variable,
        model=choice.model,
        name="" if custom else choice.provider,
        api_key=key,
        key_variable=choice.key_variable,
        tool_call_id_length=provider.tool_call_id_length if provider and not custom else 0,
        custom=custom or (provider is not None and provider.local),
    )
    module, name = _CLIENTS[choice.client]
    client = getattr(import_module(f"ragmem.llm.{module}"), name)
    llm: LLM = client(choice.info, endpoint, timeout_s=timeout_s, retries=config.llm.retries)
    return llm


def _choice_of(name: str, why: str, config: Config, environ: Mapping[str, str]) -> ModelChoice:
    prefix, slash, rest = name.partition("/")
    if not name.isprintable():
        raise ConfigError(
            f"The model's name has characters that can't be sent: {name[:80]!r}.",
            hint="`ragmem models` lists what can be used now.",
        )
    if slash and not rest:
        raise ConfigError(
            f"{one_line(name, 80)!r} names no model.",
            hint=f"Write {one_line(name, 80)}NAME; `ragmem models` lists what can be used now.",
        )
    if prefix == "local":
        return _local_choice(name, why, environ)
    if config.llm.api_base:
        _check_address(config.llm.api_base)
    if config.llm.api_base and config.llm.client != "litellm":
        return _custom_choice(name, why, config, environ)
    if not slash:
        prefix, rest = _provider_of(name), name
        name = f"{prefix}/{rest}"
    provider = BY_NAME.get(prefix)
    direct = provider is not None and (provider.base_url or provider.name == "ollama")
    if provider is None or not direct or config.llm.client == "litellm":
        return _litellm_choice(name, why, provider, config, environ)
    info = model_info(name)
    base_url = provider.base_url
    if other := environ.get(provider.base_variable or "-", "").strip():
        _check_address(other, provider.base_variable)
        version = "" if provider.protocol == "openai" else urlsplit(provider.base_url).path
        base_url = other.rstrip("/") + version
    if provider.name == "ollama":
        base_url = ollama_url(environ) + "/v1"
        info = msgspec.structs.replace(info, context_window=ollama_window(environ))
    client: Client = provider.protocol
    # At another address is another server, and most have chat completions only.
    thinks = bool(info.efforts) and not other and config.llm.client == "auto"
    if provider.name == "openai" and (info.responses_only or thinks):
        client = "responses"
    return ModelChoice(
        name=name,
        info=info,
        why=why,
        provider=provider.name,
        client=client,
        key_variable=_needed_key(name, provider, environ),
        base_url=base_url,
        base_variable=provider.base_variable if other else "",
        model=rest,
        paid=_is_paid(info, provider),
    )


def _custom_choice(name: str, why: str, config: Config, environ: Mapping[str, str]) -> ModelChoice:
    """Return the choice for `llm.api_base`: any model name, and RAGMEM_API_KEY as the key."""
    prefix, slash, rest = name.partition("/")
    known = bool(slash) and prefix in BY_NAME
    return ModelChoice(
        name=name,
        # Not from the table, whose data apply to the provider of that name.
        info=ModelInfo(name=name),
        why=f"{why}, at {_without_credentials(config.llm.api_base)}",
        provider=prefix if known else "openai",
        client="openai",
        key_variable=LOCAL_KEY,
        base_url=config.llm.api_base,
        model=rest if known else name,
    )


def _none_named(base: str, served: Sequence[str], environ: Mapping[str, str]) -> NoModel:
    """Return the error for a server that lists several models, or none as it may not be running."""
    hint = "Set model.main, RAGMEM_MODEL or -m to "
    if served:
        hint += f"one of them: {', '.join(map(visible, served[:_MOST_LISTED]))}"
    else:
        address = named_in("llm.api_base", environ)
        hint = f"Start it, or check {address} (it often ends in /v1). {hint}the name of its model."
    lists = f"{_without_credentials(base)} lists {'several' if served else 'none'}"
    return NoModel(f"No model is named, and {lists}.", hint=hint)


def _check_address(base: str, named: str = "llm.api_base") -> None:
    """Raise ConfigError, naming the setting or variable `named`, unless `base` is a valid URL."""
    if not is_address(base):
        # A password with a `#` or `/` makes it none.
        shown = base.rpartition("@")[2]
        raise ConfigError(f"{named} is {shown!r}, which is not an address.", hint=ADDRESS)


def _litellm_choice(
    name: str, why: str, provider: Provider | None, config: Config, environ: Mapping[str, str]
) -> ModelChoice:
    prefix = name.partition("/")[0]
    info, base_url, guess = model_info(name), config.llm.api_base, f"{prefix.upper()}_API_KEY"
    # An unknown provider without a key is not taken to charge.
    bills = not base_url
    if base_url:
        key = LOCAL_KEY
    elif provider is not None:
        key = _needed_key(name, provider, environ)
        base_url = ollama_url(environ) if provider.name == "ollama" else ""
    else:
        key = guess if environ.get(guess) and prefix not in WITHOUT_A_KEY else ""
        bills = bool(key) or prefix in WITHOUT_A_KEY
    return ModelChoice(
        name=name,
        info=info,
        why=why,
        provider=prefix,
        client="litellm",
        key_variable=key,
        base_url=base_url,
        model=name,
        paid=bills and _is_paid(info, provider),
    )


def _local_choice(name: str, why: str, environ: Mapping[str, str]) -> ModelChoice:
    if name != LOCAL_NAME and name != "local/smollm2":
        raise NoModel(
            f"There is no local model {name!r}.",
            hint=f"The small model is {LOCAL_NAME}; others run in Ollama: -m ollama/<name>.",
        )
    if find_local_model(environ) is None:
        raise _no_model("The small local model can't be used")
    from ragmem.llm.local import LOCAL_INFO

    return ModelChoice(name=LOCAL_NAME, info=LOCAL_INFO, why=why, provider="local", client="local")


def _provider_of(name: str) -> str:
    """Return the first known provider that has a model of this name; raises ConfigError."""
    for provider in PROVIDERS:
        if is_known(f"{provider.name}/{name}"):
            return provider.name
    ours = (known for known in known_models() if known.partition("/")[0] in BY_NAME)
    tails = {known.partition("/")[2]: known for known in ours}
    close = get_close_matches(name, tails, n=1)
    meant = f" Did you mean {tails[close[0]]!r}?" if close else ""
    raise ConfigError(
        f"The model {name!r} names no provider.",
        hint=f"Write provider/model, such as ollama/{name}.{meant}",
    )


def _needed_key(name: str, provider: Provider, environ: Mapping[str, str]) -> str:
    """Return the variable with the provider's key.

    Raises NoModel if none is set, ConfigError if the key is invalid.
    """
    if not provider.key_variables:
        return ""
    variable = _key_variable(provider, environ)
    if not provider_key(variable, environ):
        wanted = " or ".join(provider.key_variables)
        raise NoModel(
            f"The model {name} needs a key, and {wanted} is not set.",
            hint=f"export {provider.key_variables[0]}=…, or choose another model: `ragmem models`.",
        )
    return variable


def _key_variable(provider: Provider, environ: Mapping[str, str]) -> str:
    return next((v for v in provider.key_variables if environ.get(v, "").strip()), "")


def _is_paid(info: ModelInfo, provider: Provider | None) -> bool:
    if provider is not None and provider.local:
        return False
    return info.input_usd_per_token is None or info.input_usd_per_token > 0


def _source(environ: Mapping[str, str]) -> str:
    variables = ("RAGMEM_MODEL__MAIN", "RAGMEM_MODEL")
    return next((name for name in variables if environ.get(name)), "model.main")


def _without_credentials(url: str) -> str:
    """Return a URL without the user name and password that it may contain."""
    return re.sub(r"^((?:[\w+.-]+:)?//)?[^/?#]*@", r"\1", url)


def _no_model(said: str = "There is no model to answer with") -> NoModel:
    from ragmem.llm.local import HOW

    kind, what = NoModel, f"{said}."
    how = "the small local model: `ragmem doctor` shows the command that installs it"
    if _local_model_runs():
        kind, what = NoWeights, f"{said}: the weights of the small local model are missing."
        how = f"these weights: {HOW}"
    keys = ", ".join(v for p in PROVIDERS for v in p.key_variables[:1])
    return kind(
        what,
        hint="Any one of these will do:\n"
        f"- a provider's key in the environment: {keys}\n"
        "- Ollama running on this machine, with a model pulled\n"
        "- a server of your own: RAGMEM_API_BASE=http://… with RAGMEM_MODEL=openai/<name>\n"
        f"- {how}",
    )


def about(choice: ModelChoice, usage: UsageLog) -> list[str]:
    """Return notices to show before a model's use: what it can't do, and once, who is billed."""
    said = []
    if choice.why == _LAST_RESORT:
        first, *others = (p.key_variables[0] for p in PROVIDERS if p.main)
        said.append(
            f"No provider's key was found, so {choice.name}, a small model on this machine, "
            "answers. It can't use tools: it knows what is remembered and the files that you name "
            f"(@path). For one that can search, edit and run commands, export {first}=… (or "
            f"{', '.join(others)}) or start Ollama, and start again; `ragmem models` lists what "
            "can be used."
        )
    elif not choice.info.supports_tools:
        said.append(
            f"{choice.name} can't use tools: it answers from memory and from the files that "
            "you name (@path), and can't search, edit or run commands."
        )
    if choice.paid and usage.is_first_use(choice.name):
        bills = "bills" if choice.provider in BY_NAME else "may bill"
        said.append(f"Using {choice.name} ({choice.why}): its provider {bills} you.")
    return said
