"""A session as a page for people, whatever was said and printed in it."""

import re
from base64 import b64encode
from datetime import UTC, datetime
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser

import msgspec
import pytest

from ragmem.cli.output import Paint
from ragmem.cli.shown import turn_text
from ragmem.ids import new_id
from ragmem.listings import conversation_document, document
from ragmem.memory.turns import with_said
from ragmem.pages import anonymous, html, markdown
from ragmem.records import Session, ToolCall, Turn

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
KEY = "ghp_" + "a1B2" * 9
EVIL = [
    "</script><script>alert(1)</script>",
    "</style></pre></details><img src=x onerror=alert(1)>",
    "\x1b]0;owned\x07\x1b[2J",
    "\u202etxt.exe\u2066",
    "&#x202e;&#0;&lt;script&gt;",
    '[x](javascript:alert(1)) [y](data:text/html,<script>) [z](https://a.b/"onclick=alert(1))',
    "![pixel](https://evil.example/p.png)",
    '" onmouseover="alert(1)',
    "<!-- <![CDATA[",
    "<https://evil.example/&#x202e;>",
    f"token {KEY}",
    "a\udc80b",
]
ALLOWED = {
    "html", "head", "meta", "title", "style", "body", "header", "h1", "h2", "p", "code", "pre",
    "section", "div", "details", "summary", "span", "strong", "em", "a", "ul", "li", "del", "ins",
    "table", "thead", "tbody", "tr", "th", "td",
}  # fmt: skip
ATTRIBUTES = {"lang", "charset", "http-equiv", "content", "name", "class", "id", "href"}


class Tags(HTMLParser):
    """Every tag with its attributes, and how deep the page is when it ends."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.said = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.said += data


def turn(said: str, answer: str, *calls: ToolCall) -> Turn:
    return Turn(
        turn_id=new_id(),
        session_id="s",
        turn_index=1,
        user_message=said,
        assistant_message=answer,
        status="completed",
        started_at=NOW,
        model=said[:80],
        tool_calls=calls,
    )


def call(name: str, arguments: object, text: str, *, error: str | None = None) -> ToolCall:
    return ToolCall(
        tool_call_id=new_id(),
        turn_id="t",
        order=0,
        tool_name=name,
        arguments=msgspec.json.encode(arguments).decode(),
        result=msgspec.json.encode({"text": text}).decode(),
        success=error is None,
        error=error,
        started_at=NOW,
        preamble=text,
    )


def session(title: str) -> Session:
    return Session(
        session_id=new_id(),
        cwd=f"/home/a/{title}",
        project_id="p",
        title=title,
        started_at=NOW,
        updated_at=NOW,
        last_activity_at=NOW,
    )


def hostile(evil: str) -> str:
    told = evil.encode("utf-8", "replace").decode()
    edit = call("edit_file", {"path": told, "old": told, "new": f"{told}\nmore"}, told)
    failed = call(told, {"command": told}, told, error=told)
    return html(session(evil), [turn(evil, f"{evil}\n\n# {evil}\n\n- {evil}\n", edit, failed)])


@pytest.mark.parametrize("evil", [*EVIL, "\n".join(EVIL)])
def test_nothing_that_was_said_becomes_part_of_the_page(evil: str) -> None:
    page = hostile(evil)
    tags = Tags(page)
    assert tags.open == []
    assert {tag for tag, _ in tags.seen} <= ALLOWED
    for tag, attributes in tags.seen:
        assert set(attributes) <= ATTRIBUTES
        if "href" in attributes:
            assert tag == "a"
            assert re.match(r"https?://|mailto:", attributes["href"] or "")
    assert KEY not in page
    assert page.replace("\n", "").isprintable()
    assert unescape(page).replace("\n", "").replace("\t", "").isprintable()
    page.encode()


def test_the_page_forbids_everything_but_its_own_style() -> None:
    page = hostile("x")
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    digest = b64encode(sha256(style.encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'sha256-{digest}'"
    )
    assert page.index("Content-Security-Policy") < page.index("<style>")
    assert "url(" not in style
    assert "@import" not in style
    assert "prefers-color-scheme: dark" in style


def test_results_and_diffs_are_folded_and_the_answer_is_set() -> None:
    edit = call("edit_file", {"path": "a.py", "old": "a\n-- b", "new": "a\nc"}, "Edited a.py")
    failed = call("run_command", {"command": "false"}, "exit code 1", error="exit code 1")
    page = html(session("Beds"), [turn("Do it", "It is **done**, see `a.py`.", edit, failed)])
    assert "<title>Beds</title>" in page
    assert '<div class="prompt">Do it</div>' in page
    assert "It is <strong>done</strong>, see <code>a.py</code>." in page
    assert page.count("<details>") == 2
    assert "<pre> a\n<del>--- b</del><ins>+c</ins></pre>" in page
    assert "<pre>Edited a.py</pre>" in page
    assert '<span class="bad">✗</span> <strong>run_command</strong>' in page


def test_what_was_said_while_the_agent_worked_stands_where_it_was_said() -> None:
    """In both, and on the command line: not at the turn's beginning."""
    first, last = call("read_file", {"path": "a"}, "one"), call("look_at", {"path": "b"}, "two")
    told = turn("Do it\n\nOnly <b>", "Done.", with_said(first, "Only <b>"), last)
    page = html(session("Beds"), [told])
    assert '<div class="prompt">Do it</div>' in page
    assert page.index("one</pre>") < page.index('<div class="prompt">Only &lt;b&gt;</div>')
    assert page.index("Only &lt;b&gt;") < page.index("two</pre>")
    for text in (markdown(session("Beds"), [told]), turn_text(told)):
        places = [
            text.index(each) for each in ("Do it", "read_file", "Only <b>", "look_at", "Done.")
        ]
        assert places == sorted(places)


def test_no_part_of_a_secret_is_left_where_an_edit_is_cut() -> None:
    edit = call("write_file", {"path": "a", "content": f"{KEY}\n" * 2_000}, "written")
    page = html(session("Beds"), [turn("Write it", "Done", edit)])
    assert KEY[:10] not in page
    assert KEY[-10:] not in page


def test_markdown_says_the_same_without_secrets_and_escapes() -> None:
    result = call("read_file", {"path": "a"}, f"line\n```\n{KEY}\x1b[2J")
    page = markdown(session("Beds"), [turn(f"Use {KEY}", "\u202eDone", result)])
    assert KEY not in page
    assert "````\nline\n```\n[redacted: " in page
    assert page.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("result", "mark"),
    [
        ({"text": "ok", "exit_code": 0}, "●"),
        ({"text": "no", "exit_code": 3}, "✗"),
        (None, "?"),
        (["other"], "●"),
    ],
)
def test_a_command_that_failed_or_never_ended_does_not_look_like_a_success(
    result: object, mark: str
) -> None:
    ran = call("run_command", {"command": "x"}, "")
    stored = "" if result is None else msgspec.json.encode(result).decode()
    ran = msgspec.structs.replace(ran, result=stored)
    page = html(session("Beds"), [turn("Do it", "", ran)])
    assert f">{mark}</span> <strong>run_command" in page


def test_a_command_that_was_cut_off_is_unknown_and_not_failed_wherever_it_is_shown() -> None:
    """As a pipe, a terminal, Markdown, HTML, JSON and another agent get it."""
    cut = msgspec.structs.replace(
        call("run_command", {"command": "sleep 30"}, ""), result="", success=False
    )
    told, turns = session("Beds"), [turn("Do it", "", cut)]
    painted = turn_text(turns[0], width=90, paint=Paint("none"))
    pages = [turn_text(turns[0]), painted, markdown(told, turns), html(told, turns)]
    for page in pages:
        assert "interrupted: no result was recorded, and its effects are unknown" in page
        assert "failed" not in page
        assert "✗" not in page
    assert "? sleep 30" in pages[0]
    assert "? sleep 30" in pages[1]
    (shown,) = conversation_document(told, turns)["turns"][0]["tool_calls"]
    assert (shown["success"], shown["result"]) == (None, None)


def test_a_document_has_a_place_for_all_that_it_is_given() -> None:
    """Else a field that nobody has listed would be left out without a word."""
    assert document("b a title", session("Beds"), a=1) == {"b": None, "a": 1, "title": "Beds"}
    with pytest.raises(TypeError, match="no place for colour"):
        document("a b", a=1, colour="green")


def test_arguments_stand_as_they_were_called() -> None:
    """With their blanks, their lines, their backticks; long ones are clipped in the middle."""
    code = "def bill():\n    return 1\n"
    made = call("create_file", {"path": "src/a  b.py", "content": code}, "Created")
    ran = call("run_command", {"command": "echo `date`   +%s"}, "1")
    heredoc = call("run_command", {"command": "python3 - <<'EOF'\nif 1:\n    print()\nEOF"}, "")
    edits = call("edit_files", {"path": "ä.py", "edits": [{"old": "a", "new": "ö  ü"}]}, "")
    broken = msgspec.structs.replace(ran, arguments='{"path":  "cut')
    told = session("Beds"), [turn("Do it", "", made, ran, heredoc, edits, broken)]
    page = markdown(*told)
    assert '**edit_files** `{"path": "ä.py"}`\n\nedits:\n```\n[\n' in page
    assert '"new": "ö  ü"' in page
    assert 'arguments:\n```\n{"path":  "cut\n```' in page
    assert '**create_file** `{"path": "src/a  b.py"}`\n\ncontent:\n```\n' + code + "```" in page
    assert '**run_command** ``{"command": "echo `date`   +%s"}``' in page
    assert "command:\n```\npython3 - <<'EOF'\nif 1:\n    print()\nEOF\n```" in page
    shown = Tags(html(*told)).said
    assert "src/a  b.py" in shown
    assert "+    return 1" in shown
    assert "echo `date`   +%s" in shown
    assert "python3 - <<'EOF'\nif 1:\n    print()\nEOF" in shown
    long = call("run_command", {"command": "x" * 50_000 + " end"}, "")
    for text in (markdown(*told[:1], [turn("", "", long)]), html(*told[:1], [turn("", "", long)])):
        assert "characters left out" in text
        assert "xxx end" in text


def test_without_names_neither_page_tells_whose_it_is() -> None:
    talk = "Ana Beck: /home/ana/Beckhaus/plan.md by ana@beck.example, not Banana, on beckhaus"
    listed = call(
        "run_command", {"command": "ls /home/ana/Beckhaus /Users/otto/x"}, talk, error=talk
    )
    own = msgspec.structs.replace(
        session("Beckhaus for Ana"), cwd="/home/ana/Beckhaus/src", project_path="/home/ana/Beckhaus"
    )
    # As they read, not as JSON writes them: a line that begins with a name, a letter by its number.
    written = (
        '{"path": "by.md", "content": "By:\\nAna Beck\\nand \\u0041na, mail\\nana@beck.example"}'
    )
    noted = call("create_file", {}, "ok\nAna did it")
    noted = msgspec.structs.replace(noted, arguments=written)
    calls = (listed, noted)
    told, turns = anonymous(own, [turn(talk, talk, *calls)], ["Ana Beck", "Ana", "Beck"])
    for page in (html(told, turns), markdown(told, turns)):
        for name in ("Ana ", "Ana,", "ana/", "otto", "beckhaus", "@beck", own.session_id):
            assert name.casefold() not in page.casefold().replace("banana", "")
        assert "/project/plan.md by someone@example.org, not Banana" in page
        assert "/project/src" in page
        assert "ls /project /Users/someone/x" in page
