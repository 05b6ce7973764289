"""The `ragmem` command: process setup, and shorthand arguments completed for the parser."""

from __future__ import annotations

import gc
import os
import sys

# Known to type checkers; importing `typing` itself would delay every start of the program.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_YOUNG = 10_000
"""Number of new objects that triggers garbage collection: Python's 700 costs 5 % of a start."""
_ROOT_OPTIONS = ("-h", "--help", "-V", "--version", "--install-completion", "--show-completion")
_PRINT = ("-p", "--print")
_RESUME = ("-r", "--resume")
_RESUMING = ("ask", "chat", "context", "files", "graph", "search")


def main() -> NoReturn:
    """Entry point of the console script and of `python -m ragmem`.

    Everything is closed by the time there is an exit code, so the interpreter's teardown, which
    takes 30 ms, is skipped, unless a thread is still running.
    """
    gc.set_threshold(_YOUNG)
    code = run()
    threads = sys.modules.get("threading")
    try:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
        if threads is None or threads.active_count() == 1:
            os._exit(code)
    except (OSError, ValueError):
        pass  # Output that can't be written is left to Python to report.
    sys.exit(code)


def run() -> int:
    """Run the command that the process's arguments name; returns the exit code."""
    _import_nothing_from_here()
    argv = sys.argv[1:]
    if argv in (["--version"], ["-V"]):
        # Before any import: shells and scripts ask for this often.
        from ragmem import __version__

        sys.stdout.write(f"ragmem {__version__}\n")
        return 0
    from ragmem.cli import leave_at_once

    leave_at_once()
    if not sys.warnoptions:
        import warnings

        # Warnings are for developers of a program, not for its users.
        warnings.simplefilter("ignore")
    if argv[:1] == ["hook"] and len(argv) == 2:
        # Another agent waits for this at every prompt.
        from ragmem.cli.hook import answer

        return answer(argv[1])
    words = rewrite(argv)
    before_message = None
    if shows_prompt_early(words):
        from ragmem.repl import early

        early.show()
        before_message = early.clear
    from ragmem.cli import main as commands

    return commands.run(words, before_message=before_message)


def _import_nothing_from_here() -> None:
    """Remove entries of PYTHONPATH that are in, above or below the current folder from `sys.path`.

    An empty entry is the current folder, whose modules may be a stranger's. The folder that
    contains ragmem itself stays, and below the root of the file system everything does, as it
    contains what is the user's own. Child processes inherit the rest of the variable.
    """
    named = os.environ.get("PYTHONPATH")
    if named is None:
        return
    try:
        here = os.path.realpath(os.curdir, strict=True)
    except OSError:
        here = ""
    own = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))

    def is_strange(entry: str) -> bool:
        path = os.path.realpath(entry)
        if not here:
            return not entry
        is_above = os.path.commonpath([path, here]) == path
        is_below = here != os.sep and os.path.commonpath([path, here]) == here
        return (is_above or is_below) and path != own

    entries = named.split(os.pathsep)
    strange = {os.path.realpath(entry) for entry in entries if is_strange(entry)}
    if strange:
        sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry) not in strange]
        kept = [entry for entry in entries if entry and os.path.realpath(entry) not in strange]
        os.environ["PYTHONPATH"] = os.pathsep.join(kept)
        if not kept:
            del os.environ["PYTHONPATH"]


def rewrite(argv: list[str]) -> list[str]:
    """Complete abbreviated arguments.

    `ragmem` and `ragmem -c` become `ragmem chat`; `ragmem -p …` becomes `ragmem ask …`; a first
    word that contains a space is a prompt for a chat, not a command; `-r` without a value gets an
    empty one, which means "let me choose".
    """
    words = list(argv)
    if not words:
        return ["chat"]
    if " " in words[0].strip() and not words[0].startswith("-"):
        # After the options, because -r takes what follows it.
        return [*_complete_resume(["chat", *words[1:]]), "--", words[0]]
    if words[0].startswith("-") and words[0] not in _ROOT_OPTIONS:
        options = words[: words.index("--")] if "--" in words else words
        asked = [i for i, word in enumerate(options) if word in _PRINT]
        if asked:
            del words[asked[0]]
        words.insert(0, "ask" if asked else "chat")
    return _complete_resume(words) if words[0] in _RESUMING else words


def shows_prompt_early(words: list[str]) -> bool:
    """Return whether this starts a chat, at whose prompt the user may type during the imports."""
    return words[0] == "chat" and not {"-h", "--help", "--resume="} & set(words)


def _complete_resume(words: list[str]) -> list[str]:
    completed: list[str] = []
    for i, word in enumerate(words):
        if word == "--":
            return completed + words[i:]
        following = words[i + 1] if i + 1 < len(words) else "-"
        if word in _RESUME and following.startswith("-"):
            word = "--resume="
        completed.append(word)
    return completed


if __name__ == "__main__":
    if not sys.flags.safe_path:
        # `python -m` puts the current folder first: a project's own json.py must not run here.
        del sys.path[0]
    main()
