"""A session as a person reads it, in a pipe and on a terminal."""

from collections.abc import Sequence

from ragmem.cli.colors import Paint, Part, joined
from ragmem.listings import folded, session_marks, session_name
from ragmem.memory.window import result_text
from ragmem.records import Session, ToolCall, Turn
from ragmem.text import clip_middle, clip_to_width, display_width, one_line, visible

_SHOWN_CHARS = 400
_QUOTED_CHARS = 2_000


def conversation_text(
    session: Session, turns: Sequence[Turn], *, reasoning: bool = False, results: bool = False
) -> str:
    """A session as a person reads it; what is long is clipped, `--format json` has it whole."""
    lines = [_heading(session), _facts(session)]
    for turn in turns:
        mark = "" if turn.status == "completed" else f" ({turn.status})"
        lines += ["", f"── {turn.turn_index}{mark}", f"› {visible(turn.user_message)}"]
        if reasoning and turn.reasoning:
            lines += ["", *_quoted(turn.reasoning, "~ ")]
        for call in turn.tool_calls:
            lines.append("".join(text for text, _ in _call_parts(call, failed=not call.success)))
            lines += _quoted(result_text(call), "  ⎿ ") if results else []
        if turn.assistant_message:
            lines += ["", visible(turn.assistant_message)]
    return "\n".join(lines) + "\n"


def _heading(session: Session) -> str:
    return session_name(session) + visible(session_marks(session))


def _facts(session: Session) -> str:
    started = session.started_at.astimezone().strftime("%Y-%m-%d %H:%M")
    return f"{session.session_id} · {visible(session.cwd)} · started {started}"


def _quoted(text: str, mark: str) -> list[str]:
    """Behind a margin, so that it can't pass for something else."""
    clipped = clip_middle(text.strip(), _QUOTED_CHARS)
    return [f"{mark}{visible(line)}".rstrip() for line in clipped.splitlines()]


def _call_parts(call: ToolCall, *, failed: bool) -> list[Part]:
    mark = ("✗", "red") if failed else ("●", "green")
    reason = f" — {one_line(call.error, 200)}" if call.error else ""
    arguments = one_line(clip_middle(call.arguments, _SHOWN_CHARS), 160)
    name = one_line(call.tool_name, 80)
    return [mark, (" ", ""), (name, "bold"), (f" {arguments}", "dim"), (reason, "red")]


def conversation_painted(
    session: Session,
    turns: Sequence[Turn],
    *,
    width: int,
    paint: Paint,
    reasoning: bool = False,
    results: bool = False,
) -> str:
    """The same on a terminal: prompts bright, answers set as Markdown, all else dim."""
    from ragmem.pages import failed
    from ragmem.repl.output import answer, wrap
    from ragmem.repl.output import paint as rendered

    def dim(rows: list[str]) -> list[str]:
        return [paint((row, "dim")) for each in rows for row in wrap(each, width)]

    rows = [paint((row, "bold")) for row in wrap(_heading(session), width)] + dim([_facts(session)])
    for turn in turns:
        mark = "" if turn.status == "completed" else f" ({turn.status})"
        rows += ["", *dim([f"── {turn.turn_index}{mark}"])]
        rows += _prompt(turn.user_message, width, paint)
        if reasoning and turn.reasoning:
            rows += ["", *dim(_quoted(turn.reasoning, "~ "))]
        for call in turn.tool_calls:
            rows += _fitted(_call_parts(call, failed=failed(call)), width, paint)
            rows += dim(_quoted(result_text(call), "  ⎿ ")) if results else []
        if turn.assistant_message:
            text = rendered(answer(turn.assistant_message), width=width, mode=paint.mode)
            rows += ["", text.rstrip("\n")]
    return joined(rows)


def _prompt(text: str, width: int, paint: Paint) -> list[str]:
    from ragmem.repl.output import wrap

    rows = wrap(visible(text), width - 2)
    return [
        paint(("  " if place else "› ", "dim"), (row, "bold")) for place, row in enumerate(rows)
    ]


def _fitted(parts: list[Part], width: int, paint: Paint) -> list[str]:
    """Return a call on one row, and why it failed on rows below where that has no room."""
    *head, (reason, style) = parts
    whole = "".join(text for text, _ in parts)
    if not reason or display_width(whole) <= width:
        room, kept = width, []
        for text, each in parts:
            shown = clip_to_width(text, room) if room > 0 else ""
            room -= display_width(shown)
            kept.append((shown, each))
        return [paint(*kept)]
    rows = folded("  ", reason.removeprefix(" — "), width)
    return [*_fitted([*head, ("", "")], width, paint), *(paint((row, style)) for row in rows)]
