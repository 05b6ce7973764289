"""Summaries without a model: the sentences of the turn itself that tell most.

They stand in when there is no model, or its answers can't be used. Everything in
them was said or done, word for word, so they are in the conversation's language.
"""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest

from ragmem.memory.summaries.digest import (
    FINDING_CHARS,
    MAX_FINDINGS,
    MAX_TOPICS,
    SHORT_CHARS,
    TOPIC_CHARS,
    Digest,
    clip_sentences,
)
from ragmem.memory.summaries.material import WRITING_TOOLS, main_argument, outcome
from ragmem.records import Summary, Turn
from ragmem.redact import redact
from ragmem.text import clean, one_line

_QUESTION_CHARS = 160
_ANSWER_CHARS = 320
_DONE_CHARS = 90
_MOST_DONE = 4
_OPENING_CHARS = 100
"""An opening that is shorter (`Done.`) gets the sentence after it, too."""
_LONGEST_READ = 20_000
_FENCES = ("```", "~~~")
_SENTENCE = re.compile(r"(?<=[.!?…])[\"'”»)\]`]*\s+|(?<=[。！？])|\n+")
_MARKUP = re.compile(r"^\s*(?:#+|[-*+>]|\d+[.)])\s+")
_CODE = re.compile(
    r"`[^`\n]{2,80}`"  # quoted
    r"|(?<![\w/.-])[\w.-]*/[\w./-]+"  # a path
    r"|\b\w+\.(?!\d)\w{1,5}\b(?!\.)"  # a file name
    r"|\b[A-Za-z]\w*_\w+\b|\b[A-Z]?[a-z]+[A-Z]\w*\b|\b[A-Z]{2,}\b"  # identifiers
    r"|\d[\d.,:/-]*"  # numbers, versions, dates
)
_NUMBER = re.compile(r"[\d.,:/-]+")
_WORD = re.compile(r"[^\W\d_]{4,}")


def turn_digest(turn: Turn, *, text_chars: int) -> Digest:
    """What was asked, the answer's first sentences, what was changed and run, and how it ended."""
    asked = _sentences(turn.user_message)
    answered = _sentences(turn.assistant_message)
    first = _opening(answered, _ANSWER_CHARS)
    parts = [one_line(_opening(asked, _QUESTION_CHARS), _QUESTION_CHARS), first, *_done(turn)]
    text = clip_sentences(" — ".join(filter(None, parts)), text_chars)
    return Digest(
        text=text or "…",
        key_findings=_telling([s for s in answered if s not in first], MAX_FINDINGS),
        topics=_topics(" ".join([*asked, *answered]), turn.user_message),
    )


def summaries_digest(summaries: Sequence[Summary], *, text_chars: int) -> Digest:
    """The first sentences of each, the findings of all in turn, the topics that most have."""
    source_chars = sum(summary.char_count for summary in summaries)
    limit = min(text_chars, max(source_chars, SHORT_CHARS))
    share = max(SHORT_CHARS // 2, limit // max(1, len(summaries)) - 1)
    most = max(1, limit // (share + 1))
    # Too many for the room: evenly spread, the first and the last among them.
    step = max(1, len(summaries) - 1) / max(1, most - 1) if len(summaries) > most else 1
    shown = [summaries[min(round(i * step), len(summaries) - 1)] for i in range(most)]
    texts = dict.fromkeys(clip_sentences(s.text, share) for s in shown[: len(summaries)])
    topics = Counter(topic for s in summaries for topic in set(s.topics))
    dealt = _dealt([s.topics for s in summaries])
    return Digest(
        text=clip_sentences(" ".join(texts), limit),
        key_findings=tuple(_dealt([s.key_findings for s in summaries])[:MAX_FINDINGS]),
        topics=tuple(sorted(dealt, key=lambda topic: -topics[topic])[:MAX_TOPICS]),
    )


def thread_text(previous: str | None, since: Sequence[Turn], *, text_chars: int) -> str:
    """The summary so far, then what was asked and answered last, as room allows."""
    budget = text_chars // 2 if previous else text_chars
    latest: list[str] = []
    for turn in reversed(since):
        text = turn_digest(turn, text_chars=_QUESTION_CHARS + _ANSWER_CHARS).text
        if latest and len(text) + 1 > budget:
            break
        latest.insert(0, clip_sentences(text, budget))
        budget -= len(latest[0]) + 1
    rest = " ".join(latest)
    before = clip_sentences(previous, max(1, text_chars - len(rest) - 1)) if previous else ""
    return one_line(" ".join(filter(None, [before, rest])), text_chars)


def _dealt(groups: Sequence[Sequence[str]]) -> list[str]:
    """The first of each group, then the second of each …, none twice."""
    rows = zip_longest(*groups)
    return list(dict.fromkeys(item for row in rows for item in row if item is not None))


def _sentences(text: str) -> list[str]:
    """Of prose: code blocks are left out, marks of headings and lists too."""
    text = _without_code(redact(clean(text))[:_LONGEST_READ])
    found = [one_line(_MARKUP.sub("", part), 2_000) for part in _SENTENCE.split(text)]
    return [sentence for sentence in found if any(map(str.isalnum, sentence))]


def _without_code(text: str) -> str:
    lines, fence = [], ""
    for line in text.split("\n"):
        mark = line.lstrip()[:3]
        if mark in _FENCES and fence in ("", mark):
            fence = "" if fence else mark
        elif not fence:
            lines.append(line)
    return "\n".join(lines)


def _opening(sentences: Sequence[str], limit: int) -> str:
    taken = ""
    for sentence in sentences:
        if taken and (len(taken) >= _OPENING_CHARS or len(taken) + len(sentence) >= limit):
            break
        taken = f"{taken} {sentence}".strip()
    return clip_sentences(taken, limit)


def _done(turn: Turn) -> list[str]:
    """Files changed, then the last commands with what came of them."""
    changed = dict.fromkeys(
        main_argument(call)
        for call in turn.tool_calls
        if call.tool_name in WRITING_TOOLS and call.success and call.result
    )
    commands = [call for call in turn.tool_calls if call.tool_name == "run_command"]
    lines = [", ".join(list(changed)[:_MOST_DONE])] if changed else []
    for call in commands[-2:]:
        ran = one_line(main_argument(call), _DONE_CHARS)
        lines.append(f"`{ran}`: {outcome(call, _DONE_CHARS)}")
    return [redact(clean(line)) for line in lines]


def _telling(sentences: Sequence[str], most: int) -> tuple[str, ...]:
    """Those that name things or figures, in their order; the richest where there are too many."""
    scored = {s: len(set(_CODE.findall(s))) for s in dict.fromkeys(sentences)}
    named = sorted((s for s in scored if scored[s]), key=lambda s: -scored[s])[:most]
    return tuple(clip_sentences(s, FINDING_CHARS) for s in scored if s in named)


def _topics(text: str, asked: str) -> tuple[str, ...]:
    """The names that are said most; with few of them, the longest words of the question."""
    names = Counter(
        found.strip("`(").rstrip(".,:/-()")
        for found in _CODE.findall(text)
        if not _NUMBER.fullmatch(found) and len(found) <= TOPIC_CHARS and " " not in found
    )
    topics = [name for name, _ in names.most_common(MAX_TOPICS) if name]
    if len(topics) < 2:
        words = sorted(dict.fromkeys(_WORD.findall(asked)), key=lambda word: -len(word))
        topics += [word for word in words if word not in topics][:3]
    return tuple(one_line(topic, TOPIC_CHARS) for topic in topics[:MAX_TOPICS])
