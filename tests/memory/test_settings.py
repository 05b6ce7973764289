"""The settings that the requirements name, under the names that they have here."""

from pathlib import Path

import msgspec
import pytest

from ragmem.config import Config, keys, load_config
from ragmem.errors import ConfigError
from ragmem.llm.base import ModelInfo
from ragmem.memory.projects import Instructions

from .builders import a_turn
from .test_context import PLACE, access, build
from .test_relevant import a_summary, summary_hit, turn_hit

RENAMED = {
    "enabled": ("memory.enabled", True),
    "max_context_messages": ("memory.recent.window_percent", 40.0),
    "summarization.enabled": ("memory.summaries.enabled", True),
    "summarization.every_n_messages": ("memory.summaries.every_n_messages", 10),
    "embeddings.enabled": ("memory.embeddings.enabled", True),
    "embeddings.model": ("model.embedding", ""),
    "embeddings.dimension": ("memory.embeddings.dimension", 0),
    "persistence.type": ("store.kind", "sqlite"),
}


def config(text: str, tmp_path: Path, **environ: str) -> Config:
    file = tmp_path / "config.toml"
    file.write_text(text)
    return load_config(file, environ=environ)


def test_each_has_its_place_and_default() -> None:
    """What was `persistence.auto_save` is no choice: all is always saved."""
    known = keys()
    assert {name: known.get(ours) for name, (ours, _) in RENAMED.items()} == {
        name: default for name, (_, default) in RENAMED.items()
    }
    assert not [name for name in known if "auto_save" in name]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[memory]\nsemantic = true\n", "line 2"),
        ("[agent.memory]\nenabled = true\n", "no setting 'agent'"),
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


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(
    ("key", "sections"),
    [
        ("instructions_percent", ["Instructions"]),
        ("thread_summary_percent", ["Thread Summary"]),
        ("last_user_queries_percent", ["Last User Queries"]),
        ("relevant_percent", ["Relevant Turns", "Relevant Summaries"]),
        ("summaries_percent", ["Level 1 Summaries"]),
        ("recently_accessed_files_percent", ["Recently Accessed Files"]),
    ],
)
def test_each_section_has_its_percentage(
    key: str, sections: list[str], native: bool, tmp_path: Path
) -> None:
    """Of a maximum that can be set; 0 leaves a section out, heading and all."""
    place = msgspec.structs.replace(PLACE, instructions=Instructions("rules " * 9, ()))
    turns = [a_turn(i, f"asked {i}", "a" * 900) for i in range(1, 40)]

    def sizes(text: str) -> dict[str, int]:
        settings = config("[memory.context]\nmax_chars = 20000\n" + text, tmp_path).memory
        built = build(
            turns,
            config=settings,
            info=ModelInfo(name="openai/x", supports_tools=native),
            place=place,
            accesses=(access("a.py", 1),),
            hits=(turn_hit(a_turn(99, "u", "a")), summary_hit(a_summary(1, "c"))),
            level1=(a_summary(2, "d"),),
            thread_summary="so far",
        )
        assert built.max_chars == 20_000
        return built.sizes

    usual, without = sizes(""), sizes(f"{key} = 0\n")
    for section in sections:
        assert section in usual
        assert section not in without
    assert usual.keys() - without.keys() == set(sections)
