"""`ragmem memory profile`: what you have said of yourself, by key."""

from collections.abc import Collection, Mapping, Sequence
from shutil import get_terminal_size
from typing import Annotated

import typer

from ragmem.cli.choice import ask_line
from ragmem.cli.documents import to_json
from ragmem.cli.memory_acts import Listed, listed, opened_facts
from ragmem.cli.memory_values import TextFormat, profile_document, words
from ragmem.cli.opening import settings
from ragmem.cli.runner import Interruption, run_async
from ragmem.cli.streams import is_interactive, say, write, write_json
from ragmem.cli.table import folded
from ragmem.errors import EXIT_DONE, UsageError
from ragmem.memory.notes import facts_of
from ragmem.records import MemoryRecord, Profile
from ragmem.text import counted, one_line

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    invoke_without_command=True,
    help="Show and set what you said of yourself, for every project.",
)

Key = Annotated[str, typer.Argument(metavar="KEY", show_default=False, help="Such as editor.")]
_KEY_CHARS, _VALUE_CHARS = 40, 400


@app.callback()
def _profile(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        show()


@app.command()
def show(output: TextFormat = "text") -> None:
    """Show it; the same as `profile` alone."""
    config, paths = settings()

    async def main(_: Interruption) -> int:
        async with opened_facts(config, paths) as app:
            profile = await facts_of(app.memory).profile()
        if output == "json":
            write_json(to_json(profile_document(profile)))
        elif profile.values:
            write(profile_text(profile, get_terminal_size((120, 24)).columns))
        else:
            say("Your profile is empty.\n")
            say("`ragmem memory profile set KEY VALUE` begins it; `learn` fills it from what\n")
            say("you have said of your preferences, and asks before.\n")
        return EXIT_DONE

    raise typer.Exit(run_async(main))


@app.command("set")
def set_(
    key: Key,
    value: Annotated[
        str, typer.Argument(metavar="VALUE", show_default=False, help="What is to be known.")
    ],
) -> None:
    """Set one key; the others stay."""
    name, said = words(key) or "", _value(words(value) or "")
    config, paths = settings()

    async def main(_: Interruption) -> int:
        async with opened_facts(config, paths) as app:
            profile = await facts_of(app.memory).set_profile(name, said)
        key = _key(name)
        write(
            f"{one_line(key, _KEY_CHARS)}  {one_line(profile.values.get(key, ''), _VALUE_CHARS)}\n"
        )
        return EXIT_DONE

    raise typer.Exit(run_async(main))


@app.command()
def unset(key: Key) -> None:
    """Remove one key; the others stay."""
    name = _key(words(key) or "")
    config, paths = settings()

    async def main(_: Interruption) -> int:
        async with opened_facts(config, paths) as app:
            facts = facts_of(app.memory)
            known = (await facts.profile()).values
            if name not in known:
                its = f"Its keys are {one_line(', '.join(sorted(known)), 300)}."
                raise UsageError(
                    f"Your profile has no key {one_line(name, 60)!r}.",
                    hint=its if known else "It is empty.",
                )
            await facts.set_profile(name, None)
        write(f"Removed {one_line(name, 60)}.\n")
        return EXIT_DONE

    raise typer.Exit(run_async(main))


@app.command()
def learn() -> None:
    """Take over your preferences, each as you confirm it."""
    config, paths = settings()

    async def main(_: Interruption) -> int:
        if not is_interactive():
            raise UsageError(
                "Nothing is learned without you, and there is nobody to ask here.",
                hint="Run `ragmem memory profile learn` in a terminal, or use `profile set`.",
            )
        async with opened_facts(config, paths) as app:
            facts = facts_of(app.memory)
            preferences = await listed(app, Listed(kind="preference", scope="user"))
            found = to_learn(preferences, await facts.profile())
            if not found:
                say("There is no preference of yours that is not in your profile.\n")
                return EXIT_DONE
            count = 0
            for number, memory in enumerate(found, 1):
                say(f"{number} of {len(found)}  {one_line(memory.content, 500)}\n")
                key = await _asked_key(memory, (await facts.profile()).values)
                if key is None:
                    break
                if key:
                    await facts.set_profile(key, one_line(memory.content, _VALUE_CHARS))
                    count += 1
            say(f"{counted(count, 'preference')} went into your profile.\n")
        return EXIT_DONE

    raise typer.Exit(run_async(main))


def to_learn(preferences: Sequence[MemoryRecord], profile: Profile) -> list[MemoryRecord]:
    """Those in the person's own words that the profile does not have, oldest first."""
    known = {" ".join(value.casefold().split()) for value in profile.values.values()}
    return [
        memory
        for memory in reversed(preferences)
        if memory.trust == "person" and " ".join(memory.content.casefold().split()) not in known
    ]


def profile_text(profile: Profile, width: int) -> str:
    """Keys in their order, each with its value beside it."""
    widest = min(24, max(len(one_line(key, _KEY_CHARS)) for key in profile.values))
    return "".join(
        _row(f"{one_line(key, _KEY_CHARS):<{widest}}", value, width)
        for key, value in sorted(profile.values.items())
    )


def proposed_key(memory: MemoryRecord, known: Collection[str]) -> str:
    """A key that is free: a subject, else the word itself."""
    for subject in map(_key, memory.subjects):
        if subject not in known and _is_key(subject):
            return subject
    numbered = ("preference", *(f"preference_{number}" for number in range(2, len(known) + 3)))
    return next(key for key in numbered if key not in known)


async def _asked_key(memory: MemoryRecord, known: Mapping[str, str]) -> str | None:
    """The key that the person wants it under; empty for none, None to end."""
    proposed = proposed_key(memory, known)
    while True:
        answer = await ask_line(
            f"Into your profile? [y for {one_line(proposed, _KEY_CHARS)}, or another key; "
            "Enter for no, q to end] "
        )
        match answer.casefold():
            case "" | "n" | "no":
                return ""
            case "q":
                return None
            case "y" | "yes":
                return proposed
        key = _key(answer)
        if not _is_key(key):
            say("A key is a short word, like name or language, without = and ;\n")
        elif key in known:
            say(f"{one_line(key, _KEY_CHARS)} is {one_line(known[key], 200)}; choose another.\n")
        else:
            return key


def _key(text: str) -> str:
    """As the profile spells it."""
    return "_".join(text.casefold().split())


def _is_key(key: str) -> bool:
    return bool(key) and len(key) <= _KEY_CHARS and key.isprintable() and not set(key) & set("=;")


def _value(text: str) -> str:
    if len(text) > _VALUE_CHARS:
        raise UsageError(f"A value has at most {_VALUE_CHARS} characters: this one {len(text):,}.")
    return text


def _row(key: str, value: str, width: int) -> str:
    return "\n".join(folded(f"{key}  ", one_line(value, _VALUE_CHARS), width)) + "\n"
