"""ragmem: a terminal coding agent whose memory lasts; and that memory, for programs."""

# Known to type checkers; importing `typing` itself would delay every start of the program.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from ragmem.interface.agent import Conversation, ConversationAgent, ConversationConfig
    from ragmem.interface.memory import OpenMemory, open_memory

__version__ = "0.1.0"

__all__ = [
    "Conversation",
    "ConversationAgent",
    "ConversationConfig",
    "OpenMemory",
    "__version__",
    "open_memory",
]

_HOMES = {
    "Conversation": "ragmem.interface.agent",
    "ConversationAgent": "ragmem.interface.agent",
    "ConversationConfig": "ragmem.interface.agent",
    "OpenMemory": "ragmem.interface.memory",
    "open_memory": "ragmem.interface.memory",
}


def __getattr__(name: str) -> object:
    """Imported when it is first used: `import ragmem` itself costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
