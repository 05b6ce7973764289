"""Whose words are whose, and which are worth nothing: before anything is believed or kept."""

import re
import unicodedata
from collections.abc import Sequence

from ragmem.memory.date_words import COUNTED, MONTHS, WEEKDAYS, any_of
from ragmem.redact import redact
from ragmem.terms import is_stop_word
from ragmem.text import NO_DATE, Regex, clean, one_line

_LONGEST_READ = 20_000
_LONGEST_GREETING = 200
_FENCE = Regex(r"^\s*(`{3,}|~{3,})(.*)$")
# On lines of their own, as they are written; to the last end: what was piped may hold one too.
_STDIN = Regex(r"(?:^|\n)<stdin>\n(?:.*\n</stdin>|.*\Z)", re.DOTALL | re.IGNORECASE)
_TAG = Regex(r"<([A-Za-z][\w-]{0,60})(?:\s[^<>\n]{0,200})?>")
_QUOTED_LINE = Regex(r"^\s*(?:>|\||\$ |# |\+\+\+ |--- |@@ )")
_LOG_LINE = Regex(
    r"^\s*(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\[\d|File \"|at [\w.$]+\(|Traceback \(|"
    r"(?:ERROR|WARN|WARNING|INFO|DEBUG|E|FAILED)\b[ :\[])"
)
_MOST_LINES = 12
"""Lines that somebody types one after the other; more are a paste."""
_BLANK_LINES = Regex(r"\n[^\S\n]*\n\s*")
_SENTENCE = Regex(rf"(?<=[.!?…]){NO_DATE}[\"'”»)\]]*\s+|(?<=[。！？])|\n+|\s+[—–]\s+|;\s+")
_SENTENCE_END = Regex(r"[.!?…。！？][\"'”»)\]`]*(?=\s|$)|[。！？]")
_PROSE_SENTENCE = Regex(rf"(?<=[.!?…]){NO_DATE}[\"'”»)\]`]*\s+|(?<=[。！？])|\n+")
CLAUSE = Regex(r"[;:,]\s+|\s+(?:and|und|et|then|dann|puis)\s+", re.IGNORECASE)
"""Where one part of a sentence ends."""
_MARKUP = Regex(r"^\s*(?:#+|[-*+>]|\d+[.)])\s+")
_WORD = Regex(r"\w+")
_FENCES = ("```", "~~~")
_OPENING_CHARS = 100
"""An opening that is shorter (`Done.`) gets the sentence after it, too."""
_NAME = Regex(r"(?<![.!?:]\s)(?<!^)\b[A-ZÀ-ÖØ-Þ][\w'’-]*[^\W\d_]\b|^[A-ZÀ-ÖØ-Þ][\w-]+(?=['’]s )")
_MONTH = any_of(MONTHS)
_DATE = Regex(rf"\d(?:st|nd|rd|th)? (?:of )?(?:{_MONTH})\b|\b(?:{_MONTH}) \d", re.IGNORECASE)
"""A month beside its number: without one it may be somebody's name."""
_LONG_DAY = 5
"""Letters from which the name of a day is nothing else."""
PARTICULAR = Regex(
    r"\d[\w.:/-]*|\w+(?:[_/.\\:@-]\w+)+|`[^`]+`|https?://\S+|\b[A-Z]{2,}\w*\b|\b[^\W\d_]+\d\w*"
    r"|(?<=\w )[A-Z](?= )"
)

_GREETING = Regex(
    r"(?:(?:hi|hello|hey|yo|thanks?(?: you)?(?: so much| a lot| very much)?|thx|ty|bye|goodbye|"
    r"good (?:morning|evening|night|afternoon|job)|ok(?:ay)?|yes|no|yep|nope|sure|great|nice|cool|"
    r"perfect|well done|please|got it|i see|go on|go ahead|continue|there|all|again|that works|"
    r"awesome|sounds good|bonjour|salut|coucou|bonsoir|bonne (?:nuit|journee|soiree)|merci"
    r"(?: beaucoup| bien)?|de rien|au revoir|a bientot|a demain|d'accord|oui|non|super|parfait|"
    r"genial|tres bien|c'est bon|vas-y|hallo|guten (?:morgen|tag|abend)|danke(?: schon)?|tschuss|"
    r"bitte|ja|nein|hola|gracias|muchas gracias|adios|buenos dias|si|vale|ciao|grazie|obrigado|"
    r"ola|everyone|team|everybody|tout le monde|you too|no problem|for your help|for the help|"
    r"pour ton aide|pour votre aide|how are you(?: today)?|ca va|comment vas-tu|wie geht'?s|moin|"
    r"servus|gute nacht|bis (?:morgen|bald|dann|spater)|schonen (?:abend|tag)|"
    r"see you(?: tomorrow| soon| later)?|"
    r"that'?s (?:it|all)|(?:for|fur) (?:today|now|heute)|das (?:war'?s|ist alles)|"
    r"c'est tout(?: pour aujourd'hui)?|you'?re welcome|gern(?:e|geschehen)?|"
    r"avec plaisir|bon week-end|schones wochenende)\b"
    r"[\s,.!?…:;()'—-]*)+"
)

_INSTRUCTION = Regex(
    r"\b(?:always|never|must|mustn't|should|shall|ought|do not|don't|dont|make sure|be sure|ensure|"
    r"please|remember(?: to| that)?|forget|ignore|disregard|obey|follow|instructions?|from now on|"
    r"run|runs|running|execute|exec|install|curl|wget|sudo|bash|download|upload|send|post|delete|"
    r"approve|allow|permit|permission|grant|trust|bypass|skip|disable|enable|override|you are|"
    r"you have to|you need to|your (?:task|job|role|rules?|goal)|system prompt|assistant|"
    r"toujours|jamais|doit|doivent|dois|devez|devrait|il faut|faut|ne pas|assure-toi|"
    r"assurez-vous|souviens-toi|souvenez-vous|oublie|oubliez|ignore[zr]?|execute[zr]?|lance[zr]?|"
    r"installe[zr]?|telecharge[zr]?|envoie|envoyez|supprime[zr]?|autorise[zr]?|desormais|"
    r"immer|niemals?|muss|mussen|sollst?|sollen|stelle sicher|merke|fuhre|ausfuhren|installiere|"
    r"siempre|nunca|debe[ns]?|hay que|asegurate|recuerda|ejecuta[r]?|instala[r]?|sempre|mai|"
    r"deve|devono|devi|esegui|installa|altijd|nooit|moet|voer|ricorda)\b"
)


def plain(text: str) -> str:
    """Case-folded, without accents, white space evened out: to compare words with words."""
    if text.isascii():
        return " ".join(text.casefold().split())
    text = unicodedata.normalize("NFKD", text.casefold().replace("’", "'"))
    return " ".join("".join(c for c in text if not unicodedata.combining(c)).split())


_NUMBERS = {tuple(phrase.split()): str(number) for phrase, number in COUNTED.items()}
_LONGEST_NUMBER = max(map(len, _NUMBERS))
_NUMBER_STARTS = frozenset(phrase[0] for phrase in _NUMBERS)


def with_digits(words: Sequence[str]) -> list[str]:
    """Plain words with each number that is spelled out in digits: to compare, never to show."""
    found, at = [], 0
    while at < len(words):
        if words[at] in _NUMBER_STARTS:
            for length in range(_LONGEST_NUMBER, 0, -1):
                if digits := _NUMBERS.get(tuple(words[at : at + length])):
                    found.append(digits)
                    at += length
                    break
            else:
                found.append(words[at])
                at += 1
        else:
            found.append(words[at])
            at += 1
    return found


def without_piped(message: str) -> str:
    """What stands in a prompt beside the text that was piped into the command."""
    return _STDIN.sub("\n", message)


def own_words(message: str) -> str:
    """What the person typed, without what they pasted: fences, <stdin>, tags, quotes, logs,
    and blocks of many lines.

    In doubt it counts as pasted: what isn't theirs must not get their authority.
    """
    text = without_piped(clean(message)[: 2 * _LONGEST_READ])
    text = _without_tagged(text)[:_LONGEST_READ]
    lines, fence = [], ""
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1].startswith(fence) and not mark[2].strip():
            fence = ""
        elif not fence and not _QUOTED_LINE.match(line) and not _LOG_LINE.match(line):
            lines.append(line)
    blocks = _BLANK_LINES.split("\n".join(lines))
    return "\n\n".join(block for block in blocks if block.count("\n") < _MOST_LINES)


def _without_tagged(text: str) -> str:
    """Without <system>…</system>, <file>…</file> and the like: nobody talks in those."""
    folded, kept, at = text.casefold(), [], 0
    # Casefolding may lengthen a text: then places in it say nothing, and all is kept as it is.
    if len(folded) != len(text):
        folded = text
    unclosed: set[str] = set()
    for match in _TAG.finditer(text):
        end = f"</{match[1].casefold()}"
        if match.start() < at or end in unclosed:
            continue
        close = folded.find(end, match.end())
        if close < 0:
            unclosed.add(end)
            continue
        kept.append(text[at : match.start()])
        at = close + len(end)
        at = text.find(">", at) + 1 or len(text)
    return "\n".join([*kept, text[at:]])


def prose(text: str) -> str:
    """An answer without its code blocks and quotes."""
    return own_words(text)


def sentences(text: str) -> list[str]:
    """In order, on one line each, without marks of lists and headings."""
    found = [one_line(_MARKUP.sub("", part), _LONGEST_READ) for part in _SENTENCE.split(text)]
    return [sentence for sentence in found if _WORD.search(sentence)]


def prose_sentences(text: str) -> list[str]:
    """The sentences of a text: code blocks are left out, marks of headings and lists too."""
    text = _without_code(redact(clean(text))[:_LONGEST_READ])
    found = [one_line(_MARKUP.sub("", part), 2_000) for part in _PROSE_SENTENCE.split(text)]
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


def opening(sentences: Sequence[str], limit: int) -> str:
    """The first sentences: one, or more where it is short."""
    taken = ""
    for sentence in sentences:
        if taken and (len(taken) >= _OPENING_CHARS or len(taken) + len(sentence) >= limit):
            break
        taken = f"{taken} {sentence}".strip()
    return clip_sentences(taken, limit)


def clip_sentences(text: str, limit: int) -> str:
    """At most `limit` characters, ended after a sentence where that keeps half of the room."""
    if len(text) <= limit:
        return text
    ends = [match.end() for match in _SENTENCE_END.finditer(text, 0, limit)]
    if ends and ends[-1] >= limit // 2:
        return text[: ends[-1]]
    return one_line(text, limit)


def names_in(text: str) -> frozenset[str]:
    """What is written as names are, but for dates; a first word only as an owner ("Ana's")."""
    names = [plain(name) for name in _NAME.findall(_DATE.sub(lambda date: date[0].lower(), text))]
    found = frozenset(name for name in names if name not in WEEKDAYS or len(name) < _LONG_DAY)
    if not found and (first := re.match(r"[A-ZÀ-ÖØ-Þ][\w-]+", text)):
        word = plain(first.group())
        return frozenset() if is_stop_word(word, None) else frozenset([word])
    return found


def particulars(text: str) -> frozenset[str]:
    """Its numbers, paths, identifiers, addresses and names: never a turn of phrase."""
    found = [hard.strip("`.,:;") for hard in PARTICULAR.findall(text)]
    return frozenset(map(plain, found)) | names_in(text)


def is_instruction(text: str) -> bool:
    """Whether it tells somebody to do something: never kept from a file, an output, or a model."""
    return _INSTRUCTION.search(plain(text)) is not None


def is_greeting(text: str) -> bool:
    """Whether it says no more than hello, thanks or yes."""
    return len(text) <= _LONGEST_GREETING and _GREETING.fullmatch(plain(text)) is not None


def holds_secret(text: str) -> bool:
    """Whether a secret stood in it that was replaced."""
    return "[redacted: " in text
