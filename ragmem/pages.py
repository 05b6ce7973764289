"""Render a session for people: as Markdown, or as a self-contained HTML file.

Known secrets are left out of both. Everything said and printed is treated as data: in HTML all of
it is escaped, no script can run, and nothing is fetched, whatever a page or a tool's result
contains.
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import unified_diff
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any

import msgspec
from markdown_it import MarkdownIt

from ragmem.memory.turns import Said, blocks_of, has_failed, result_text
from ragmem.messages import fields_in
from ragmem.records import Session, ToolCall, Turn
from ragmem.redact import redact
from ragmem.text import clip_middle, counted, duration, fence_of, fenced, one_line, visible

FORMATS = {
    **dict.fromkeys((".md", ".markdown", ".txt"), "md"),
    **dict.fromkeys((".html", ".htm"), "html"),
    ".json": "json",
}
"""Output formats by file name suffix."""
_RESULT_CHARS = 4_000
_FOLDED_CHARS = 40_000
"""Limit for results and diffs that are folded until opened."""
_ARGUMENT_CHARS = 400
"""Limit for arguments on one line; a longer one is shown separately."""
_TITLE_CHARS = 200


def _arguments(call: ToolCall) -> tuple[str, list[tuple[str, str]]]:
    """Return short arguments as JSON for one line, and each long one by name."""
    try:
        given = json.loads(call.arguments)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        return "", [("arguments", call.arguments)] if call.arguments.strip() else []
    texts = {
        name: value if isinstance(value, str) else _json(value) for name, value in given.items()
    }
    long = {n: text for n, text in texts.items() if "\n" in text or len(text) > _ARGUMENT_CHARS}
    short = {name: value for name, value in given.items() if name not in long}
    return _json(short, indent=None) if short or not long else "", list(long.items())


def _json(value: object, *, indent: int | None = 2) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


# --- anonymizing --------------------------------------------------------------------

_HOMES = re.compile(r"(?:/home/|/Users/|\\Users\\{1,2})([\w.-]+)")
_MAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}")
_LEAST_NAME = 3
_NO_NAMES = {"root", "user", "home", "src", "code", "work", "project", "projects", "tmp", "test"}


def anonymous(
    session: Session, turns: Sequence[Turn], names: Iterable[str]
) -> tuple[Session, list[Turn]]:
    """Return both with paths, mail addresses and names replaced.

    The project's folder becomes `/project`, homes become `/home/someone`. `names` are replaced
    wherever they are whole words, and so are the names of the project and of home folders.
    """
    top = session.project_path or session.cwd
    texts = msgspec.json.encode((session, turns)).decode()
    people = {*names, *_HOMES.findall(texts)}

    def look(text: str) -> str:
        people.update(_HOMES.findall(text))
        return text

    for turn in turns:
        _anonymous_turn(turn, look)
    words = {name: "someone" for name in people if _is_name(name)}
    if _is_name(project := top.rpartition("/")[2]):
        words[project] = "project"
    longest = sorted(words, key=len, reverse=True)
    named = "|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in longest)
    found = re.compile(named or "(?!)", re.IGNORECASE)
    lowered = {name.casefold(): word for name, word in words.items()}

    def without(text: str) -> str:
        text = re.sub(re.escape(top) + r"(?![\w-])", "/project", text) if len(top) > 1 else text
        text = _MAIL.sub("someone@example.org", text)
        return found.sub(lambda name: lowered.get(name[0].casefold(), "someone"), text)

    renamed = msgspec.structs.replace(
        session,
        session_id="(left out)",
        title=without(session.title),
        first_message=session.first_message and without(session.first_message),
        last_message=session.last_message and without(session.last_message),
        cwd=without(session.cwd),
    )
    return renamed, [_anonymous_turn(turn, without) for turn in turns]


def _each_text(text: str, change: Callable[[str], str]) -> str:
    """Apply a function to each text in JSON; anything else is treated as one text."""

    def changed(value: Any) -> Any:
        match value:
            case str():
                return change(value)
            case list():
                return [changed(each) for each in value]
            case dict():
                return {change(name): changed(each) for name, each in value.items()}
            case _:
                return value

    try:
        return json.dumps(changed(json.loads(text)), ensure_ascii=False)
    except (ValueError, RecursionError):
        return change(text)


def _is_name(word: str) -> bool:
    return len(word) >= _LEAST_NAME and word.casefold() not in _NO_NAMES


def _anonymous_turn(turn: Turn, without: Callable[[str], str]) -> Turn:
    """Return a turn with all its texts replaced, those in JSON one by one."""
    return msgspec.structs.replace(
        turn,
        user_message=without(turn.user_message),
        assistant_message=without(turn.assistant_message),
        model=turn.model and without(turn.model),
        tool_calls=tuple(
            msgspec.structs.replace(
                call,
                arguments=_each_text(call.arguments, without),
                result=_each_text(call.result, without),
                error=call.error and without(call.error),
                preamble=without(call.preamble),
            )
            for call in turn.tool_calls
        ),
    )


# --- Markdown -------------------------------------------------------------------


def markdown(session: Session, turns: Sequence[Turn]) -> str:
    """Return everything that was said, with the tool calls; long results are clipped."""
    lines = [
        f"# {one_line(session.title, _TITLE_CHARS)}",
        "",
        f"Session `{session.session_id}` in `{one_line(session.cwd, 400)}`, "
        f"started {session.started_at:%Y-%m-%d %H:%M} UTC.",
    ]
    for block in blocks_of(turns):
        match block:
            case Turn():
                mark = "" if block.status == "completed" else f" ({block.status})"
                lines += ["", f"## {block.turn_index}{mark}"]
            case Said("person", text):
                lines += ["", *_quoted(text)]
            case Said("agent", text):
                lines += ["", visible(text)]
            case ToolCall():
                lines += ["", *_call(block)]
    return redact("\n".join(lines)) + "\n"


def _quoted(text: str) -> list[str]:
    return [f"> {line}".rstrip() for line in visible(text).split("\n")]


def _call(call: ToolCall) -> list[str]:
    why = (
        f" — failed: {one_line(call.error or '', 200)}" if call.result and not call.success else ""
    )
    line, others = _arguments(call)
    lines = [f"**{one_line(call.tool_name, 80)}**{_code(visible(line))}{why}"]
    for name, value in others:
        lines += ["", f"{one_line(name, 80)}:", _cut_and_fenced(value)]
    return [*lines, "", _cut_and_fenced(result_text(call))]


def _code(line: str) -> str:
    """Format a line as code, whatever backticks it contains."""
    fence = fence_of(line)
    return f" {fence}{line}{fence}" if line else ""


def _cut_and_fenced(text: str) -> str:
    # Redact before clipping: half a key is not recognized as one.
    text = visible(clip_middle(redact(text), _RESULT_CHARS))
    return fenced(text.removesuffix("\n"))


# --- HTML -----------------------------------------------------------------------

_STYLE = "\n" + Path(__file__).with_suffix(".css").read_text("utf-8")
_POLICY = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; "
    f"style-src 'sha256-{b64encode(sha256(_STYLE.encode()).digest()).decode()}'"
)


class _SafeMarkdown(MarkdownIt):
    """Renders HTML as text, images as links, and allows only links to the web and to mailboxes."""

    def __init__(self) -> None:
        super().__init__("commonmark", {"html": False})
        self.enable(["strikethrough", "table"]).disable("image")

    def validateLink(self, url: str) -> bool:
        """Return whether a link is allowed; one that is not stays text."""
        return url.lower().startswith(("https://", "http://", "mailto:"))


def html(session: Session, turns: Sequence[Turn]) -> str:
    """Render a session as one HTML file, light or dark; results and diffs are folded."""
    shown = _SafeMarkdown()
    title = _line(session.called, _TITLE_CHARS)
    started = f"{session.started_at:%Y-%m-%d %H:%M} UTC"
    where = _line(session.cwd, 400)
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="referrer" content="no-referrer">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{title}</title>",
        f"<style>{_STYLE}</style>\n</head>\n<body>",
        f"<header>\n<h1>{title}</h1>",
        f'<p class="facts">{started} · {counted(len(turns), "turn")} · <code>{where}</code> · '
        f"session <code>{escape(session.session_id)}</code></p>\n</header>",
    ]
    for block in blocks_of(turns):
        match block:
            case Turn():
                parts += ["</section>"] if block is not turns[0] else []
                parts += _turn_heading(block)
            case Said("person", text):
                parts.append(f'<div class="prompt">{_text(text)}</div>')
            case Said("agent", text):
                parts.append(str(shown.render(visible(redact(text)))))
            case ToolCall():
                parts += _call_html(block)
    parts += ["</section>"] if turns else []
    parts.append("</body>\n</html>\n")
    # The parser decodes entities, so hidden characters behind them become visible here, in
    # attributes too.
    return visible("\n".join(parts))


def _turn_heading(turn: Turn) -> Iterator[str]:
    mark = "" if turn.status == "completed" else f" · {turn.status}"
    model = f" · {_line(turn.model, 100)}" if turn.model else ""
    yield f'<section id="turn-{turn.turn_index}">'
    yield f'<p class="number">{turn.turn_index}{mark}{model}</p>'


def _call_html(call: ToolCall) -> Iterator[str]:
    style, mark = ("bad", "✗") if has_failed(call) else ("good", "●")
    style, mark = (style, mark) if call.result else ("unknown", "?")
    line, others = _arguments(call)
    why = _line(call.error or "failed", 200) if call.result and not call.success else ""
    reason = f' <span class="bad">{why}</span>' if why else ""
    time = f" <span>{duration(call.duration_ms)}</span>" if call.duration_ms else ""
    name = _line(call.tool_name, 80)
    yield f'<details>\n<summary><span class="{style}">{mark}</span> <strong>{name}</strong> '
    yield f"<code>{_text(line)}</code>{reason}{time}</summary>"
    rows = _diff_rows(call)
    for name, value in others:
        if not rows or name not in _DIFFED:
            shown = _text(clip_middle(redact(value), _FOLDED_CHARS))
            yield f'<p class="number">{_line(name, 80)}</p>\n<pre>{shown}</pre>'
    if rows:
        yield f"<pre>{''.join(map(_diff_html, rows))}</pre>"
    answered = redact(result_text(call))
    yield f"<pre>{_text(clip_middle(answered, _FOLDED_CHARS))}</pre>\n</details>"


_DIFFED = ("old", "new", "content")


def _diff_rows(call: ToolCall) -> list[str]:
    """Return the lines that an edit removed and added, according to its arguments."""
    given = fields_in(call.arguments)
    old, new = given.get("old", ""), given.get("new", given.get("content"))
    if not isinstance(old, str) or not isinstance(new, str):
        return []
    old, new = (clip_middle(redact(each), _FOLDED_CHARS) for each in (old, new))
    rows = unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=3)
    return [row for row in list(rows)[2:] if not row.startswith("@@ ")]


def _diff_html(row: str) -> str:
    tag = {"+": "ins", "-": "del"}.get(row[:1])
    text = escape(visible(row))
    return f"<{tag}>{text}</{tag}>" if tag else f"{text}\n"


def _line(text: str, limit: int) -> str:
    return escape(one_line(redact(text), limit))


def _text(text: str) -> str:
    return escape(visible(redact(text)))
