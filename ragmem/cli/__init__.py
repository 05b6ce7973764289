"""The command line: parses, calls the App, says what came of it, exits.

Here: command lines as people type them, in the one form that the parser reads.
"""

from collections.abc import Sequence

_ROOT_OPTIONS = ("-h", "--help", "-V", "--version", "--install-completion", "--show-completion")
_PRINT = ("-p", "--print")
_RESUME = ("-r", "--resume")
_RESUMING = ("ask", "chat", "context", "files", "graph", "search")


def rewrite(argv: Sequence[str]) -> list[str]:
    """Complete what people leave out.

    `ragmem` and `ragmem -c` are `ragmem chat`; `ragmem -p …` is `ragmem ask …`; what holds a
    blank is no command but a prompt, for a chat; `-r` without a value gets an empty one, which
    means "let me choose".
    """
    words = list(argv)
    if not words:
        return ["chat"]
    if " " in words[0].strip() and not words[0].startswith("-"):
        # After the options: -r takes what follows it.
        return [*_complete_resume(["chat", *words[1:]]), "--", words[0]]
    if words[0].startswith("-") and words[0] not in _ROOT_OPTIONS:
        options = words[: words.index("--")] if "--" in words else words
        asked = [i for i, word in enumerate(options) if word in _PRINT]
        if asked:
            del words[asked[0]]
        words.insert(0, "ask" if asked else "chat")
    return _complete_resume(words) if words[0] in _RESUMING else words


def shows_prompt_early(argv: Sequence[str]) -> bool:
    """Whether this starts a chat at whose prompt a person may type while the rest is imported."""
    words = rewrite(argv)
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
