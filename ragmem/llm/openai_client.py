"""Any OpenAI-compatible server, by its chat completions."""

from typing import Any

from ragmem.llm import wire
from ragmem.llm.base import Request
from ragmem.llm.http_client import EventReader, HttpClient
from ragmem.messages import Json

_WANTS_A_KEY = "openai"
"""Its requests go to one of many machines, by this key; other servers refuse words unknown to them:
https://platform.openai.com/docs/guides/prompt-caching
"""


class OpenAIClient(HttpClient):
    """Speaks the protocol that most servers understand."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # What this server turned out to refuse; learnt once.
        self._ask_usage = True
        self._limit_name = "max_tokens"

    @property
    def _url(self) -> str:
        return self._endpoint.base_url.rstrip("/") + "/chat/completions"

    def _reader(self) -> EventReader:
        return wire.AnswerReader()

    def _adapt(self, body: str) -> bool:
        if self._ask_usage and "stream_options" in body:
            self._ask_usage = False
            return True
        if self._limit_name == "max_tokens" and "max_completion_tokens" in body:
            self._limit_name = "max_completion_tokens"
            return True
        return False

    def _body(self, request: Request) -> dict[str, Json]:
        body: dict[str, Json] = {
            "model": self._endpoint.model,
            "messages": wire.messages_json(
                request.messages, id_length=self._endpoint.tool_call_id_length
            ),
            "stream": True,
        }
        if self._ask_usage:
            body["stream_options"] = {"include_usage": True}
        if request.tools:
            body["tools"] = wire.tools_json(request.tools)
        if request.max_output_tokens:
            body[self._limit_name] = request.max_output_tokens
        if request.effort:
            body["reasoning_effort"] = request.effort
        if schema := self._schema_of(request):
            told = {"name": "answer", "schema": schema}
            body["response_format"] = {"type": "json_schema", "json_schema": told}
        if request.cache_key and self._endpoint.name == _WANTS_A_KEY:
            body["prompt_cache_key"] = request.cache_key
        return body
