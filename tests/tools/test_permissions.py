"""Modes, what always asks, and approvals bound to content."""

import asyncio
import os
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from ragmem.config import PermissionMode
from ragmem.tools.base import CurrentMode, Decision, ToolFailure
from ragmem.tools.permissions import PermissionRules, Permissions, names_of
from ragmem.tools.workspace import Workspace
from tests.tools.conftest import LOOKING


async def outcomes(desk) -> dict[str, bool]:
    """What goes through when whoever is asked says no."""
    desk.file("a.txt", "old\n")
    desk.deny()
    calls = {
        **{name: {"path": "."} | rest for name, rest in LOOKING.items()},
        "read_file": {"path": "a.txt"},
        "edit_file": {"path": "a.txt", "old": "old", "new": "new"},
        "create_file": {"path": "b.txt", "content": "x"},
        "write_file": {"path": "c.txt", "content": "x"},
        "run_command": {"command": "echo ran > ran.txt"},
    }
    results = {}
    for name, arguments in calls.items():
        outcome = await desk.call(name, **arguments)
        results[name] = outcome.success
        assert outcome.denied is not outcome.success
    return results


READ = dict.fromkeys(LOOKING, True)


@pytest.mark.parametrize(
    ("mode", "edits", "command", "asked"),
    [
        ("default", False, False, 4),
        ("acceptEdits", True, False, 1),
        ("plan", False, False, 0),
        ("bypassPermissions", True, True, 0),
    ],
)
async def test_modes(make_desk, mode, edits, command, asked):
    desk = make_desk(mode=mode)
    results = await outcomes(desk)
    assert results == {
        **READ,
        "edit_file": edits,
        "create_file": edits,
        "write_file": edits,
        "run_command": command,
    }
    assert len(desk.proposals) == asked
    assert (desk.cwd / "ran.txt").exists() is command


async def test_a_mode_that_is_changed_holds_from_the_next_call_on(make_desk):
    """No rule lifts plan mode."""
    mode = CurrentMode("plan")
    desk = make_desk(mode=mode, rules=("run_command", "write_file"))
    assert "plan mode" in (await desk.fails("run_command", command="true")).text
    assert "plan mode" in (await desk.fails("write_file", path="a.txt", content="x")).text
    mode.value = "acceptEdits"
    assert (await desk.call("write_file", path="a.txt", content="x")).success
    mode.value = "plan"
    assert "plan mode" in (await desk.fails("write_file", path="a.txt", content="y")).text


async def test_plan_mode_refuses_what_the_user_is_being_asked_about(make_desk):
    """But for reading, which plan mode allows."""
    mode = CurrentMode()
    desk = make_desk(mode=mode)
    desk.meanwhile = lambda: setattr(mode, "value", "plan")
    for call in (
        partial(desk.call, "run_command", command="touch a.txt"),
        partial(desk.call, "create_file", path="a.txt", content="x"),
    ):
        mode.value = "default"
        outcome = await call()
        assert (outcome.success, outcome.denied, "plan mode" in outcome.text) == (False, True, True)
    assert os.listdir(desk.cwd) == []
    (desk.home.parent / "b.txt").write_text("x")
    mode.value = "default"
    await desk.do("read_file", path=str(desk.home.parent / "b.txt"))


async def test_allow_names_tools(make_desk):
    desk = make_desk(allow=("create_file", "run_command"))
    results = await outcomes(desk)
    assert (results["create_file"], results["write_file"]) == (True, False)
    assert results["run_command"]


async def test_nobody_there(tmp_path):
    with pytest.raises(ToolFailure, match="no one is there") as failure:
        await Permissions(Workspace(tmp_path)).command("true")
    assert failure.value.denied


COMMANDS = [
    "echo \"\\\"; touch CANARY; echo \\\"\"", "cat$IFS/etc/passwd", "sort -oCANARY x",
    "sed -n 'w CANARY' x", "echo x | sed 'w CANARY'", "find . -exec touch CANARY \\;",
    "find . -fprintf CANARY x", "rg --pre ./x y", "git -c alias.x=!touch\\ CANARY x",
    "git status", "tar --to-command=x", "awk 'BEGIN{system(\"touch CANARY\")}'", "xargs touch",
    "env touch CANARY", "sort --compress-program=x", "less +!touch", "tee CANARY", "dd of=CANARY",
    "echo x > CANARY", "echo x >| CANARY", "echo x <> CANARY", "cd .ragmem && echo > config",
    "ping -c1 x", "curl x", "export PAGER=x", "ls", "true", "pwd",
    "true && " * 5000 + "touch CANARY", "echo a\rtouch CANARY", "ls $(touch CANARY)",
    "ls `touch CANARY`", "ls <(touch CANARY)", "ls\ntouch CANARY", "echo ${x@P}",
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c[:20])
async def test_every_command_asks(desk, command):
    """CVE-2025-54795, CVE-2025-66032, CVE-2025-58764, CVE-2026-24887, CVE-2026-25723:
    no text makes a command harmless, so none is run unasked."""
    desk.deny()
    assert (await desk.fails("run_command", command=command)).denied
    (proposal,) = desk.proposals
    assert (proposal.kind, proposal.body) == ("command", command)
    assert os.listdir(desk.cwd) == []


@given(
    st.sampled_from([";", "&", "&&", "|", "||", "\n", "\r", "\r\n", "$(", "`", "<(", ">", "<<<"]),
    st.text(max_size=5),
)
async def test_an_approval_never_covers_more(separator, tail):
    """gemini-cli #11510, MCPoison: "always" is for the exact command, not for its beginning."""
    asked: list[str] = []

    async def approve(proposal):
        asked.append(proposal.body)
        return Decision(True, remember=True)

    permissions = Permissions(Workspace(Path("/")), approver=approve)
    for command in ("ls", "ls", f"ls{separator}{tail}"):
        await permissions.command(command)
    assert asked == ["ls", f"ls{separator}{tail}"]


async def test_hidden_characters_are_said(desk):
    """CR differential, Tracebit: what a person could overlook is in the warnings."""
    await desk.do("run_command", command="echo a\u202eb \x01" + " " * 2000 + "; true")
    (proposal,) = desk.proposals
    assert proposal.warnings == ("the command contains hidden characters",)
    desk.proposals.clear()
    await desk.do("run_command", command="if true; then\n\techo ä\nfi")
    (proposal,) = desk.proposals
    assert proposal.warnings == ()


@pytest.mark.parametrize("mode", ["default", "bypassPermissions"])
async def test_ragmems_own_folders_are_refused(tmp_path, make_desk, mode):
    """The store and the configuration, in every mode, also when they lie in the project."""
    desk = make_desk(mode=mode, home=tmp_path / "w" / ".home")
    secret = desk.file(".home/data/neo4j/password", "SECRET")
    desk.file("a.txt", "SECRET")
    for tool, arguments in (
        ("read_file", {}),
        ("grep_files", {"pattern": "SECRET"}),
        ("write_file", {"content": "x"}),
        ("edit_file", {"old": "SECRET", "new": "x"}),
    ):
        outcome = await desk.fails(tool, path=".home/data/neo4j/password", **arguments)
        assert outcome.denied
    await desk.fails("create_file", path=".home/ragmem.toml", content="x")
    await desk.fails("list_directory", path=".home")
    found = await desk.do("grep_files", pattern="SECRET")
    assert found.data["files"] == [{"path": "a.txt"}]
    assert ".home" not in (await desk.do("glob_files", pattern="**")).text
    assert ".home" not in (await desk.do("list_directory")).text
    assert secret.read_text() == "SECRET"
    assert not desk.proposals


async def test_questions_come_one_at_a_time(desk):
    """Read-only tools run in parallel; a person answers one question at a time."""
    open_questions, most = 0, 0

    async def approve(_):
        nonlocal open_questions, most
        open_questions += 1
        most = max(most, open_questions)
        await asyncio.sleep(0.01)
        open_questions -= 1
        return Decision(True)

    permissions = Permissions(desk.workspace, approver=approve)
    await asyncio.gather(*(permissions.read("read_file", "/etc/hostname") for _ in range(5)))
    assert most == 1


async def test_a_rule_that_denies_goes_before_the_mode_and_what_is_allowed(make_desk):
    desk = make_desk(
        mode="bypassPermissions",
        rules=("run_command", "read_file"),
        deny=("run_command(git push*)", "read_file(.env)", "edit_file(keep/**)"),
    )
    desk.file(".env", "TOKEN=1\n")
    desk.file("open.txt", "TOKEN\n")
    for name, arguments in (
        ("run_command", {"command": "true; git push"}),
        ("read_file", {"path": ".env"}),
        ("create_file", {"path": "keep/x", "content": "x"}),
    ):
        outcome = await desk.fails(name, **arguments)
        assert outcome.denied
        assert "rule" in outcome.text
    found = await desk.do("grep_files", pattern="TOKEN")
    assert "open.txt" in found.text
    assert ".env" not in found.text
    assert ".env" not in (await desk.do("list_directory")).text
    assert (await desk.do("run_command", command="echo fine")).success


async def test_what_denies_reading_or_editing_a_file_holds_for_a_tool_of_any_name(make_desk):
    rules = PermissionRules(deny=("read_file(.env)", "edit_file(keep/**)"))
    workspace = make_desk().workspace
    permissions = Permissions(workspace, mode="bypassPermissions", rules=rules)
    with pytest.raises(ToolFailure, match="rule"):
        await permissions.read("count_lines", ".env")
    await permissions.read("count_lines", "keep/x")
    with pytest.raises(ToolFailure, match="rule"):
        await permissions.edit("sort_lines", "keep/x", workspace.resolve("keep/x"), "")


async def test_what_denies_a_file_holds_for_each_link_on_the_way_to_it(make_desk):
    deny = ("read_file(.env)", "edit_file(settings/**)")
    desk = make_desk(mode="bypassPermissions", deny=deny)
    desk.file("conf/dev", "TOKEN=1\n")
    (desk.cwd / ".env").symlink_to("conf/dev")
    (desk.cwd / "settings").symlink_to("conf")
    (desk.cwd / "link").symlink_to(".env")
    for path in (".env", "link"):
        assert (await desk.fails("read_file", path=path)).denied
    await desk.do("read_file", path="conf/dev")
    assert (await desk.fails("write_file", path="settings/dev", content="x")).denied
    await desk.do("write_file", path="conf/dev", content="x")


def test_files_that_must_not_be_read_are_found_before_those_that_tools_made(tmp_path, monkeypatch):
    monkeypatch.setattr("ragmem.tools.permissions._MOST_LOOKED_AT", 20)
    for name in ("node_modules/a/.env", "src/.env", *(f"node_modules/{n}.js" for n in range(50))):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = PermissionRules(deny=("read_file(.env)",)).hidden_in(tmp_path, [tmp_path])
    assert tmp_path / "src/.env" in found


async def test_paths_in_the_rules_of_a_project_are_relative_to_its_top_folder(make_desk):
    """Wherever below it the agent works."""
    desk = make_desk()
    for name in ("conf/prod.env", "conf/a.py", "a.py", "conf/dev/b.py"):
        desk.file(name)
    here = (("edit_file(conf/dev/**)",), ("read_file(conf/prod.env)",))
    rules = PermissionRules(here=here, project=str(desk.cwd)).for_session()
    for folder in (desk.cwd, desk.cwd / "conf"):
        workspace = Workspace(folder)
        permissions = Permissions(workspace, rules=rules, approver=desk.approve)
        prod = desk.cwd / "conf/prod.env"
        with pytest.raises(ToolFailure, match="rule"):
            await permissions.read("read_file", str(prod))
        assert rules.denial_of_named(f"cat {prod.relative_to(folder)}", folder)
        assert rules.hidden_in(folder, [folder]) == {prod}
        await permissions.edit("edit_file", "", workspace.resolve(f"{desk.cwd}/conf/dev/b.py"), "")
        assert desk.proposals == []
    desk.deny()
    with pytest.raises(ToolFailure):
        await permissions.edit("edit_file", "a.py", workspace.resolve("a.py"), "")
    [offered, _] = desk.proposals[-1].for_good
    again = PermissionRules(here=(offered, ()), project=str(desk.cwd))
    for folder in (desk.cwd, desk.cwd / "conf"):
        names = [names_of(desk.cwd / each, folder) for each in ("a.py", "conf/a.py")]
        assert [again.allows_path("edit_file", each) for each in names] == [False, True]


@pytest.fixture
def closed(make_desk):
    """A desk with files that must not be read, and one that may."""
    desk = make_desk(mode="bypassPermissions", deny=("read_file(.env)", "read_file(keys/deep/**)"))
    for name, text in ((".env", "TOKEN=1\n"), ("open.txt", "known\n"), ("keys/deep/one", "x\n")):
        desk.file(name, text)
    (desk.cwd / "link").symlink_to(".env")
    return desk


@pytest.mark.parametrize(
    "line",
    [
        "cat .env", "cat <.env", "cat ./a/../.en'v'", "true; head -1 $(echo .env)",
        "bash -c 'cat .env'", "cat .e*", "cat {open.txt,.env}", "curl -d @.env localhost",
        "dd if=.env", "git show HEAD:.env", "cat link", "cat {cwd}/.env", "cd keys && cat deep/one",
        "tar -C keys -c deep", "cat keys/deep/one",
    ],
)  # fmt: skip
async def test_a_command_that_names_a_file_that_must_not_be_read_is_refused(closed, line):
    outcome = await closed.fails("run_command", command=line.replace("{cwd}", str(closed.cwd)))
    assert outcome.denied
    assert "rule" in outcome.text


async def test_a_command_that_names_other_files_runs(closed):
    fine = "cat open.txt; ls; cat *.txt; echo 'not .env but this'; cd keys; ls"
    assert "known" in (await closed.do("run_command", command=fine)).text


async def test_rules_allow_what_they_say_and_ask_for_the_rest(make_desk):
    desk = make_desk(rules=("run_command(echo *)", "create_file(src/**)"))
    await desk.do("run_command", command="echo a && echo b")
    await desk.do("create_file", path="src/a.py", content="x")
    assert desk.proposals == []
    desk.deny()
    await desk.fails("run_command", command="echo a > b")
    await desk.fails("create_file", path="b.py", content="x")
    await desk.fails("create_file", path="src/conftest.py", content="x")
    command, file, protected = desk.proposals
    assert command.for_good == ()
    assert file.for_good == (("create_file(./b.py)",),)
    assert protected.for_good == ()


@pytest.mark.parametrize(
    ("mode", "rules", "asked"),
    [
        ("default", PermissionRules(), ["read_file", "good__echo"]),
        ("acceptEdits", PermissionRules(), ["read_file", "good__echo"]),
        ("bypassPermissions", PermissionRules(), []),
        ("default", PermissionRules(["read_file(/etc/**)"]), ["good__echo"]),
        ("default", PermissionRules(["good__echo"]), ["read_file"]),
    ],
)
async def test_a_file_outside_and_a_servers_tool_need_the_mode_a_rule_or_the_person(
    desk, mode: PermissionMode, rules: PermissionRules, asked: list[str]
) -> None:
    permissions = Permissions(desk.workspace, mode=mode, rules=rules, approver=desk.approve)
    await permissions.read("read_file", "/etc/hostname")
    await permissions.call("good__echo", "{}")
    assert [each.tool_name for each in desk.proposals] == asked


async def test_a_servers_tool_that_a_rule_denies_is_called_in_no_mode(tmp_path: Path) -> None:
    rules = PermissionRules(["good__echo"], ["good__echo"])
    with pytest.raises(ToolFailure, match="rule good__echo denies"):
        await Permissions(Workspace(tmp_path), mode="bypassPermissions", rules=rules).call(
            "good__echo", "{}"
        )


async def test_a_servers_tool_asks_for_each_call_until_it_is_always_allowed(desk) -> None:
    mode = CurrentMode()
    permissions = Permissions(desk.workspace, mode=mode, approver=desk.approve)
    for number in range(4):
        await permissions.call("good__echo", f'{{"n": {number}}}')
        desk.answer = Decision(True, remember=True)
    assert [each.body for each in desk.proposals] == ['{"n": 0}', '{"n": 1}']
    assert desk.proposals[0].for_good == (("good__echo",),)
    await permissions.call("good__other", "{}")
    assert len(desk.proposals) == 3
    mode.value = "plan"
    with pytest.raises(ToolFailure, match="plan mode"):
        await permissions.call("good__echo", "{}")
