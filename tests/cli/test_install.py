"""`ragmem install` and `uninstall`: other agents' settings, and what their hooks call."""

import json
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.cli.process import COMMAND, Ragmem

CLAUDE = """\
{
  "numStartups": 7,
  "greeting": "Grüße \U0001f33f",
  "mcpServers": {
    "other": {"command": "other", "args": []}
  }
}"""
SETTINGS = """\
{
\t"hooks": {
\t\t"SessionEnd": [{"hooks": [{"type": "command", "command": "say bye"}]}]
\t},
\t"model": "opus"
}
"""
CODEX = """\
# My own words.
model = "gpt"   # the best

[mcp_servers.other]
command = "other"

[profiles.deep]
effort = "high"
"""


@pytest.fixture
def ragmem(tmp_path: Path) -> Ragmem:
    ragmem = Ragmem(tmp_path)
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".claude.json").write_text(CLAUDE)
    (tmp_path / ".claude" / "settings.json").write_text(SETTINGS)
    (tmp_path / ".codex" / "config.toml").write_text(CODEX)
    return ragmem


def _files(ragmem: Ragmem) -> dict[str, bytes]:
    names = (".claude.json", ".claude/settings.json", ".codex/config.toml")
    return {name: (ragmem.home.parent / name).read_bytes() for name in names}


def _claude(ragmem: Ragmem) -> tuple[Any, Any]:
    files = _files(ragmem)
    return json.loads(files[".claude.json"]), json.loads(files[".claude/settings.json"])


def test_claude_code_gets_the_tools_and_hooks_and_gives_all_back(ragmem: Ragmem) -> None:
    before = _files(ragmem)
    done = ragmem.run("install", "claude-code", "--yes")
    assert done.code == 0, done.err
    assert '+    "ragmem": {' in done.out
    document, settings = _claude(ragmem)
    assert list(document) == ["numStartups", "greeting", "mcpServers"]
    entry = document["mcpServers"]["ragmem"]
    assert entry["args"][-1] == "mcp"
    assert entry["env"] == {"RAGMEM_HOME": str(ragmem.home)}
    assert "Grüße" in _files(ragmem)[".claude.json"].decode()
    assert settings["hooks"]["SessionEnd"][0]["hooks"][0]["command"] == "say bye"
    assert settings["hooks"]["SessionEnd"][1]["hooks"][0]["command"].endswith(" hook session-end")
    assert settings["hooks"]["UserPromptSubmit"][0]["hooks"][0]["command"].endswith(" hook prompt")
    assert b'\n\t"model"' in _files(ragmem)[".claude/settings.json"]

    written = _files(ragmem)
    again = ragmem.run("install", "claude-code", "--yes")
    assert (again.code, again.out) == (0, "claude-code knows of this memory already.\n")
    assert _files(ragmem) == written

    assert ragmem.run("uninstall", "claude-code", "--yes").code == 0
    assert _files(ragmem) == before
    assert "does not know" in ragmem.run("uninstall", "claude-code", "--yes").out


def test_codex_keeps_its_comments_and_gives_all_back(ragmem: Ragmem) -> None:
    before = _files(ragmem)
    assert ragmem.run("install", "codex", "--yes").code == 0
    text = _files(ragmem)[".codex/config.toml"].decode()
    assert "# My own words." in text
    assert '"gpt"   # the best' in text
    servers = tomllib.loads(text)["mcp_servers"]
    assert servers["other"] == {"command": "other"}
    assert servers["ragmem"]["args"][-1] == "mcp"
    assert tomllib.loads(text)["profiles"] == {"deep": {"effort": "high"}}
    assert "already" in ragmem.run("install", "codex", "--yes").out
    assert ragmem.run("uninstall", "codex", "--yes").code == 0
    assert _files(ragmem) == before


def test_what_others_changed_since_stays(ragmem: Ragmem) -> None:
    for client in ("claude-code", "codex"):
        assert ragmem.run("install", client, "--yes").code == 0
    claude = ragmem.home.parent / ".claude.json"
    claude.write_text(claude.read_text().replace(": 7", ": 8"))
    codex = ragmem.home.parent / ".codex" / "config.toml"
    codex.write_text(codex.read_text() + '\n[new]\nkey = "kept"\n')
    for client in ("claude-code", "codex"):
        assert ragmem.run("uninstall", client, "--yes").code == 0
    document, settings = _claude(ragmem)
    assert document == {**json.loads(CLAUDE), "numStartups": 8}
    assert settings == json.loads(SETTINGS)
    assert tomllib.loads(codex.read_text()) == {**tomllib.loads(CODEX), "new": {"key": "kept"}}
    assert "# My own words." in codex.read_text()


def test_files_that_were_not_there_go_again_and_links_stay(ragmem: Ragmem) -> None:
    home = ragmem.home.parent
    (home / ".claude" / "settings.json").unlink()
    (home / ".codex" / "config.toml").rename(home / "dotfile.toml")
    (home / ".codex" / "config.toml").symlink_to(home / "dotfile.toml")
    (home / "dotfile.toml").chmod(0o644)
    for client in ("claude-code", "codex"):
        assert ragmem.run("install", client, "--yes").code == 0
    assert (home / ".claude" / "settings.json").exists()
    assert (home / ".codex" / "config.toml").is_symlink()
    assert (home / "dotfile.toml").stat().st_mode & 0o777 == 0o644
    for client in ("claude-code", "codex"):
        assert ragmem.run("uninstall", client, "--yes").code == 0
    assert not (home / ".claude" / "settings.json").exists()
    assert (home / "dotfile.toml").read_text() == CODEX


def test_hooks_can_be_left_out(ragmem: Ragmem) -> None:
    assert ragmem.run("install", "claude-code", "--no-hooks", "--yes").code == 0
    assert _files(ragmem)[".claude/settings.json"].decode() == SETTINGS


def test_nothing_is_written_where_nobody_says_so_or_a_file_is_broken(ragmem: Ragmem) -> None:
    before = _files(ragmem)
    done = ragmem.run("install", "codex")
    assert done.code == 2
    assert "[mcp_servers.ragmem]" in done.out
    assert "--yes" in done.err
    assert _files(ragmem) == before
    (ragmem.home.parent / ".claude.json").write_text('{"mcpServers": [')
    (ragmem.home.parent / ".codex" / "config.toml").write_text("mcp_servers = 7\n")
    broken = _files(ragmem)
    for client, why in (("claude-code", "not valid JSON"), ("codex", "is no table")):
        done = ragmem.run("install", client, "--yes")
        assert done.code == 2
        assert why in done.err
        assert str(ragmem.home.parent) in done.err
    assert _files(ragmem) == broken


def test_a_secret_beside_the_change_is_not_shown(ragmem: Ragmem) -> None:
    secret = "sk-ant-" + "api03-" + "A1b2" * 20
    claude = ragmem.home.parent / ".claude.json"
    claude.write_text(json.dumps({"apiKey": secret, "mcpServers": {}}, indent=2))
    done = ragmem.run("install", "claude-code", "--yes")
    assert done.code == 0
    assert secret not in done.out
    assert secret in claude.read_text()


def _hooked(ragmem: Ragmem, name: str, event: object) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [*COMMAND, "hook", name],
        input=event if isinstance(event, bytes) else json.dumps(event).encode(),
        env=ragmem.env,
        cwd=ragmem.home.parent,
        capture_output=True,
        timeout=60,
    )


def test_a_hook_adds_what_bears_on_a_prompt_and_is_silent_otherwise(
    ragmem: Ragmem, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"cwd": str(ragmem.project), "prompt": "Who replaced the valve?"}
    assert _hooked(ragmem, "prompt", asked).stdout == b""
    assert ragmem.run("memory", "add", "The valve was replaced by Ada").code == 0
    # On a machine that is busy it may say nothing, in time.
    told = [_hooked(ragmem, "prompt", asked) for _ in range(5)]
    assert {(each.returncode, each.stderr) for each in told} == {(0, b"")}
    assert any(b"The valve was replaced by Ada" in each.stdout for each in told)
    for name, event in (
        ("prompt", b"no json"),
        ("prompt", {"cwd": 7}),
        ("prompt", {"cwd": "/nowhere", "prompt": "valve"}),
        ("unknown", asked),
        ("session-end", {"cwd": "", "transcript_path": "-relative"}),
    ):
        done = _hooked(ragmem, name, event)
        assert (done.returncode, done.stderr) == (0, b"")
    (ragmem.home / "ragmem.toml").write_text("broken")
    assert _hooked(ragmem, "prompt", asked).returncode == 0
