"""Whether a model's name is one that its server has, asked when a person chooses it."""

from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from ragmem.config import provider_key
from ragmem.llm.models import ModelChoice
from ragmem.llm.prices import is_known, known_models

_WITHIN_S = 2.0
_MOST_BYTES = 4 << 20


class _Model(msgspec.Struct):
    id: str = ""


class _List(msgspec.Struct):
    data: list[_Model]


def doubt(choice: ModelChoice, environ: Mapping[str, str]) -> str:
    """Why there may be no such model, for the person; empty where it is listed or none can tell."""
    prefix = f"{choice.provider}/"
    if choice.client == "openai":
        key = provider_key(choice.key_variable, environ) if choice.key_variable else None
        listed, name, by = _offered(choice.base_url, key), choice.model, "its server"
    elif choice.client == "litellm" and not choice.base_url:
        # A new one need not be in the table: it is said, and not refused.
        ours = [known for known in known_models() if known.startswith(prefix)]
        listed, name, by = ours, choice.name, "ragmem"
    else:
        return ""
    if not listed or name in listed or f"{name}:latest" in listed or is_known(choice.name):
        return ""
    from difflib import get_close_matches

    close = get_close_matches(name, listed, n=1)
    meant = f" Did you mean {prefix + close[0].removeprefix(prefix)}?" if close else ""
    return f"{choice.name} is none of the {len(listed):,} models that {by} lists.{meant}"


def _offered(base_url: str, key: str | None) -> list[str]:
    """What a server lists at `/models`; nothing where it does not tell in time."""
    from http.client import HTTPConnection, HTTPException, HTTPSConnection

    parts = urlsplit(base_url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "127.0.0.1", parts.port, timeout=_WITHIN_S)
    try:
        path = f"{parts.path.rstrip('/')}/models" + (f"?{parts.query}" if parts.query else "")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        if response.status != 200:
            return []
        found = msgspec.json.decode(response.read(_MOST_BYTES), type=_List)
        return [model.id.removeprefix("models/") for model in found.data if model.id]
    except (OSError, HTTPException, msgspec.DecodeError, ValueError):
        return []
    finally:
        connection.close()
