"""What scripts/quickstart shows: the main job with the small model, and nothing else installed."""

from pathlib import Path

import pytest

from tests.cli.process import Ragmem

pytestmark = pytest.mark.local_model


def test_a_file_is_read_and_the_next_process_remembers(tmp_path: Path) -> None:
    """A file that the question names, without a tool call; then the memory of it."""
    ragmem = Ragmem(tmp_path, {"RAGMEM_MODEL": "local/smollm2"})
    (ragmem.project / "greeting.py").write_text('def greet(name):\n    print("Hello,", name)\n')

    first = ragmem.run("ask", "What does greeting.py print?")
    assert (first.code, bool(first.out.strip())) == (0, True), first.err
    assert "can't use tools" in first.err
    (session,) = ragmem.sessions()
    shown = ragmem.run("sessions", "show", session["session_id"], "--format", "json").json
    (call,) = shown["turns"][0]["tool_calls"]
    assert (call["tool_name"], call["success"]) == ("read_file", True)
    assert "Hello" in str(call["result"])

    context = ragmem.run("context", "And before?", "-r", session["session_id"]).out
    assert "User: What does greeting.py print?" in context
    second = ragmem.run("ask", "-c", "What do you remember of our conversation?")
    assert (second.code, bool(second.out.strip())) == (0, True), second.err
    assert [s["turn_count"] for s in ragmem.sessions()] == [2]
