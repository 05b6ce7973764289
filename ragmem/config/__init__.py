"""Settings: one user-wide TOML file, the environment over it, flags over both.

The only reader of `os.environ`. A project's folder can change nothing here: no
file inside it is read. Unknown keys are errors that name file, line and
the nearest key. Provider keys are never settings; see `provider_key`.
"""

from ragmem.config.settings import (
    CodeConfig,
    Config,
    ContextConfig,
    EmbeddingsConfig,
    FactsConfig,
    LLMConfig,
    McpServerConfig,
    MemoryConfig,
    ModelConfig,
    PermissionsConfig,
    RecentConfig,
    SandboxConfig,
    StoreConfig,
    SummariesConfig,
    ToolsConfig,
    UiConfig,
    check_tree,
    choices,
    environment,
    find_paths,
    how_to_set,
    keys,
    load_config,
    named_in,
    nearest,
    parse,
    provider_key,
)
from ragmem.files import Paths

__all__ = [
    "CodeConfig",
    "Config",
    "ContextConfig",
    "EmbeddingsConfig",
    "FactsConfig",
    "LLMConfig",
    "McpServerConfig",
    "MemoryConfig",
    "ModelConfig",
    "Paths",
    "PermissionsConfig",
    "RecentConfig",
    "SandboxConfig",
    "StoreConfig",
    "SummariesConfig",
    "ToolsConfig",
    "UiConfig",
    "check_tree",
    "choices",
    "environment",
    "find_paths",
    "how_to_set",
    "keys",
    "load_config",
    "named_in",
    "nearest",
    "parse",
    "provider_key",
]
