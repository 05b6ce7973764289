"""`ragmem memory profile`: show and edit what the user has said about themselves, by key."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ragmem.cli import command as cli
from ragmem.cli.output import is_interactive, print_one, say, words, write
from ragmem.errors import UsageError
from ragmem.listings import document, folded
from ragmem.memory.memories import facts_of
from ragmem.records import MemoryQuery, MemoryRecord, Profile, utc_now
from ragmem.text import counted, one_line

if TYPE_CHECKING:
    from ragmem.app import App

app = cli.commands("Show and edit your profile, which is used in every project.", answers=True)

Key = Annotated[str, cli.argument("KEY", "A key, such as editor.")]
_KEY_CHARS, _VALUE_CHARS = 40, 400


@app.callback()
def _profile(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        show()


@cli.command(app, cli.app_with_facts)
async def show(opened: "App", output: cli.TextFormat = "text") -> None:
    """Show the profile; same as `profile` alone."""
    profile = await facts_of(opened.memory).profile()
    if output == "text" and not profile.values:
        say("Your profile is empty.\n")
        say("Add to it with `ragmem memory profile set KEY VALUE`, or run `ragmem memory\n")
        say("profile learn` to choose from the preferences you have mentioned.\n")
        return
    print_one(
        output,
        lambda: document("values updated_at", profile),
        lambda width: profile_text(profile, width),
    )


@cli.command(app, cli.app_with_facts, "set")
async def set_(
    opened: "App", key: Key, value: Annotated[str, cli.argument("VALUE", "The value.")]
) -> cli.Report:
    """Set one key, leaving the others unchanged."""
    name, said = words(key), words(value)
    if len(said) > _VALUE_CHARS:
        raise UsageError(
            f"A value has at most {_VALUE_CHARS} characters; this one has {len(said):,}."
        )
    profile = await facts_of(opened.memory).set_profile(name, said)
    kept = profile.values.get(_key(name), "")
    row = f"{one_line(_key(name), _KEY_CHARS)}  {one_line(kept, _VALUE_CHARS)}\n"
    return lambda: write(row)


@cli.command(app, cli.app_with_facts)
async def unset(opened: "App", key: Key) -> cli.Report:
    """Remove one key, leaving the others unchanged."""
    name, facts = _key(words(key)), facts_of(opened.memory)
    known = (await facts.profile()).values
    if name not in known:
        its = f"Existing keys: {one_line(', '.join(sorted(known)), 300)}."
        raise UsageError(
            f"Your profile has no key {one_line(name, 60)!r}.",
            hint=its if known else "The profile is empty.",
        )
    await facts.set_profile(name, None)
    return lambda: write(f"Removed {one_line(name, 60)}.\n")


@cli.command(app, cli.app_with_facts)
async def learn(opened: "App") -> None:
    """Add your preferences to the profile, confirming each."""
    if not is_interactive():
        raise UsageError(
            "This command asks before adding anything, and this is not an interactive terminal.",
            hint="Run it in a terminal, or use `ragmem memory profile set`.",
        )
    facts = facts_of(opened.memory)
    own = MemoryQuery(kinds=("preference",), alive_at=utc_now())
    found = to_learn(await (await opened.store()).memories(own), await facts.profile())
    if not found:
        say("All your preferences are already in your profile.\n")
        return
    count = 0
    for number, memory in enumerate(found, 1):
        say(f"{number} of {len(found)}  {one_line(memory.content, 500)}\n")
        key = await _ask_key(memory, (await facts.profile()).values)
        if key is None:
            break
        if key:
            await facts.set_profile(key, one_line(memory.content, _VALUE_CHARS))
            count += 1
    say(f"Added {counted(count, 'preference')} to your profile.\n")


def to_learn(preferences: Sequence[MemoryRecord], profile: Profile) -> list[MemoryRecord]:
    """Return the user's own preferences that the profile does not contain, oldest first."""
    known = {" ".join(value.casefold().split()) for value in profile.values.values()}
    return [
        memory
        for memory in reversed(preferences)
        if memory.trust == "person" and " ".join(memory.content.casefold().split()) not in known
    ]


def profile_text(profile: Profile, width: int) -> str:
    """Format the profile, one key with its value per row, sorted by key."""
    widest = min(24, max(len(one_line(key, _KEY_CHARS)) for key in profile.values))
    return "".join(
        _row(f"{one_line(key, _KEY_CHARS):<{widest}}", value, width)
        for key, value in sorted(profile.values.items())
    )


def proposed_key(memory: MemoryRecord, known: Collection[str]) -> str:
    """Return the memory's first subject that is an unused valid key, else `preference`."""
    free = (key for key in map(_key, memory.subjects) if key not in known and _is_key(key))
    return next(free, "preference")


async def _ask_key(memory: MemoryRecord, known: Mapping[str, str]) -> str | None:
    """Ask under which key to add a memory to the profile; empty to skip it, None to quit."""
    proposed = proposed_key(memory, known)
    while True:
        answer = await cli.ask_line(
            f"Add to your profile? [y: as {one_line(proposed, _KEY_CHARS)}, or type another key; "
            "Enter: no; q: quit] "
        )
        if answer.casefold() in ("", "n", "no"):
            return ""
        if answer.casefold() == "q":
            return None
        key = proposed if cli.is_yes(answer) else _key(answer)
        if not _is_key(key):
            say("A key is a single word, such as name or language, without = and ;\n")
        elif key in known:
            say(
                f"{one_line(key, _KEY_CHARS)} is already set to {one_line(known[key], 200)}; "
                "choose another key.\n"
            )
        else:
            return key


def _key(text: str) -> str:
    """Return a key as the profile spells it: casefolded, with underscores for spaces."""
    return "_".join(text.casefold().split())


def _is_key(key: str) -> bool:
    return bool(key) and len(key) <= _KEY_CHARS and key.isprintable() and not set(key) & set("=;")


def _row(key: str, value: str, width: int) -> str:
    return "\n".join(folded(f"{key}  ", one_line(value, _VALUE_CHARS), width)) + "\n"
