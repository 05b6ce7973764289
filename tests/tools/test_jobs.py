"""Commands in the background: read on demand, ended with the process, bounded in what is kept."""

import asyncio
from pathlib import Path

import pytest

from ragmem.redact import know, redact
from ragmem.tools import subprocess_guard
from ragmem.tools.shell import MOST_RUNNING, Job, Jobs, wait_for
from ragmem.tools.workspace import Workspace


def lives(pid: int) -> bool:
    return subprocess_guard.stat_of(pid)[0] not in ("", "Z", "X")


async def test_a_server_goes_on_is_read_and_is_stopped(make_desk, jobs: Jobs) -> None:
    desk = make_desk(jobs=jobs)
    serve = "echo ready; echo $$ > pid; while sleep 0.05; do test -e go && echo went && rm go; done"
    begun = await desk.do("run_command", command=serve, background=True)
    assert desk.proposals[0].title == "run_command in the background"
    assert begun.text.startswith("Job 1: echo ready;")
    assert begun.text.endswith("\nready")
    assert "In the background: job 1:" in desk.toolset.standing()
    desk.file("go")
    read = await desk.do("read_job", job=1, wait=20)
    assert "running for" in read.text
    assert read.text.endswith("\nwent")
    assert (await desk.do("read_job", job=1)).text.endswith("(no new output)")
    pid = int((desk.cwd / "pid").read_text())
    stopped = await desk.do("read_job", job=1, stop=True)
    assert "stopped after" in stopped.text
    assert not lives(pid)
    assert desk.toolset.standing() == ""
    assert "Jobs: 1" in (await desk.fails("read_job", job=7)).text


async def test_a_call_that_runs_beside_a_stop_waits_for_the_end_too(make_desk, jobs: Jobs) -> None:
    desk = make_desk(jobs=jobs)
    await desk.do("run_command", command="trap '' TERM; sleep 60", background=True)
    calls = [{"stop": True}, {}]
    told = await asyncio.gather(*(desk.do("read_job", job=1, **each) for each in calls))
    assert ["stopped after" in each.text for each in told] == [True, True]


async def test_what_fails_at_once_is_told_with_the_beginning(
    make_desk, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ragmem.tools.shell._FIRST_LOOK_S", 20.0)
    begun = await make_desk(jobs=jobs).do(
        "run_command", command="echo no port >&2; exit 3", background=True
    )
    assert "ended with exit code 3" in begun.text
    assert begun.text.endswith("no port")
    assert begun.data["exit_code"] == 3


async def test_the_end_of_one_is_told_but_not_when_it_was_asked_for(tmp_path: Path) -> None:
    ended: list[Job] = []
    jobs = Jobs(tmp_path / "outputs", ended.append)
    first = await jobs.start(f"until test -e {tmp_path}/go; do sleep .1; done", Workspace(tmp_path))
    second = await jobs.start("sleep 60", Workspace(tmp_path))
    (tmp_path / "go").touch()
    await jobs.stop(second)
    first.thread.join(20)
    await wait_for(lambda: bool(ended), 20)
    assert ended == [first]


async def test_of_much_output_the_end_is_kept(jobs: Jobs, tmp_path: Path) -> None:
    job = await jobs.start(
        "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo end", Workspace(tmp_path)
    )
    job.thread.join(30)
    news = job.news()
    assert len(news) < 25_000
    assert news.startswith("[2,4")
    assert news.endswith("x\nend\n")


async def test_a_secret_at_the_cut_of_an_output_leaves_no_part(jobs: Jobs, tmp_path: Path) -> None:
    key = "zQ9mT4vX7kL2wR8nB5cY1pD6"
    know({"MY_KEY": key})
    (tmp_path / "keys").write_text(f"{key} " * 2_000)
    job = await jobs.start("cat keys", Workspace(tmp_path))
    job.thread.join(20)
    for text in (job.tail(), job.news()):
        assert "[redacted" in text
        assert not any(key[at : at + 4] in redact(text) for at in range(20))


def test_a_line_that_was_unfinished_is_told_again_whole(tmp_path: Path) -> None:
    job = Job(1, "serve", tmp_path)
    key = "8f7Gk2LmQ9zXw3Rt5VbN1cYd"
    line = f"GET /café Authorization: Bearer {key}\n".encode()
    for cut in (9, len(line) - 12):
        job.output.feed(line[:cut])
        first = redact(job.news())
        assert (job.has_news, job.news()) == (False, "")
        job.output.feed(line[cut:])
        told = redact(job.news())
        assert told.startswith("GET /café Authorization")
        assert "\ufffd" not in first
        assert not any(key[at : at + 4] in first + told for at in range(20))


async def test_there_is_a_most(make_desk, jobs: Jobs) -> None:
    desk = make_desk(jobs=jobs)
    for _ in range(MOST_RUNNING):
        jobs.all.append(job := Job(len(jobs.all) + 1, "sleep", desk.cwd))
        assert job.is_running
    failed = await desk.fails("run_command", command="sleep 1", background=True)
    assert "Stop one with read_job" in failed.text
    jobs.all.clear()


async def test_plan_mode_and_a_rule_hold_in_the_background_too(make_desk, jobs: Jobs) -> None:
    for desk in (
        make_desk(jobs=jobs, mode="plan"),
        make_desk(jobs=jobs, mode="bypassPermissions", deny=("run_command(sleep *)",)),
    ):
        assert (await desk.fails("run_command", command="sleep 9", background=True)).denied
    assert jobs.all == []
