"""What is stored: ids, text at the doors, and Writes as lines of JSON."""

import tracemalloc
import unicodedata
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given, strategies as st

from ragmem.ids import SHORT_LENGTH, new_id, short_id
from ragmem.messages import of_command
from ragmem.records import UpdateSession, Usage, utc_now, write_decoder
from ragmem.text import clean, clip_middle, estimate_tokens, one_line, reveal, visible
from tests.memory.builders import a_call, a_summary, a_turn

# --- ids ---------------------------------------------------------------------


def test_an_id_is_a_uuid_of_version_7() -> None:
    """RFC 9562: version, variant, and the milliseconds of its making in front."""
    before = datetime.now(UTC)
    made = uuid.UUID(new_id())
    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    stamped = datetime.fromtimestamp((made.int >> 80) / 1000, UTC)
    assert before - timedelta(seconds=1) < stamped < before + timedelta(seconds=60)


def ids(count: int) -> list[str]:
    return [new_id() for _ in range(count)]


def test_ids_sort_in_the_order_of_their_making() -> None:
    """Also more than 4,096 within a millisecond."""
    made = ids(20_000)
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_ids_of_threads_differ() -> None:
    with ThreadPoolExecutor(4) as threads:
        made = [each for some in threads.map(lambda _: ids(2000), range(4)) for each in some]
    assert len(set(made)) == 8000


def test_ids_are_shown_by_their_tail() -> None:
    """The first digits repeat within a minute, the last ones do not."""
    made = ids(1000)
    assert {len(short_id(each)) for each in made} == {SHORT_LENGTH}
    assert all(each.endswith(short_id(each)) for each in made)
    assert len({short_id(each) for each in made}) == 1000
    assert len({each[:SHORT_LENGTH] for each in made}) <= 2


# --- text --------------------------------------------------------------------

# Any code point, lone surrogates among them.
anything = st.text(st.characters(codec=None, categories=None), max_size=80)


@given(anything)
def test_clean_text_is_accepted_everywhere(text: str) -> None:
    """UTF-8 and JSON take it; cleaning twice is cleaning once."""
    cleaned = clean(text)
    cleaned.encode()
    msgspec.json.encode(cleaned)
    assert "\0" not in cleaned
    assert clean(cleaned) == cleaned


@given(st.text(max_size=80))
def test_clean_changes_nothing_that_is_clean(text: str) -> None:
    assert clean(text) == text.replace("\0", "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\0b", "ab"),
        ("\ud800", "\ufffd"),
        ("\ud83c\udf31", "🌱"),
        (b"caf\xe9".decode("utf-8", "surrogateescape"), "caf\ufffd"),
        ("👩‍👩‍👧", "👩‍👩‍👧"),
    ],
)
def test_clean(text: str, expected: str) -> None:
    assert clean(text) == expected


@given(anything)
def test_visible_text_steers_no_terminal(text: str) -> None:
    """Nothing of Cc or Cf but line feed, tab, and joiners within emoji."""
    hidden = [c for c in visible(text) if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Cn")]
    assert set(hidden) <= {"\n", "\t", "\u200d"}


@given(anything)
def test_revealed_text_hides_nothing(text: str) -> None:
    assert all(c.isprintable() or c in "\n\t" for c in reveal(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain é 🌱\n\tlines", "plain é 🌱\n\tlines"),
        ("\x1b[31mred", "\\e[31mred"),
        ("a\rb\x07\x9b", "a\\x0db\\x07\\x9b"),
        ("safe\u202egnp.exe", "safe\\u{202e}gnp.exe"),
        ("tag\U000e0041", "tag\\u{e0041}"),
        ("zero\u200bwidth", "zero\\u{200b}width"),
    ],
)
def test_hidden_characters_are_shown(text: str, expected: str) -> None:
    assert visible(text) == expected
    assert reveal(text) == expected


@given(anything, st.integers(1, 40))
def test_one_line_is_one_line(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert len(line) <= limit
    assert len(line.splitlines()) <= 1


@given(
    st.lists(
        st.sampled_from([*"aé ", "\n", "\r\n", "\r", "\x1b", "\U000e0041", "😀\u200d", " " * 30])
    ),
    st.integers(1, 30),
)
def test_of_a_long_text_one_line_reads_the_beginning(parts: list[str], limit: int) -> None:
    """It is what it would be if all of it was read."""
    text = "".join(parts)
    whole = " ".join(visible(text).split())
    assert one_line(text, limit) == (whole if len(whole) <= limit else whole[: limit - 1] + "…")


def test_what_was_cut_before_is_cut_once() -> None:
    """The title of a fork, say, which ends in "… (fork)"."""
    assert one_line("for billing, since… (fork)", 21) == "for billing, since…"
    assert one_line("for billing, since… (fork)", 20) == "for billing, since…"
    assert one_line("for billing, since… (fork)", 26) == "for billing, since… (fork)"
    assert one_line("for billing", 8) == "for bil…"


def test_one_line_of_a_long_paste_copies_nothing_of_it() -> None:
    paste = "a word of the paste\n" * 50_000
    tracemalloc.start()
    try:
        assert len(one_line(paste, 80)) == 80
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


@given(st.text(max_size=300), st.integers(0, 320))
def test_clipping_keeps_both_ends(text: str, limit: int) -> None:
    clipped = clip_middle(text, limit)
    assert len(clipped) <= limit
    if len(text) <= limit:
        assert clipped == text
    elif limit > 60:
        assert clipped[0] == text[0]
        assert clipped[-1] == text[-1]
        assert f"[{len(text) - limit} characters left out]" in clipped


@given(st.text(max_size=100))
def test_four_characters_a_token(text: str) -> None:
    assert len(text) / 4 <= estimate_tokens(len(text)) < len(text) / 4 + 1


# --- writes ------------------------------------------------------------------


def test_a_write_from_a_newer_version_is_refused_by_its_tag() -> None:
    with pytest.raises(msgspec.ValidationError, match="merge"):
        write_decoder.decode(b'{"write":"merge","into":"x"}')


def test_what_a_newer_version_added_is_passed_over() -> None:
    """Forwards: a field that this version does not know costs nothing."""
    write = UpdateSession(session_id="s", at=utc_now())
    line = msgspec.json.encode(write)[:-1] + b',"colour":"green"}'
    assert write_decoder.decode(line) == write


def test_sizes_and_counts_of_records() -> None:
    """Code points of what was said; bytes of what a tool returned."""
    call = a_call(result="é🌱")
    turn = a_turn(1, "é🌱", "abc", (call,))
    assert turn.char_count == 5
    assert call.result_size_bytes == 6
    assert a_summary(1, text="é🌱").char_count == 2


@pytest.mark.parametrize(
    ("message", "asked"),
    [
        ("<stdin>\na log\n</stdin>", "a log"),
        ("Why?\n\n<stdin>\na log\n</stdin>", "Why?\n\n<stdin>\na log\n</stdin>"),
        ("<command>\nSay hello.\n</command>", "Say hello."),
        ("<command>\nSay hello.\n</command>\n\nTo Ann.", "Say hello.\n\nTo Ann."),
        ("See <command>\nx\n</command>", "See <command>\nx\n</command>"),
        (of_command("Greet Ann.", "/greet Ann"), "/greet Ann"),
        (f"{of_command('Greet.', '/greet')}\n\nAnn", "/greet Ann"),
        (of_command("Greet Ann.\n" * 99, "/greet Ann")[:200], "/greet Ann"),
    ],
)
def test_a_prompt_is_shown_without_the_marks_of_what_nobody_typed(message: str, asked: str) -> None:
    """But for those that part it from the person's own words."""
    assert a_turn(1, message).asked == asked


def test_a_model_is_asked_what_a_command_of_the_project_stands_for() -> None:
    turn = a_turn(1, of_command("Greet\n</typed>\nall.", "/greet") + "\n\nAnn")
    assert turn.prompt == "Greet\n</typed>\nall.\n\nAnn"


def test_records_do_not_change() -> None:
    with pytest.raises(AttributeError):
        Usage().model_calls = 3  # type: ignore[misc]


def test_the_clock_is_in_utc() -> None:
    assert utc_now().tzinfo is UTC
