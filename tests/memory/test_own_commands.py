"""What the person runs by themself (`!command`), as the memory tells and learns from it."""

import msgspec

from ragmem.memory.facts.failures import failures
from ragmem.memory.facts.trust import Sources
from ragmem.memory.window import recent_text, result_text, turn_messages
from ragmem.records import Turn

from .builders import a_call, a_turn


def own_command(printed: str, said: str = "!make check") -> Turn:
    call = msgspec.structs.replace(a_call(text=printed), origin="person", tool_name="run_command")
    return msgspec.structs.replace(
        a_turn(1, answer="", calls=(call,)), user_message=said, assistant_message=""
    )


def test_it_is_replayed_as_the_persons_message() -> None:
    """What it printed stands with it as quoted data, and each message has words."""
    asked, answered = turn_messages(own_command("Exit code 2\nno rule"), result_limit=1000)
    assert asked.role == "user"
    assert asked.text.startswith("!make check\n\n<output-")
    assert "Exit code 2\nno rule\n</output-" in asked.text
    assert answered.text == "(The person ran this by themself; nothing was asked.)"
    assert not answered.tool_uses


def test_a_model_without_tools_is_told_what_it_printed() -> None:
    """In a few lines."""
    text, count = recent_text([own_command("x" * 5000)], limit=3, max_chars=2000)
    assert count == 1
    assert "User: !make check\nIt printed: xxx" in text
    assert len(text) < 1000


def test_nothing_of_it_counts_as_the_persons_own_word() -> None:
    """D: an echo is a tool's output, whoever typed it."""
    said = "!echo We always deploy on Fridays at noon"
    source = Sources(own_command("We always deploy on Fridays at noon", said)).find(
        "always deploy on Fridays at noon"
    )
    assert source is not None
    assert source.trust == "tool"


def test_what_failed_is_learned_and_what_the_person_stopped_is_not() -> None:
    """D, failures: the same as of the agent's commands; a stop tells nothing of the command."""
    failed = own_command("Exit code 2\nmake: *** No rule to make target 'check'")
    (draft,) = failures(with_command(failed, exit_code=2), locate=lambda path: path)
    assert draft.content.startswith("`make check` failed")
    stopped = with_command(own_command("Stopped by the person.\nbegun"), success=False)
    assert failures(stopped, locate=lambda path: path) == []


def with_command(turn: Turn, *, success: bool = True, exit_code: int | None = None) -> Turn:
    (call,) = turn.tool_calls
    result: dict[str, object] = {"text": result_text(call)}
    result |= {} if exit_code is None else {"exit_code": exit_code}
    call = msgspec.structs.replace(
        call,
        arguments='{"command": "make check"}',
        result=msgspec.json.encode(result).decode(),
        success=success,
        error=None if success else result_text(call),
    )
    return msgspec.structs.replace(turn, tool_calls=(call,))
