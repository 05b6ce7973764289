"""Which files a tool call of another agent touched."""

import pytest

from ragmem.importers.session_parser import arguments_json, found_by, touched

PATCH = """\
*** Begin Patch
*** Delete File: a.py
*** Update File: b.py
*** Move to: c.py
*** End Patch"""


@pytest.mark.parametrize(
    ("name", "arguments", "found"),
    [
        ("Read", {"file_path": "/x/a.py"}, ["read /x/a.py"]),
        ("NotebookEdit", {"notebook_path": "n.ipynb"}, ["write /w/n.ipynb"]),
        ("MultiEdit", {"file_path": "a.py", "edits": []}, ["write /w/a.py"]),
        ("Glob", {"pattern": "*.py", "path": "src"}, ["list /w/src"]),
        ("Grep", {"pattern": "x"}, []),
        ("read_file", {"file_path": "/x/a.py"}, ["read /x/a.py"]),
        ("list_dir", {"dir_path": "/x"}, ["list /x"]),
        ("apply_patch", {"input": PATCH}, ["write /w/a.py", "write /w/b.py", "write /w/c.py"]),
        ("shell", {"command": ["apply_patch", PATCH]}, ["write /w/a.py"]),
        ("Bash", {"command": f"apply_patch <<'EOF'\n{PATCH}\nEOF"}, ["write /w/a.py"]),
        ("Bash", {"command": "cat a.py b.py"}, ["read /w/a.py", "read /w/b.py"]),
        ("exec_command", {"cmd": "head -n 20 a.py", "workdir": "/v"}, ["read /v/a.py"]),
        ("shell", {"command": ["bash", "-lc", "sed -n '1,9p' 'a b.py'"]}, ["read /w/a b.py"]),
        ("Bash", {"command": "sed -i s/a/b/ a.py"}, []),
        ("Bash", {"command": "cat $HOME/.x"}, []),
        ("Bash", {"command": "cat a.py | sh"}, []),
        ("Bash", {"command": "cat 'a.py"}, []),
        ("Bash", {"command": 7}, []),
        ("Read", {"file_path": ["a.py"]}, []),
        ("Read", {"file_path": "x" * 5000}, []),
        ("gnome", {"file_path": "a.py"}, []),
    ],
)
def test_arguments_name_files(name: str, arguments: dict[str, object], found: list[str]) -> None:
    """Only what is certain: of a command that is more than plain, nothing is known."""
    told = [f"{each.access} {each.path}" for each in touched(name, arguments, "/w")]
    assert told[: len(found) or None] == found


def test_what_a_search_found() -> None:
    """Its structured answer lists the files."""
    answer = {"filenames": ["a.py", 7, "b.py"]}
    assert [each.path for each in found_by("Grep", answer)] == ["a.py", "b.py"]
    assert found_by("Read", answer) == []


def test_a_number_that_is_none_costs_no_other_argument() -> None:
    """Agents in JavaScript and Python write such."""
    told = arguments_json('{"path": "a.py", "limit": 1e999}')
    assert told == '{"path":"a.py","limit":null}'
