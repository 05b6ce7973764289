"""What bears on a prompt, for other agents: all that ragmem's own is given but the conversation."""

from ragmem.app import App
from ragmem.errors import StoreError
from ragmem.ids import new_id
from ragmem.llm.base import ModelInfo
from ragmem.memory.context import Context, ContextBuilder, Place, Strategy
from ragmem.memory.context.builder import framed
from ragmem.memory.projects import NO_INSTRUCTIONS, real_folder
from ragmem.memory.window import turn_tag
from ragmem.text import clean, one_line, visible
from ragmem.tools.changed_files import SeenFiles
from ragmem.tools.project_code import SessionCode


async def bearing_on(
    app: App,
    prompt: str,
    *,
    max_chars: int,
    strategy: Strategy = "hybrid",
    with_code: bool = True,
) -> str:
    """At most so many characters; empty where nothing does. StoreError."""
    session = await app.new_session_here()
    project = (await app.memory.project_of(app.cwd)).project
    top = real_folder(project.path, app.cwd)
    code = SessionCode(app.codebase, project, cwd=app.cwd, top=top, seen=SeenFiles())
    place = Place(cwd=app.cwd, project=top, instructions=NO_INSTRUCTIONS, show_path=code.show)
    text = ""
    # A good part of a request is kept for the conversation, which there is none of here.
    for room in (max_chars * 3 // 2, max_chars, max_chars // 2):
        built = await app.memory.build_context(
            session,
            clean(prompt),
            ContextBuilder(
                app.config.memory, ModelInfo(name=""), max_chars=room, pinned_chars=max_chars // 5
            ),
            place,
            strategy=strategy,
            find_code=code.passages if with_code and code.is_there else None,
        )
        if built.fallback:
            raise StoreError("The memory can't answer now.", hint=" ".join(built.notices))
        if not any(section.items for section in built.sections):
            return ""
        text = visible(built.recalled) + _ids(built, max_chars // 5)
        if len(text) <= max_chars:
            break
    return text


def _ids(built: Context, room: int) -> str:
    """What `why` is asked by, of the first things that were recalled."""
    text = framed(["Ids, for `why`:"], turn_tag(new_id()))
    head, end = text[: text.rindex("\n")], text[text.rindex("\n") :]
    for item in (each for section in built.sections for each in section.items):
        line = f"\n- {item.record_id}: {one_line(item.label, 60)}"
        if item.record_id and len(head) + len(line) + len(end) < room:
            head += line
    return f"\n\n{head}{end}" if head + end != text else ""
