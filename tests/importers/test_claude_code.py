"""Session files of Claude Code, of several versions, become turns."""

import tempfile
from datetime import timedelta
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from tests.importers.reading import AUTUMN, LATEST, NOW, SPRING, Read, asked, lines


def test_one_block_a_line() -> None:
    """Early 2025: a message of the model on several lines, a subagent in the same file."""
    read = Read("claude-code", SPRING)
    assert read.drawn == snapshot("""\
user: Which ferns in plants.txt like shade? 🌿
0 says: I'll read the list.
0 Read {"file_path": "/home/ana/garden/plants.txt"}
  |      1→lady fern: shade
  |      2→bracken: sun
file: read /home/ana/garden/plants.txt
reasoning: The list will tell.
assistant: The lady fern does.
completed claude-sonnet-4-20250514 2 (8090, 4060, 68)

user: Now write that into notes.md
0 Write! {"file_path": "/home/ana/garden/notes.md", "content": "Lady fern: shade.\\n"}
  | The user doesn't want to proceed with this tool use.
interrupted claude-sonnet-4-20250514 1 (4126, 4090, 40)\
""")
    assert (read.facts.cwd, read.facts.title) == ("/home/ana/garden", "Which ferns like shade")
    assert dict(read.tally.left_out) == {"subagent messages": 2}
    first = read.puts[0].turn
    assert first.started_at.isoformat() == "2025-05-26T07:27:40.079000+00:00"
    assert first.finished_at == first.started_at + timedelta(seconds=10)
    assert first.tool_calls[0].duration_ms == 1000


def test_commands_compaction_images() -> None:
    """Late 2025: only what the person typed is theirs; what the agent put beside it is not."""
    read = Read("claude-code", AUTUMN)
    assert read.drawn == snapshot("""\
user: What is wrong with this bed?

[image]
0 says: I search in two places.
0 Grep {"pattern": "slug", "output_mode": "files_with_matches"}
  | Found 2 files
  | beds/north.txt
  | slugs.md
0 Bash {"command": "cat beds/north.txt", "description": "Show the bed"}
  | hosta (eaten)
file: search beds/north.txt
file: search slugs.md
file: read /home/ana/garden/beds/north.txt
assistant: Slugs ate the hosta.
completed claude-opus-4-1-20250805 2 (18308, 18200, 102)

user: /protect the hosta
0 Edit
  file_path: /home/ana/garden/beds/north.txt
  old_string: hosta (eaten)
  new_string: hosta (copper ring)
  | The file has been updated.
  | [image]
file: write /home/ana/garden/beds/north.txt
failed claude-opus-4-1-20250805 1 (9405, 9400, 70)\
""")
    assert dict(read.tally.left_out) == snapshot(
        {
            "file snapshots": 1,
            "context that the agent added": 4,
            "agent commands": 1,
            "system notices": 1,
            "agent notices in place of an answer": 1,
        }
    )


def test_queue_titles_attachments() -> None:
    """2026: a prompt that came in the midst of a turn, the person's own title, a new kind."""
    read = Read("claude-code", LATEST)
    assert read.drawn == snapshot("""\
user: Water the ferns each Monday.
0 mcp__calendar__add_event {"day": "Monday"}
  | added
interrupted claude-opus-4-7 1 (102, 100, 20)

user: And the hosta too.
assistant: Both, each Monday.
completed claude-opus-4-7 1 (132, 130, 9)\
""")
    assert read.facts.title == "Mondays"
    assert dict(read.tally.unknown) == {"garden-gnome": 1}
    assert dict(read.tally.left_out) == snapshot(
        {
            "the agent's bookkeeping": 4,
            "context that the agent added": 2,
            "unreadable reasoning": 1,
            "system notices": 1,
        }
    )


def test_a_turn_that_may_go_on_is_not_complete(tmp_path: Path) -> None:
    """Nothing says that it has ended, and its last word is fresh: the next import completes it."""
    file = _session(tmp_path, said("Perhaps more follows."))
    fresh = Read("claude-code", file, now=NOW + timedelta(minutes=1))
    assert fresh.puts[0].turn.status == "interrupted"
    later = Read("claude-code", file, now=NOW + timedelta(hours=3))
    assert later.puts[0].turn.status == "completed"
    ended = Read("claude-code", _session(tmp_path, said("Done.", "end_turn")), now=NOW)
    assert ended.puts[0].turn.status == "completed"


def test_an_answer_after_a_failed_try(tmp_path: Path) -> None:
    """An error of the provider fails a turn only where nothing comes after it."""
    failed = said("API Error") | {"isApiErrorMessage": True}
    assert Read("claude-code", _session(tmp_path, failed)).puts[0].turn.status == "failed"
    again = Read("claude-code", _session(tmp_path, failed, said("Here I am.", "end_turn")))
    assert again.told[0]["status"] == "completed"
    assert again.told[0]["assistant"] == "Here I am."


@pytest.mark.parametrize(
    ("prompt", "told"),
    [
        ("<div>is this right?</div>", "<div>is this right?</div>"),
        ("Hello <system-reminder>be good</system-reminder>there", "Hello there"),
        ("Hello " + "<system-reminder>" * 100_000, "Hello " + "<system-reminder>" * 100_000),
        ("c \ud83c\0", "c \ufffd"),
    ],
    ids=["a person's own tags", "the agent's", "tags that never close", "what no store takes"],
)
def test_what_a_person_wrote_is_told(tmp_path: Path, prompt: str, told: str) -> None:
    """Without what the agent put into it, in one pass, and as each store and JSON takes it."""
    read = Read("claude-code", _session(tmp_path, said("a\0b \ud83c"), prompt=prompt))
    assert str(read.told[0]["user"]).startswith(told[:10_000])
    assert len(str(read.told[0]["user"])) <= len(told)
    assert read.told[0]["assistant"] == "ab \ufffd"


def test_without_a_folder_the_name_tells(tmp_path: Path) -> None:
    """Of a file whose records name no folder."""
    folder = tmp_path / "-home-ana-garden"
    folder.mkdir()
    assert Read("claude-code", _session(folder, said("Yes."))).facts.cwd == "/home/ana/garden"


def said(words: str, stop: str | None = None) -> dict[str, object]:
    """A record of the model."""
    message = {"role": "assistant", "model": "m", "content": words, "stop_reason": stop}
    return {"type": "assistant", "message": message, "timestamp": NOW.isoformat()}


def _session(folder: Path, *answers: dict[str, object], prompt: str = "Well?") -> Path:
    return lines(folder / "session.jsonl", [asked(prompt, timestamp=NOW.isoformat()), *answers])


def queue_of(*records: tuple[str, str], later_s: int = 0) -> list[tuple[str, str]]:
    """Prompts and answers of a log of `user`, `typed` (attached), `works`, `says`, operations."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "0f0f0f0f-0000-4000-8000-000000000000.jsonl"
        log = []
        for number, (kind, words) in enumerate(records):
            at = (NOW - timedelta(hours=1) + timedelta(seconds=number)).isoformat()
            record: dict[str, object] = {"timestamp": at, "cwd": "/home/ana/garden"}
            if kind == "user":
                record |= asked(words, f"u{number}")
            elif kind == "typed":
                prompt = {"type": "queued_command", "prompt": words, "commandMode": "prompt"}
                record |= {"type": "attachment", "uuid": f"u{number}", "attachment": prompt}
            elif kind in ("works", "says"):
                stop = "end_turn" if kind == "says" else None
                message = {"id": f"m{number}", "content": words, "stop_reason": stop}
                record |= {"type": "assistant", "uuid": f"u{number}", "message": message}
            else:
                record |= {"type": "queue-operation", "operation": kind}
                record |= {"content": words} if words else {}
            log.append(record)
        told = Read("claude-code", lines(file, log), now=NOW + timedelta(seconds=later_s)).told
    return [(each["user"], each.get("assistant", "")) for each in told]


def test_prompts_of_the_queue_are_kept_once() -> None:
    """Typed while the agent worked: told by a record of their own, early, late, or never."""
    begin = [("user", "Water them"), ("says", "I do.")]
    first, later, echo = ("Water them", "I do."), ("enqueue", "And the moss"), "And the moss"
    for records, expected in (
        ([later, ("remove", ""), ("says", "Too.")], [(echo, "Too.")]),
        ([later, ("dequeue", ""), ("user", echo), ("says", "Too.")], [(echo, "Too.")]),
        ([later, ("typed", echo), ("remove", ""), ("says", "Too.")], [(echo, "Too.")]),
        ([later, ("remove", ""), ("typed", echo), ("says", "Too.")], [(echo, "Too.")]),
        ([later, ("remove", ""), ("says", "Too."), ("typed", echo)], [(echo, "Too.")]),
        ([later, ("popAll", ""), ("user", "Never mind"), ("says", "Fine.")],
         [("Never mind", "Fine.")]),
        ([later, ("says", "Still at it.")], []),
        ([("enqueue", "One"), ("enqueue", "Two"), ("typed", "One"), ("remove", ""), ("remove", ""),
          ("says", "Both.")], [("One\n\nTwo", "Both.")]),
        ([("enqueue", "<task-notification>x</task-notification>"), ("dequeue", ""),
          ("says", "Seen.")], []),
    ):  # fmt: skip
        told = queue_of(*begin, *records)
        assert told[0][0] == first[0]
        assert told[1:] == expected, records


def test_a_prompt_that_was_taken_in_the_midst_of_a_turn_stands_in_it() -> None:
    """The model answers to both at once, also where the file ends before it does."""
    typed = [
        ("user", "Water them"),
        ("works", "I do."),
        ("enqueue", "And the moss"),
        ("remove", ""),
    ]
    both = "Water them\n\nAnd the moss"
    assert queue_of(*typed) == [(both, "I do.")]
    assert queue_of(*typed, ("says", "Done.")) == [(both, "I do.\n\nDone.")]
    told = [*typed, ("typed", "And the moss"), ("says", "Done.")]
    assert queue_of(*told) == [("Water them", "I do."), ("And the moss", "Done.")]


def test_prompts_that_wait_when_a_session_has_ended_are_kept() -> None:
    """Nothing can tell of them any more: who typed them finds them, without an answer."""
    typed = [("user", "Water them"), ("enqueue", "And the moss"), ("says", "I do.")]
    assert queue_of(*typed) == [("Water them", "I do.")]
    assert queue_of(*typed, later_s=3600) == [("Water them", "I do."), ("And the moss", "")]
    taken_back = [*typed, ("popAll", "")]
    assert queue_of(*taken_back, later_s=3600) == [("Water them", "I do.")]
