"""Session files of Codex, of several versions, become turns."""

import json
from datetime import timedelta
from pathlib import Path

from inline_snapshot import snapshot

from ragmem.importers.importer import AGENTS, titles_beside
from tests.importers.reading import BARE, EVENTS, FIXTURES, ITEMS, NOW, Read


def test_items_alone() -> None:
    """Mid 2025: no envelope, no times, the folder only in what the model was told."""
    read = Read("codex", BARE)
    assert read.drawn == snapshot("""\
user: What grows in the north bed?
0 shell
  command: ['bash', '-lc', 'cat beds/north.txt']
  workdir: /home/ana/garden
  | hosta
  |
file: read /home/ana/garden/beds/north.txt
reasoning: **Reading the bed**
assistant: A hosta.
completed None None (None, None, None)

user: And in the south bed?
0 shell! {"command": ["cat", "beds/south.txt"]}
  | cat: beds/south.txt: No such file or directory
  |
assistant: There is no south bed.
completed None None (None, None, None)\
""")
    assert read.facts.cwd == "/home/ana/garden"
    assert read.facts.foreign_id == "5973b6c0-94b8-487b-a530-2aeb6098ae0e"
    assert dict(read.tally.left_out) == snapshot(
        {"the agent's bookkeeping": 2, "context that the agent added": 1}
    )


def test_items_and_events() -> None:
    """Late 2025: each thing is told twice; instructions of a project are never the person's."""
    read = Read("codex", EVENTS)
    assert read.drawn == snapshot("""\
user: Keep the slugs off the hosta.
0 says: I look at the bed.
0 exec_command {"cmd": "sed -n '1,20p' north.txt", "workdir": "/home/ana/garden/beds"}
  | Chunk ID: 1
  | Wall time: 0.05 seconds
  | Process exited with code 0
  | Output:
  | hosta (eaten)
0 exec_command! {"cmd": "ls nothing | wc -l"}
  | Chunk ID: 2
  | Process exited with code 2
  | Output:
  | ls: nothing
1 apply_patch
  input: *** Begin Patch
*** Update File: beds/north.txt
@@
-hosta (eaten)
+hosta (copper ring)
*** Add File: slugs.md
+Copper rings.
*** End Patch

  | Success. Updated the following files:
  | A slugs.md
  | M beds/north.txt
  |
file: read /home/ana/garden/beds/north.txt
file: write /home/ana/garden/beds/north.txt
file: write /home/ana/garden/slugs.md
reasoning: **Looking**
assistant: A copper ring lies around it.
completed gpt-5.2-codex 2 (11000, 9000, 160)

user: And the fern?
interrupted None None (None, None, None)\
""")
    assert dict(read.tally.left_out) == snapshot(
        {
            "context that the agent added": 4,
            "events that repeat what is there": 3,
            "file snapshots": 1,
        }
    )
    assert dict(read.tally.unknown) == {}


def test_prompts_as_items() -> None:
    """2026: context of an unknown form is told from the prompt by the event."""
    read = Read("codex", ITEMS)
    assert read.drawn == snapshot("""\
user: Which plant is the oldest?
0 web_search {"type": "search", "query": "oldest plant"}
  |
1 exec {"input": "text(await tools.exec_command({cmd:\\"nl -ba plants.txt\\"}));"}
  | 1 yew 1820
  |
  | [image]
assistant: The yew.
completed gpt-5.6 None (None, None, None)\
""")
    assert read.facts.title == "The oldest plant"
    assert dict(read.tally.unknown) == {"response_item gnome_call": 1}


def test_keys_of_turns_do_not_depend_on_when_the_file_was_changed() -> None:
    """Of the oldest files, whose records have no times."""
    later = Read("codex", BARE, changed_at=NOW - timedelta(days=7))
    turns = [put.turn for put in Read("codex", BARE).puts]
    assert [put.turn.turn_id for put in later.puts] == [turn.turn_id for turn in turns]
    assert {turn.started_at.isoformat() for turn in turns} == {"2025-07-20T09:30:00+00:00"}


def test_without_events_what_the_model_answered_to_was_a_prompt(tmp_path: Path) -> None:
    """And what nobody answered to, in a file with envelopes, was not."""

    def line(role: str, words: str) -> str:
        item = {"type": "message", "role": role, "content": words}
        return json.dumps({"type": "response_item", "payload": item}) + "\n"

    file = tmp_path / "rollout-x.jsonl"
    file.write_text(line("user", "added") + line("user", "asked") + line("assistant", "answered"))
    read = Read("codex", file)
    assert [(turn["user"], turn["assistant"]) for turn in read.told] == [("asked", "answered")]
    file.write_text(line("user", "added"))
    assert Read("codex", file).told == []


def test_a_subagent_is_none_of_the_persons_sessions(tmp_path: Path) -> None:
    """By either form in which it is told."""
    file = tmp_path / "rollout-x.jsonl"
    for told in ({"source": {"subagent": "review"}}, {"thread_source": "subagent"}):
        file.write_text(json.dumps({"type": "session_meta", "payload": {"id": "x"} | told}))
        assert Read("codex", file).facts.subagent
    assert not Read("codex", EVENTS).facts.subagent


def test_a_session_is_known_by_the_name_of_its_file_too(tmp_path: Path) -> None:
    """When its first line is broken."""
    copy = tmp_path / EVENTS.name
    copy.write_bytes(b"{broken\n" + EVENTS.read_bytes().partition(b"\n")[2])
    whole, broken = Read("codex", EVENTS), Read("codex", copy)
    assert broken.facts.foreign_id == whole.facts.foreign_id
    assert [put.turn.turn_id for put in broken.puts] == [put.turn.turn_id for put in whole.puts]


def test_names_stand_in_an_index_beside(tmp_path: Path) -> None:
    """The last name of a session counts."""
    sessions = tmp_path / "sessions" / "2025"
    sessions.mkdir(parents=True)
    names = ("Slugs", "Snails")
    (tmp_path / "session_index.jsonl").write_text(
        "".join(json.dumps({"id": "a", "thread_name": name}) + "\n" for name in names) + "{torn"
    )
    assert titles_beside(AGENTS["codex"], sessions, []) == {"a": "Snails"}
    assert titles_beside(AGENTS["codex"], FIXTURES, []) == {}
