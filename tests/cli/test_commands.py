"""config, store, models, neo4j and doctor, as real processes."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from ragmem.config.file import default_toml
from ragmem.records import utc_now
from ragmem.tools.sandbox import find_mechanism
from ragmem.usage import UsageLog
from tests.cli.process import Ragmem

# --- config -------------------------------------------------------------------


def test_config_is_written_shown_and_changed(ragmem: Ragmem, tmp_path: Path) -> None:
    """A linked file stays a link; what is there is not overwritten, nor spoilt by a wrong value."""
    file = ragmem.home / "ragmem.toml"
    assert ragmem.ok("config", "path").out == f"{file}\n"
    assert ragmem.ok("config", "init").out == f"{file}\n"
    assert file.read_text() == default_toml()
    ragmem.ok("config", "set", "llm.timeout_s", "30")
    assert "timeout_s = 30.0" in ragmem.ok("config", "show").out
    assert ragmem.read("config", "show")["llm"]["timeout_s"] == 30.0
    assert file.stat().st_mode & 0o777 == 0o600
    assert ragmem.home.stat().st_mode & 0o777 == 0o700
    before = file.read_text()
    assert "already exists" in ragmem.refused("config", "init")
    ragmem.refused("config", "set", "ui.color", "pink")
    assert file.read_text() == before
    assert [path.name for path in ragmem.home.glob(".*")] == []
    own = tmp_path / "dotfiles.toml"
    own.write_text('# mine\n[ui]\ncolor = "auto"\n')
    file.unlink()
    file.symlink_to(own)
    ragmem.ok("config", "set", "ui.color", "never")
    assert file.is_symlink()
    assert own.read_text() == '# mine\n[ui]\ncolor = "never"\n'


def test_one_setting_is_printed_and_taken_back(ragmem: Ragmem) -> None:
    """Where the environment outranks what is set that is told."""
    file, timeout = ragmem.home / "ragmem.toml", {"RAGMEM_LLM__TIMEOUT_S": "7"}

    def get(key: str, **options: Any) -> str:
        return ragmem.ok("config", "get", key, **options).out

    ragmem.ok("config", "init")
    before = file.read_text()
    outranked = ragmem.ok("config", "set", "llm.timeout_s", "30", env=timeout)
    warning = "warning: RAGMEM_LLM__TIMEOUT_S is set in the environment"
    assert outranked.err.startswith(warning)
    model = ragmem.ok("config", "set", "model.main", "a/b", env={"RAGMEM_MODEL": "c/d"})
    assert model.err.startswith("warning: RAGMEM_MODEL is set in the environment")
    ragmem.ok("config", "unset", "model.main")
    assert get("llm.timeout_s") == "30.0\n"
    assert get("llm.timeout_s", env=timeout) == "7.0\n"
    assert get("ui.color") == "auto\n"
    assert get("permissions.allow") == "[]\n"
    done = ragmem.ok("config", "unset", "llm.timeout_s", env=timeout)
    assert done.out == "Removed llm.timeout_s from the file.\n"
    assert done.err.startswith(warning)
    assert file.read_text().strip() == before.strip()
    assert get("llm.timeout_s") == "120.0\n"
    file.write_text('[model]\nmian = "x"\n')
    assert "unknown setting 'model.mian'" in ragmem.refused("config", "get", "ui.color")
    ragmem.ok("config", "unset", "model.mian")
    assert get("ui.color") == "auto\n"
    again = ragmem.ok("config", "unset", "llm.timeout_s")
    assert again.err == "llm.timeout_s is not set in the file.\n"


def test_a_broken_file_is_told_of_alike_wherever_it_is_read(ragmem: Ragmem) -> None:
    ragmem.ok("config", "init")
    file = ragmem.home / "ragmem.toml"
    file.write_text(broken := file.read_text() + "x = [\n")
    (said,) = {
        ragmem.run(*words).err.splitlines()[0]
        for words in (
            ("config", "set", "ui.theme", "light"),
            ("config", "unset", "ui.theme"),
            ("config", "get", "ui.theme"),
            ("config", "show"),
        )
    }
    assert "is not valid TOML" in said
    assert "x00" not in said
    assert file.read_text() == broken


def test_models_are_listed_with_the_default_and_why(ragmem: Ragmem) -> None:
    """Also where the key of the default cannot be sent; no key is shown."""
    done = ragmem.ok("models", env={"ANTHROPIC_API_KEY": "a\nb", "OPENAI_API_KEY": "fern12345"})
    assert "openai/" in done.out
    assert "ANTHROPIC_API_KEY" in done.err
    key = {"MISTRAL_API_KEY": "canary-key"}
    [default] = [model for model in ragmem.read("models", env=key) if model["is_default"]]
    assert default["name"].startswith("mistral/")
    assert default["why"] == "MISTRAL_API_KEY is set"
    table = ragmem.ok("models", env=key).out
    assert f"*  {default['name']}" in table
    assert "canary-key" not in table + str(default)


# --- store --------------------------------------------------------------------


def test_store_info_tells_where_and_how_much_and_only_a_store_that_opens_is_used(
    ragmem: Ragmem,
) -> None:
    """A store that is not there is not used, and the configuration stays: no silent switch."""
    told = ragmem.run("store", "use", "neo4j")
    assert told.code in (1, 75)
    assert told.err.startswith("error: ")
    assert "ragmem neo4j up" in told.err
    assert not (ragmem.home / "ragmem.toml").exists()
    document = ragmem.read("store", "info")
    at = str(ragmem.home / "data" / "memory.db")
    assert (document["kind"], document["location"]) == ("sqlite", at)
    assert document["counts"]["sessions"] == 0
    assert "sqlite" in ragmem.ok("store", "info").out
    assert "RAGMEM_STORE='qdrant'" in ragmem.refused(
        "store", "info", env={"RAGMEM_STORE": "qdrant"}
    )
    ragmem.ok("store", "use", "sqlite")
    assert 'kind = "sqlite"' in (ragmem.home / "ragmem.toml").read_text()


# --- neo4j --------------------------------------------------------------------


def test_neo4j_that_never_ran_is_told(ragmem: Ragmem) -> None:
    """And the password of one that did is printed."""
    assert ragmem.run("neo4j", "status").code == 1
    ragmem.ok("neo4j", "down")
    told = ragmem.refused("neo4j", "password", code=1)
    assert told.startswith("error: No local Neo4j has been started yet.")
    kept = ragmem.home / "data" / "neo4j" / "password"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text("canary-password\n")
    assert ragmem.ok("neo4j", "password").out == "canary-password\n"


# --- doctor -------------------------------------------------------------------


def health(out: str) -> dict[str, str]:
    lines = [line for line in out.splitlines() if not line.startswith(" ")]
    return {line[7:18].strip(): line[:6].strip() for line in lines}


def test_doctor_on_a_machine_where_all_is_well(ragmem: Ragmem) -> None:
    done = ragmem.run("doctor", env={"OPENAI_API_KEY": "canary-key-1234"})
    assert (done.code, done.err) == (0, "")
    found = health(done.out)
    assert found.pop("local model") in ("ok", "note")
    assert found.pop("sandbox") in ("ok", "note")
    assert (
        " ".join(sorted(found))
        == "background code config embedder folders keys model neo4j python ripgrep store"
    )
    assert set(found.values()) == {"ok"}
    assert "OPENAI_API_KEY is used for openai/" in done.out
    assert "canary-key-1234" not in done.out


def test_doctor_names_the_variable_that_the_key_of_ones_own_server_is_read_from(
    ragmem: Ragmem,
) -> None:
    own = {"RAGMEM_API_BASE": "http://127.0.0.1:9/v1", "RAGMEM_MODEL": "openai/mine"}
    done = ragmem.run("doctor", env={"OPENAI_API_KEY": "canary", **own})
    keys = next(line for line in done.out.splitlines() if " keys " in line)
    assert "RAGMEM_API_KEY is not set; no key is sent; also set: OPENAI_API_KEY; not set: " in keys


def test_doctor_tells_what_commands_run_in(ragmem: Ragmem) -> None:
    there = find_mechanism()
    done = ragmem.run("doctor")
    assert (f"on, by {there.kind}" if there.kind else there.why) in done.out
    ragmem.run("config", "set", "sandbox.mode", "off")
    assert "sandbox     off (sandbox.mode)" in ragmem.run("doctor").out


def test_doctor_says_what_is_broken_and_what_to_do(ragmem: Ragmem) -> None:
    ragmem.home.mkdir(mode=0o755)
    ragmem.home.chmod(0o755)
    (ragmem.home / "ragmem.toml").write_text('[ui]\ncolour = "never"\n')
    (ragmem.home / "ragmem.toml").chmod(0o644)
    (ragmem.home / "data").mkdir(mode=0o700)
    (ragmem.home / "data" / "memory.db").write_bytes(b"junk " * 5000)
    done = ragmem.run("doctor", env={"RAGMEM_MODEL": "openai/gpt-5"})
    assert (done.code, done.err) == (1, "")
    found = health(done.out)
    assert (found["folders"], found["config"], found["store"]) == ("note", "broken", "broken")
    assert "Did you mean 'ui.color'?" in done.out
    assert "the checks below use the default settings" in done.out
    assert "openai/gpt-5" in done.out  # what the environment says holds all the same
    assert ragmem.home.stat().st_mode & 0o777 == 0o700


def test_doctor_names_a_model_that_background_work_does_without(ragmem: Ragmem) -> None:
    data = ragmem.home / "data"
    data.mkdir(mode=0o700, parents=True)
    UsageLog(data).failed("openai/small", utc_now(), "The key is wrong.", tries=5)
    done = ragmem.run("doctor", env={"OPENAI_API_KEY": "canary-key-1234"})
    assert health(done.out)["background"] == "note"
    assert re.search(
        r"continues without openai/small until .*: The key is wrong.* \(5 failed calls", done.out
    )
    assert "Set model.summary" in done.out


def test_doctor_with_a_model_that_lacks_its_key_or_a_graph_that_is_away(ragmem: Ragmem) -> None:
    done = ragmem.run("doctor", env={"RAGMEM_MODEL": "openai/gpt-5"})
    assert (done.code, health(done.out)["model"]) == (1, "broken")
    assert "OPENAI_API_KEY" in done.out
    done = ragmem.run("doctor", env={"RAGMEM_STORE": "neo4j", "NEO4J_URI": "bolt://127.0.0.1:9"})
    assert (done.code, health(done.out)["store"]) == (1, "broken")
    assert done.out.count("127.0.0.1:9 can't be reached") == 1
    assert "neo4j" not in health(done.out)
    assert done.out.count("ragmem neo4j up") == 1


def test_doctor_proposes_of_the_local_model_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `ragmem[local]` there is what runs it, and its weights are still to come."""
    from ragmem.cli import doctor
    from ragmem.libraries import install_command

    here: set[str] = set()
    environ = {"RAGMEM_HOME": str(tmp_path)}
    monkeypatch.setattr(doctor, "find_spec", lambda name: name if name in here else None)
    monkeypatch.setattr("ragmem.llm.models.find_local_model", lambda _: None)
    monkeypatch.setattr("ragmem.llm.local.find_spec", lambda _: None)
    runner, weights = install_command("local"), "ragmem models fetch"
    check = doctor.check_local_model(environ, needed=True)
    assert (check.detail, check.advice) == ("not installed", f"{runner}\n{weights}")
    here.add("xllamacpp")
    check = doctor.check_local_model(environ, needed=True)
    assert check.detail == "not installed: its runtime is installed, its weights are not"
    assert check.advice == weights


@pytest.mark.parametrize(
    ("mark", "proposed"),
    [
        ("uv-receipt.toml", 'uv tool install "ragmem[local,mcp]"'),
        ("pipx_metadata.json", 'pipx install --force "ragmem[local,mcp]"'),
        ("nothing", '{python} -m pip install "ragmem[local]"'),
    ],
)
def test_what_adds_an_extra_is_right_for_the_kind_of_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark: str, proposed: str
) -> None:
    """A tool is made anew with the extras that it has; one of a wheel's is added to as it is."""
    from ragmem import libraries

    site = tmp_path / "site-packages"
    info = site / "ragmem-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ragmem\nVersion: 1\n")
    (tmp_path / mark).touch()
    monkeypatch.syspath_prepend(site)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    here = {"pip", "mcp"}
    monkeypatch.setattr(libraries, "find_spec", lambda name: name if name in here else None)
    added = proposed.format(python=sys.executable)
    assert libraries.install_command("local", package=site / "ragmem") == added
    (info / "direct_url.json").write_text('{"url": "file:///ragmem-1-py3-none-any.whl"}')
    plain = f'{sys.executable} -m pip install "ragmem[local]"'
    assert libraries.install_command("local", package=site / "ragmem") == plain
    pins = tmp_path / "requirements" / "local.txt"
    pins.parent.mkdir()
    pins.write_text("")
    pinned = f"{sys.executable} -m pip install --require-hashes -r {pins}"
    assert libraries.install_command("local", package=tmp_path / "ragmem") == pinned
