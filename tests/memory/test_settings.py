"""The settings of the memory: defaults, where they come from, and what is said of wrong ones."""

from pathlib import Path

import msgspec
import pytest

from ragmem.config import Config, keys, load_config
from ragmem.errors import ConfigError


def config(text: str, tmp_path: Path, **environ: str) -> Config:
    file = tmp_path / "config.toml"
    file.write_text(text)
    return load_config(file, environ=environ)


def test_the_defaults() -> None:
    """All is always saved, and there is no upper limit of memories: neither has a setting."""
    known = keys()
    expected = {
        "memory.enabled": True,
        "memory.recent.window_percent": 40.0,
        "memory.summaries.enabled": True,
        "memory.summaries.every_n_messages": 10,
        "memory.embeddings.enabled": True,
        "model.embedding": "",
        "memory.embeddings.dimension": 0,
        "store.kind": "sqlite",
    }
    assert {name: known.get(name) for name in expected} == expected
    assert not [name for name in known if "auto_save" in name]
    assert not [name for name in known if name.startswith("memory.facts.") and "max" in name]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[memory]\nsemantic = true\n", "line 2"),
        ("[agent.memory]\nenabled = true\n", "unknown setting 'agent'"),
        ("[store]\nkind = 'files'\n", "store.kind"),
        ("[memory.summaries]\n\nevery_n_messages = 0\n", "line 3"),
        ("[memory.summaries]\nevery_n_messages = 'ten'\n", "every_n_messages"),
        ("[memory.context]\nrelevant_percent = 101\n", "relevant_percent"),
    ],
)
def test_what_is_wrong_is_said(text: str, problem: str, tmp_path: Path) -> None:
    """Unknown keys and values that can't be, by file, line and name."""
    with pytest.raises(ConfigError) as told:
        config(text, tmp_path)
    assert problem in str(told.value)
    assert "config.toml" in str(told.value)
    assert told.value.hint or "line" in str(told.value)


@pytest.mark.parametrize("kind", ["qdrant", "pgvector", "files"])
def test_there_are_two_kinds_of_stores(tmp_path: Path, kind: str) -> None:
    """And every other kind is an error that names them."""
    with pytest.raises(ConfigError) as caught:
        config("", tmp_path, RAGMEM_STORE=kind)
    assert caught.value.hint == "Use one of sqlite, neo4j."


def test_one_typed_object(tmp_path: Path) -> None:
    """Frozen, whole, and the same whether a value comes from the file or the environment."""
    text = "[memory.summaries]\nevery_n_messages = 4\n"
    from_file = config(text, tmp_path)
    from_environment = config("", tmp_path, RAGMEM_MEMORY__SUMMARIES__EVERY_N_MESSAGES="4")
    assert from_file == from_environment != Config()
    both = config(text, tmp_path, RAGMEM_MEMORY__SUMMARIES__EVERY_N_MESSAGES="6")
    assert both.memory.summaries.every_n_messages == 6
    with pytest.raises(AttributeError):
        from_file.memory.summaries.every_n_messages = 5  # type: ignore[misc]
    assert msgspec.convert(msgspec.to_builtins(from_file), Config) == from_file
