"""Rules: held against all that a command line runs, and against the whole path of a file."""

import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from ragmem.config import find_paths, load_config
from ragmem.config.file import change, change_rules
from ragmem.errors import EXIT_FAILED, ConfigError, RagmemError, UsageError
from ragmem.tools.base import ToolFailure
from ragmem.tools.bash import parse
from ragmem.tools.permissions import PermissionRules, offers_for_command, offers_for_path

ALLOWED = PermissionRules(
    [
        "run_command(git status*)",
        "run_command(pytest *)",
        "run_command(head *)",
        "run_command(echo 'a b')",
    ]
)
DENIED = PermissionRules(deny=["run_command(rm *)", "run_command(git push*)"])


@pytest.mark.parametrize(
    "line",
    [
        "git status", "git status --short", "git status 2>&1 | head -5",
        "git status 2>/dev/null && pytest -x", "pytest", "pytest -k 'a or b'",
        "(git status; pytest)", "git status # and nothing; evil", "git \\\n status", "! git status",
        "pytest $HOME/tests ${NAME}", "'git' \"status\"", 'echo "a b"',
    ],
)  # fmt: skip
def test_a_line_of_which_each_command_is_allowed_is_allowed(line: str) -> None:
    assert ALLOWED.allows_command(line)


@pytest.mark.parametrize(
    "line",
    [
        "git status; evil", "git status && evil", "git status & evil", "git status | evil",
        "git status\nevil", "git status $(evil)", 'git status "$(evil)"', 'git status "`evil`"',
        "git status <(evil)", "git status ${x:-$(evil)}", "git status ${x@P}",
        "git status $((a[$(evil)]))", "git status <<END\n$(evil)\nEND", "git status <<END\n",
        "git status <<'END'\ntext\nEND", "git status <<'X'\n\tX\ngit status '\nX\nevil #'",
        "git status <<X\na\\\nX\ngit status '\nX\nevil #'",
        "git status $(git status <<X)\ngit status '\nX\nevil #'",
        "git status <(git status <<X)\ngit status '\nX\nevil #'",
        "git status <\\\n<X\ngit status '\nX\nevil #'", "git status $['$(evil)']",
        'git status "$[$(evil)]"', "((git status '$(evil)'))",
        'git status "`git status \\"\'\\" ; evil \\"\'\\"`"', 'git status "$\\\n\\\n(evil)"',
        "git status `git status`", 'git status "$\\\n(evil)"',
        "git status `git status $\\\\\n(evil)`", "git status # \\\nevil", "git status > file",
        "git status >> file", "git status &> file", "git status >& file", "git status >&1\\",
        "git status {a,--exec=b}", "git status $'\\x3b'", "git status 'not closed",
        "git(){ evil; }; git status", "if git status; then evil; fi", "X=1 git status",
        "X=$(evil) pytest", "PATH=.", "$GIT status", "g*t status", "'git status/../evil'",
        "gitstatus", "", "# nothing", "git status " + "$(" * 40 + "evil" + ")" * 40,
    ],
)  # fmt: skip
def test_what_runs_or_writes_anything_else_is_not_allowed(line: str) -> None:
    assert not ALLOWED.allows_command(line)


@pytest.mark.parametrize(
    "line",
    [
        "rm x", "rm", "ls; rm x", "ls | xargs rm", "echo $(rm x)", "r''m x", "r\\m x", "/bin/rm x",
        "X=1 rm x", "sudo -u root rm x", "env -i nohup rm x", "bash -c 'ls; rm x'", "eval 'rm x'",
        "find . -exec rm {} \\;", "if true; then rm x; fi", "for i in a; do git push; done",
        "cat <<END\ndon't\nEND\nrm x", "echo `rm x`", "git push --force", "f() { rm x; }",
        'echo "${x:-$(rm x)}"', "time -p rm x", "function f { rm x; }; f", "coproc rm x",
        "env -S 'rm x'", "flock lock -c 'rm x'", "trap 'rm x' EXIT", "bash <<'E'\nrm x\nE",
        "bash <<< 'rm x'", "cat <<'X'\n\tX\n: '\nX\nrm x #'", "cat <<-'X'\n\tX\nrm x",
        "cat <<X\nX\ntrue\nrm x", "echo $['$(rm x)']", "echo rm x | sh", "echo 'rm x' | bash -s",
        "readarray -C 'rm x' -c 1 lines < file", "prlimit --nofile=9 rm x", "runuser -u me rm x",
        "sg users 'rm x'", "compgen -C 'rm x'", "env " * 14 + "rm x",
        "echo " + "$(" * 40 + "rm x" + ")" * 40, "git -C sub push", "git --no-pager -c a=b push",
        "git --git-dir=.git push",
    ],
)  # fmt: skip
def test_a_rule_that_denies_holds_for_any_part(line: str) -> None:
    assert DENIED.denial_of_command(line)


@pytest.mark.parametrize(
    "line",
    [
        "echo rm x", "echo '$(rm x)'", "git pull", "git -C push status", "cat <<'E'\nrm x\nE",
        "echo rm x | cat", "bash -c 'echo rm x'",
    ],
)  # fmt: skip
def test_what_is_only_spoken_of_is_not_denied(line: str) -> None:
    assert not DENIED.denial_of_command(line)


_WORDS = st.lists(
    st.text(st.sampled_from("ab'\"\\ $`;|&()<>{}*?#~=\n\t!-"), max_size=8), min_size=1, max_size=3
)


@given(_WORDS)
def test_a_clear_line_runs_in_bash_what_was_found(words: list[str]) -> None:
    """Bash itself is asked: it may run nothing but the one command that was found, if one was."""
    line = "printf '<%s>' " + " ".join(words)
    parsed = parse(line)
    if not parsed.is_clear or [each.words[0] for each in parsed.commands] != ["printf"]:
        return
    found = parsed.commands[0].words
    if any(char in line for char in "$`*?~"):
        return  # what is expanded is not compared
    script = "trap 'printf \"%s\\n\" ran >&2' DEBUG\n" + line
    done = subprocess.run(
        ["bash", "--norc", "-c", script], capture_output=True, text=True, timeout=20
    )
    if "syntax error" in done.stderr or "unexpected" in done.stderr:
        return
    assert done.stderr == "ran\n", line
    assert done.stdout == "".join(f"<{word}>" for word in found[2:] or [""]), line


_PARTS = [
    *("ok ", "ok", "evil", "evil ", "\n", " ", "'", '"', "$", "`", "(", ")", "$(", "<<X", "<<'X'"),
    *("<<-X", "X\n", "\nX\n", "\tX\n", "\\", "\\\n", "#", ";", "&", "|", "{", "}", "<", "<("),
    *("<<<", "[", "]", "$[", "=", "!", "a", "1", "${", "~", "\t", "\r", "2>&1", ">/dev/null"),
]
_ENDS = ["evil", "\nevil", "$(evil)", "\nevil #'"]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of programs that say in `ran` that they ran."""
    folder = tmp_path_factory.mktemp("programs")
    for name in ("ok", "evil"):
        (folder / name).write_text(f"#!/bin/sh\necho {name} >> {folder}/ran\n")
        (folder / name).chmod(0o755)
    return folder


@given(st.lists(st.sampled_from(_PARTS), min_size=3, max_size=14).map("".join), st.data())
def test_bash_runs_no_more_than_is_allowed(programs: Path, parts: str, data: st.DataObject) -> None:
    line = f"ok {parts}{'' if 'evil' in parts else data.draw(st.sampled_from(_ENDS))}"
    if not PermissionRules(["run_command(ok*)"]).allows_command(line):
        return
    (programs / "ran").write_text("")
    subprocess.run(
        [shutil.which("bash") or "", "--norc", "-c", line],
        env={"PATH": str(programs)},
        cwd=programs,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=20,
    )
    assert "evil" not in (programs / "ran").read_text(), line


@pytest.mark.parametrize(
    "line",
    [
        "(" * 3000 + "rm x" + ")" * 3000, "echo " + "${x:-" * 3000 + "$(rm x)",
        'echo "' + "${x:-" * 3000 + "$(rm x)", "echo " + "$[" * 3000 + "$(rm x)",
        "echo " + "$(" * 3000 + "rm x", "env " + "bash " * 5000 + "-c 'rm x'",
        "env " * 20_000 + "rm x",
    ],
    ids=["brackets", "braces", "quoted braces", "sums", "commands", "shells", "wrappers"],
)  # fmt: skip
def test_what_is_too_much_to_look_at_is_denied_and_never_allowed(line: str, tmp_path: Path) -> None:
    started = time.monotonic()
    assert DENIED.denial_of_command(line)
    assert not PermissionRules(["run_command(echo*)"]).allows_command(line)
    with pytest.raises(ToolFailure, match="more files than can be checked against it"):
        PermissionRules(deny=["read_file(.env)"]).denial_of_named(line, tmp_path)
    assert time.monotonic() - started < 60


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of more files than are looked at."""
    folder = tmp_path_factory.mktemp("files")
    for i in range(30):
        (folder / f"many/deep{i}").mkdir(parents=True)
        for j in range(200):
            (folder / f"many/deep{i}/f{j}").touch()
    return folder


@pytest.mark.parametrize(
    "line",
    [
        "echo " + " ".join(f"*/*{i}*" for i in range(9000)),
        "echo " + " ".join(map(str, range(20_000))),
        "echo " + "=".join("ab" * 20_000),
        "echo " + "*/" + "a/" * 40_000,
        "echo " + "many/*/*",
    ],
    ids=["patterns", "words", "parts", "depth", "files"],
)
def test_files_that_a_line_names_are_looked_at_within_bounds(line: str, many: Path) -> None:
    """What may mean more files than can be looked at is refused, in words that help."""
    rules = PermissionRules(deny=["read_file(.env)"])
    started = time.monotonic()
    with suppress(ToolFailure):
        assert rules.denial_of_named(line, many / "many") == ""
    with suppress(ToolFailure):
        assert rules.denial_of_named(line, many) == ""
    assert time.monotonic() - started < 60
    assert rules.denial_of_named("cat deep1/*1*", many / "many") == ""


def test_patterns_of_bash_name_what_a_rule_keeps(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/.env").touch()
    rules = PermissionRules(deny=["read_file(.env)"])
    for line in ("cat a/*/.e*", f"cat {tmp_path}/a/?/.[e]nv", "cat a/b/.en[^x]", "cat ./*/b/.*v"):
        assert rules.denial_of_named(line, tmp_path), line
    assert not rules.denial_of_named("cat a/b/*", tmp_path)
    assert rules.denial_of_named("cd a/b; cat .[e]*", tmp_path)


def test_rules_that_are_offered_allow_what_they_were_offered_for() -> None:
    assert offers_for_command("npm run lint -- --fix")[1] == ("run_command(npm run lint *)",)
    assert offers_for_command("git status -s") == (
        ("run_command(git status -s)",),
        ("run_command(git status *)",),
    )
    assert offers_for_command("curl -H 'X: sk-ant-api03-abcdEFGH1234ijkl' example.com") == ()
    for line in ("git commit -m 'it is done'", "cd 'a b' && make test", "pytest -q | head -3"):
        for rules in offers_for_command(line):
            assert PermissionRules(rules).allows_command(line)
            assert not PermissionRules(rules).allows_command(f"{line}; evil")


@pytest.mark.parametrize(
    "line",
    [
        "python x.py", "python3.12 x.py", "rm x", "bash x", "ksh x", "git", "git config a b",
        "git $X", "git -C x status", "sudo make", "timeout 60 pytest", "uv run pytest", "npx tsc",
        "npm exec tsc", "docker run x", "vim x", "strace x", "readarray -t x", "read x", "unset x",
        "hash -r", "pushd x", "jobs", "fd x", "sqlite3 x.db", "cmake .", "cp a b", "git fetch",
        "git push", "git clone x", "npm install", "pip install x", "uv add x",
    ],
)  # fmt: skip
def test_nothing_wide_is_offered_for_what_can_do_anything(line: str) -> None:
    assert len(offers_for_command(line)) == 1


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        ("git log *", "git log -1 --format=evil --output=a.sh"),
        ("git grep *", "git grep --open-files-in-pager=evil x"),
        ("git grep *", "git grep --op=evil x"),
        ("git grep *", "git grep -nOevil x"),
        ("rg *", "rg --pre ./evil x"),
        ("sort *", "sort --compress-program=evil x"),
        ("sort *", "sort -uo a.sh x"),
        ("make test *", "make test --eval '$(shell evil)'"),
        ("make test *", "make test SHELL=./evil"),
        ("go test *", "go test -exec ./evil ./..."),
        ("cargo test *", "cargo test --config x.toml"),
        ("npm test *", "npm test --script-shell=./evil"),
    ],
)
def test_the_rest_of_a_rule_is_no_option_that_runs_or_writes_more(rule: str, line: str) -> None:
    assert not PermissionRules([f"run_command({rule})"]).allows_command(line)
    assert PermissionRules(["run_command"]).allows_command(line)
    for exact in offers_for_command(line)[:1]:
        assert PermissionRules(exact).allows_command(line)


def test_the_rest_of_a_rule_is_any_other_option() -> None:
    allowed = PermissionRules(
        [f"run_command({each} *)" for each in ("git log", "git diff", "rg", "sort", "make test")]
    )
    for line in (
        "git log --oneline -5 --pretty=short -- src",
        "git diff --stat HEAD~1",
        "rg --pretty -n x | sort -u",
        "make test -j4",
    ):
        assert allowed.allows_command(line)


@pytest.mark.parametrize("line", ["ls > x", "echo $(", "a\nb", "rm *.pyc"])
def test_nothing_is_offered_that_would_not_be_exact(line: str) -> None:
    assert offers_for_command(line) == ()


def test_files_are_named_from_the_folder_or_in_full(tmp_path: Path) -> None:
    rules = PermissionRules(
        ["edit_file(src/**)", "write_file"], ["read_file(.env)", "edit_file(src/keep/**)"]
    )
    assert rules.allows_path("edit_file", ["src/a/b.py", "/w/src/a/b.py"])
    assert not rules.allows_path("edit_file", ["lib/src/a.py", "/w/lib/src/a.py"])
    assert not rules.allows_path("create_file", ["src/a.py", "/w/src/a.py"])
    assert rules.allows_path("write_file", ["anything", "/w/anything"])
    assert rules.denial_of_path("grep_files", ["deep/.env", "/w/deep/.env"]) == "read_file(.env)"
    assert rules.denial_of_path("write_file", ["src/keep/x", "/w/src/keep/x"], edits=True)
    for offered in offers_for_path("edit_file", "src/a.py"):
        assert PermissionRules(offered).allows_path("edit_file", ["src/a.py", "/w/src/a.py"])
    assert not PermissionRules(["edit_file(./a.py)"]).allows_path(
        "edit_file", ["src/a.py", "/w/src/a.py"]
    )


def test_a_pattern_for_a_tool_that_has_none_denies_all_of_its_calls() -> None:
    """What was meant to be kept from is not let through because it can't be told apart."""
    rules = PermissionRules(deny=["github__create_issue(*)"])
    assert rules.denies("github__create_issue") == "github__create_issue(*)"
    assert not rules.denies("github__list_issues")
    assert PermissionRules(deny=["remember(*)"]).denies("remember")
    assert not PermissionRules(deny=["read_file(.env)"]).denies("read_file")


def test_rules_for_no_tool_are_known() -> None:
    rules = PermissionRules(
        ["run_command(ls)", "outside_sandbox(ls)"], ["Run_command(rm*)", "here__echo", "bash(x)"]
    )
    assert rules.for_unknown_tools({"read_file"}) == ["Run_command(rm*)", "bash(x)"]
    assert rules.for_unknown_tools({"bash"}) == ["Run_command(rm*)"]


def test_what_is_no_rule_is_said_where_it_stands(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a valid rule"):
        PermissionRules(["run_command([ -f x ])", "git status*"])
    file = tmp_path / "config.toml"
    file.write_text('[permissions]\nallow = ["run_command(ls)", "git status*"]\n')
    with pytest.raises(ConfigError, match=r"config\.toml, line 2: permissions\.allow"):
        load_config(file, environ={})
    with pytest.raises(ConfigError, match="can't be set in the environment"):
        load_config(tmp_path / "none", environ={"RAGMEM_PERMISSIONS__ALLOW": "run_command"})
    with pytest.raises(ConfigError, match="can't be set in the environment"):
        load_config(tmp_path / "none", environ={"RAGMEM_PERMISSIONS__PROJECTS": "{}"})
    file.write_text('[permissions.projects.garden]\nallow = ["run_command"]\n')
    with pytest.raises(ConfigError, match="a project is identified by its folder"):
        load_config(file, environ={})


def test_rules_of_a_project_hold_there_alone_and_what_denies_goes_first(tmp_path: Path) -> None:
    """Whichever of the two is for every folder."""
    file = tmp_path / "config.toml"
    file.write_text(
        '[permissions]\nallow = ["run_command(make *)"]\ndeny = ["run_command(git push*)"]\n'
        '[permissions.projects."/w/garden/"]\n'
        'allow = ["run_command(git *)"]\ndeny = ["run_command(make clean)", "read_file(.env)"]\n'
        '[permissions.projects."~/shed"]\nallow = ["run_command"]\n'
    )
    held = load_config(file, environ={}).permissions
    assert held.of_project(str(Path.home() / "shed")).allow == ("run_command",)
    for elsewhere in ("/w", "/w/garden/deep", "/w/gardens"):
        assert held.of_project(elsewhere).allow == held.of_project(elsewhere).deny == ()
    own = held.of_project("/w/garden")
    rules = PermissionRules(held.allow, held.deny, here=(own.allow, own.deny)).for_session()
    assert rules.allows_command("git status && make all")
    assert not rules.allows_command("ls")
    assert rules.denial_of_command("git push") == "run_command(git push*)"
    assert rules.denial_of_command("make clean") == "run_command(make clean)"
    assert rules.hides(Path("/w/garden/.env"), Path("/w/garden"))
    assert not PermissionRules(held.allow, held.deny).allows_command("git status")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The settings file of a home of its own."""
    monkeypatch.setenv("RAGMEM_HOME", str(tmp_path))
    return tmp_path / "ragmem.toml"


def test_a_project_is_the_same_however_its_folder_is_written(file: Path) -> None:
    garden, link = file.with_name("garden"), file.with_name("link")
    garden.mkdir()
    link.symlink_to(garden)
    both = f'deny = ["a"]\n[permissions.projects."{garden}/../garden"]\ndeny = ["b", "c"]\n'
    file.write_text(f'[permissions.projects."{link}"]\n{both}')
    assert load_config(file, environ={}).permissions.of_project(str(garden)).deny == ("a", "b", "c")
    changed = change_rules("deny", project=str(garden), add=["d"], remove=["b"])
    assert changed == ("a", "d", "c")
    assert load_config(file, environ={}).permissions.of_project(str(garden)).deny == changed


@pytest.mark.parametrize(
    "text", ["[ui]\ncolor = \n", "permissions = 3\n", "[permissions]\nprojects = 1\n"]
)
def test_no_rule_is_written_into_a_file_with_a_mistake(file: Path, text: str) -> None:
    file.write_text(text)
    for project in ("", "/w/garden"):
        with pytest.raises(ConfigError):
            change_rules("allow", project=project, add=["run_command(ls)"])
    assert file.read_text() == text


def test_rules_saved_by_several_chats_at_once_are_all_kept(file: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: change_rules("deny", add=[f"run_command({n})"]), range(20)))
    assert len(load_config(file, environ={}).permissions.deny) == 20


def test_a_changed_list_keeps_its_comments_and_the_file_its_line_ends(file: Path) -> None:
    text = '[permissions]\nallow = [ # why\n  "a", # one\n  # two\n  "b",\n]\n# end\n'
    file.write_bytes(text.replace("\n", "\r\n").encode())
    change_rules("allow", add=["c"], remove=["a"])
    changed = text.replace('  "a", # one\n', "").replace('"b",\n', '"b",\n  "c",\n')
    assert file.read_bytes().decode() == changed.replace("\n", "\r\n")
    change("permissions.allow", '["c", "b"]')
    assert load_config(file, environ={}).permissions.allow == ("c", "b")


def test_rules_of_a_project_can_be_put_into_a_table_on_one_line(file: Path) -> None:
    file.write_text('permissions = {allow = ["a"]}\n')
    change_rules("deny", project="/w", add=["b"])
    assert load_config(file, environ={}).permissions.of_project("/w").deny == ("b",)


def test_a_disk_that_takes_no_rule_is_no_mistake_of_the_user(file: Path) -> None:
    file.symlink_to(file.with_name("away") / "ragmem.toml")
    with pytest.raises(RagmemError, match="Can't write") as caught:
        change_rules("allow", add=["run_command(ls)"])
    assert caught.value.exit_code == EXIT_FAILED


def test_a_rule_with_a_key_in_it_is_not_written(file: Path) -> None:
    with pytest.raises(ConfigError, match="key"):
        change_rules("allow", add=["run_command(curl -u sk-ant-api03-abcdEFGH1234ijkl x)"])
    assert change_rules("allow", add=["run_command(ls)"]) == ("run_command(ls)",)


def test_taking_away_a_rule_that_is_not_there_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAGMEM_HOME", str(tmp_path))
    assert change_rules("allow", remove=["run_command(ls)"]) == ()
    assert not find_paths().config_file.exists()
