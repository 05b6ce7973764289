"""Text rules: the user's own words, sentences, names, greetings, and kinds of prompts."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from datetime import datetime

from ragmem.memory.date_words import ANYTHING, MONTHS, WEEKDAYS, any_of, word_set
from ragmem.redact import redact
from ragmem.terms import guess_language, is_stop_word, query_terms
from ragmem.text import IN_SENTENCE, Regex, clean, one_line

_LONGEST_READ = 20_000
_LONGEST_GREETING = 200
_FENCE = Regex(r"^\s*(`{3,}|~{3,})(.*)$")
# The tags are on lines of their own. The last end tag counts, since piped text may contain one.
_STDIN = Regex(r"(?:^|\n)<stdin>\n(?:.*\n</stdin>|.*\Z)", re.DOTALL | re.IGNORECASE)
_COMMAND = Regex(r"(?:^|\n)<command>\n(?:.*\n</command>|.*\Z)", re.DOTALL)
"""A command's text, in the form of `of_command`; an end tag inside it does not end it."""
_TAG = Regex(r"<([A-Za-z][\w-]{0,60})(?:\s[^<>\n]{0,200})?>")
_QUOTED_LINE = Regex(r"^\s*(?:>|\||\$ |# |\+\+\+ |--- |@@ )")
# "2026-01-02 03:04:05 ERROR …", 'File "a.py", line 3', "ERROR: …".
_LOG_LINE = Regex(
    r"^\s*(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\[\d|File \"|at [\w.$]+\(|Traceback \(|"
    r"(?:ERROR|WARN|WARNING|INFO|DEBUG|E|FAILED)\b[ :\[])"
)
_MOST_LINES = 12
"""A block with so many line breaks counts as pasted."""
_BLANK_LINES = Regex(r"\n[^\S\n]*\n\s*")
# Where sentences are split: "It works. Now …", a line break, " — ", "; "; not after an abbreviation
# ("e.g. of Prof. Lindqvist").
_SENTENCE = Regex(
    rf"(?<=[.!?…]){IN_SENTENCE}[\"'”»)\]]*\s+|(?<=[。！？])|\n+|(?<![^\S\n])[^\S\n]+[—–]\s+|;\s+"
)
_SENTENCE_END = Regex(r"[.!?…。！？][\"'”»)\]`]*(?=\s|$)|[。！？]")
_PROSE_SENTENCE = Regex(rf"(?<=[.!?…]){IN_SENTENCE}[\"'”»)\]`]*\s+|(?<=[。！？])|\n+")
CLAUSE = Regex(r"[;:,]\s+|\s+(?:and|und|et|then|dann|puis)\s+", re.IGNORECASE)
"""The separators between the parts of a sentence."""
_MARKUP = Regex(r"^\s*(?:#+|[-*+>]|\d+[.)])\s+")
_WORD = Regex(r"\w+")
_OPENING_CHARS = 100
"""A shorter opening (`Done.`) is extended by the next sentence."""
# A capitalized word inside a sentence, or at its beginning with 's: "Ana's".
_NAME = Regex(r"(?<![.!?:]\s)(?<!^)\b[A-ZÀ-ÖØ-Þ][\w'’-]*[^\W\d_]\b|^[A-ZÀ-ÖØ-Þ][\w-]+(?=['’]s )")
_MONTH = any_of(MONTHS)
_DATE = Regex(rf"\d(?:st|nd|rd|th)? (?:of )?(?:{_MONTH})\b|\b(?:{_MONTH}) \d", re.IGNORECASE)
"""A month next to a number; without one it may be a name ("May", "April")."""
# Matches "2026-05-03", "3. Mai", "May 3rd, 2026", "9 pm", "14:30" and "by Friday".
WHEN = Regex(
    rf"\b\d{{4}}-\d\d-\d\d\b|\b\d\d?[./]\d\d?[./]\d{{4}}\b|\b\d\d?/\d\d?/\d\d\b|"
    rf"\b(?:\d\d?(?:st|nd|rd|th|er|\.)?(?: of)? (?:{_MONTH})|(?:{_MONTH}) \d\d?(?:st|nd|rd|th)?)\b"
    r"(?:,? \d{4}\b)?|\b\d\d?(?::\d\d)? ?(?:am(?! \d)|pm|o'clock|uhr|h\d{0,2})\b|\b\d\d?:\d\d\b|"
    r"\b(?:by|on|before|until|to|from|for|next|this|due|is|now|am|bis|zum|auf|ist|nachsten|"
    rf"kommenden|le|au|avant|pour|ce|est|d'ici) (?:{any_of(WEEKDAYS)})\b"
)
"""A day or an hour in `plain` text; a weekday after any other word may be part of a name."""
_LONG_DAY = 5
"""The letters from which a weekday's name can't be another word."""
# A number, path, identifier, `code`, address or acronym: "8080", "src/a.py", "snake_case", "API".
PARTICULAR = Regex(
    r"\d[\w.:/-]*|\w+(?:[_/.\\:@-]\w+)+|`[^`]+`|https?://\S+|\b[A-Z]{2,}\w*\b|\b[^\W\d_]+\d\w*"
    r"|(?<=\w )[A-Z](?= )"
)

# Matches "Hello there, thanks a lot!"; must not match "Hello, I moved to Lyon".
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

# Matches "You must always run X" and "Il faut toujours lancer X"; must not match "The server
# listens on port 80".
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
    """Return a text casefolded, without accents, and with single spaces, to match words in it."""
    if text.isascii():
        return " ".join(text.casefold().split())
    text = unicodedata.normalize("NFKD", text.casefold().replace("’", "'"))
    return " ".join("".join(c for c in text if not unicodedata.combining(c)).split())


def without_piped(message: str) -> str:
    """Return a prompt without the text that was piped into ragmem."""
    return _STDIN.sub("\n", message)


def own_words(message: str) -> str:
    """Return what the user typed, without pasted text and the text of commands: fenced blocks,
    <stdin>, tags, quotes, logs, and blocks of many lines.

    In doubt, text counts as pasted: what isn't the user's must not get their authority.
    """
    # Before clipping, which could cut off the real end of such a block and leave a fake one.
    text = _COMMAND.sub("\n", without_piped(clean(message)))
    text = _without_tagged(text[: 2 * _LONGEST_READ])[:_LONGEST_READ]
    lines = [
        line
        for line in _unfenced(text)
        if not _QUOTED_LINE.match(line) and not _LOG_LINE.match(line)
    ]
    blocks = _BLANK_LINES.split("\n".join(lines))
    return "\n\n".join(block for block in blocks if block.count("\n") < _MOST_LINES)


def _without_tagged(text: str) -> str:
    """Remove <system>…</system>, <file>…</file> and the like, which users don't type."""
    folded, kept, at = text.casefold(), [], 0
    # If casefolding changes the length, offsets don't match: then only lower-case end tags count.
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


def sentences(text: str) -> list[str]:
    """Return the sentences in order, on one line each, without marks of lists and headings."""
    found = [one_line(_MARKUP.sub("", part), _LONGEST_READ) for part in _SENTENCE.split(text)]
    return [sentence for sentence in found if _WORD.search(sentence)]


def prose_sentences(text: str) -> list[str]:
    """Return the sentences of a text, without code blocks and marks of headings and lists."""
    text = "\n".join(_unfenced(redact(clean(text))[:_LONGEST_READ]))
    found = [one_line(_MARKUP.sub("", part), 2_000) for part in _PROSE_SENTENCE.split(text)]
    return [sentence for sentence in found if any(map(str.isalnum, sentence))]


def _unfenced(text: str) -> Iterator[str]:
    fence = ""
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1].startswith(fence) and not mark[2].strip():
            fence = ""
        elif not fence:
            yield line


def opening(sentences: Sequence[str], limit: int) -> str:
    """Return the first sentence, and further ones as long as the result is short."""
    taken = ""
    for sentence in sentences:
        if taken and (len(taken) >= _OPENING_CHARS or len(taken) + len(sentence) >= limit):
            break
        taken = f"{taken} {sentence}".strip()
    return clip_sentences(taken, limit)


def clip_sentences(text: str, limit: int) -> str:
    """Cut to `limit` characters, at the end of a sentence if that keeps at least half of them."""
    if len(text) <= limit:
        return text
    ends = [match.end() for match in _SENTENCE_END.finditer(text, 0, limit)]
    if ends and ends[-1] >= limit // 2:
        return text[: ends[-1]]
    return one_line(text, limit)


def names_in(text: str) -> frozenset[str]:
    """Return the capitalized names in a text, in `plain` form, without dates.

    The first word counts only with 's ("Ana's"), or if there is no other and it is no stop word.
    """
    names = [plain(name) for name in _NAME.findall(_DATE.sub(lambda date: date[0].lower(), text))]
    found = frozenset(name for name in names if name not in WEEKDAYS or len(name) < _LONG_DAY)
    if not found and (first := re.match(r"[A-ZÀ-ÖØ-Þ][\w-]+", text)):
        word = plain(first.group())
        return frozenset() if is_stop_word(word, None) else frozenset([word])
    return found


def particulars(text: str) -> frozenset[str]:
    """Return a text's numbers, paths, identifiers, addresses and names, in `plain` form."""
    found = [hard.strip("`.,:;") for hard in PARTICULAR.findall(text)]
    return frozenset(map(plain, found)) | names_in(text)


_BEFORE_VALUES = word_set(
    """is are was were has have had uses use used runs run costs cost takes take listens lives
    pays needs works moved we i it he she they
    ist sind war waren hat haben hatte nutzt nutzen lauft lauscht kostet dauert braucht
    wir ich er sie
    est sont etait ont avait utilise utilisons tourne ecoute coute dure habite nous je il elle
    tiene usa usamos cuesta vive sono ha costa dura tem custa heeft kost gebruikt"""
)
"""Common verbs between a thing and its value, and pronouns, which stand before such a verb."""
_THAT = Regex(r"\b(?:that|dass|que|che|dat)\b")
# What follows the number of an amount: "30 seconds", "60 cm", "11 %".
_UNIT = Regex(
    r" ?(?:%|(?:percent|prozent|pour cent|ms|s|sec\w*|sek\w*|min\w*|h|hours?|stunden?|heures?|"
    r"days?|tage?n?|jours?|nights?|nachte?n?|nuits?|weeks?|wochen?|semaines?|months?|monate?n?|"
    r"mois|years?|jahre?n?|ans?|mm|cm|m|km|kg|g|kb|mb|gb|tb|euros?|eur|dollars?|usd|times|mal|"
    r"fois)\b)"
)


# "main.py is the entry point": only one thing is, so that it is the value.
_THE_ONE = Regex(r"\W*((?:is|ist|est) (?:(?:the|der|die|das|le|la)\b|l['’]).*?)[.! ]*")
_VERSIONED = word_set(
    """python node nodejs java ruby php go rust perl postgres postgresql mysql mariadb sqlite redis
    mongodb neo4j elasticsearch django rails flask laravel react angular vue spring ubuntu debian
    fedora alpine windows macos ios android kernel linux gcc clang version v release api sdk"""
)
"""Names before the number of a version, which is a value."""


def _is_version(number: str, before: Sequence[str]) -> bool:
    return "." in number or (bool(before) and before[-1] in _VERSIONED)


def is_of_subject(particular: str, text: str, other: str = "") -> bool:
    """Whether a statement is about the thing that has this particular ("Room 12 has a beamer"): it
    stands before the verb or, if that isn't a common one, before most of the words.

    Not if the other statement says of another that it is the one: "web2 is the staging host".
    """
    parts = re.split(rf"(?<!\w){re.escape(particular)}(?!\w)", plain(text), maxsplit=1)
    before, after = (_WORD.findall(part) for part in (_THAT.split(parts[0])[-1], parts[-1]))
    if len(parts) == 1 or ": " in parts[0] or not _BEFORE_VALUES.isdisjoint(before):
        return False
    if particular[-1:].isdigit() and (_UNIT.match(parts[1]) or _is_version(particular, before)):
        return False
    language = guess_language(text)
    few, many = (sum(not is_stop_word(w, language) for w in words) for words in (before, after))
    the_one = None if few else _THE_ONE.fullmatch(parts[1])
    if the_one and plain(other).rstrip(".! ").endswith(the_one[1]):
        return False
    has_verb = not _BEFORE_VALUES.isdisjoint(after) or after[:1] == ["a"]  # French: "has"
    return has_verb or few < many


def is_instruction(text: str) -> bool:
    """Whether a text gives instructions: such text is never kept from a file, output or model."""
    return _INSTRUCTION.search(plain(text)) is not None


def is_greeting(text: str) -> bool:
    """Whether a text says no more than hello, thanks or yes."""
    return len(text) <= _LONGEST_GREETING and _GREETING.fullmatch(plain(text)) is not None


def holds_secret(text: str) -> bool:
    """Whether a secret in the text was redacted."""
    return "[redacted: " in text


# --- kinds of prompts ------------------------------------------------------------------

_LONGEST_PROMPT = 160
# Matches "Where were we?", "Weiter geht's!" and "Où en étions-nous ?"; what else the prompt names
# ("Continue with the login page") is left to `points_back`.
_BACK = Regex(
    r"\b(?:continue|carry on|go on|keep going|proceed|resume|pick (?:it |this |that )?(?:back )?up|"
    r"where (?:were|are|did) we|where (?:we|i) (?:left|stopped|were|was)|"
    r"what(?:'s| is| was|s)? (?:next|left|open|pending|missing|remaining|still)|what remains|"
    r"what (?:did|have|had|were) (?:we|i|you)|next steps?|next|recap|status|catch me up|"
    r"(?:last|previous) (?:time|session)|left off|"
    r"weiter(?:machen|gehen)?|fortsetzen|fortfahren|wo (?:waren|sind|standen|stehen) wir|"
    r"(?:wo|was) haben wir|stehen ?geblieben|aufgehort|als nachstes|was (?:fehlt|bleibt|steht)|"
    r"noch offen|noch zu tun|stand der dinge|wie ist (?:denn )?(?:der|unser) stand|"
    r"letztes mal|zuletzt|letzten? sitzung|"
    r"continuons|continuer|on continue|reprenons|reprendre|on reprend|la suite|et ensuite|"
    r"ou en (?:etions|sommes|est|etait)|(?:que|il|qui) reste|prochaines? etapes?|derniere fois|"
    r"qu'avons-nous|qu'a-t-on|qu'est-ce qu'on (?:a|avait|faisait)|"
    r"donde (?:lo )?(?:estabamos|ibamos|dejamos|quedamos)|que (?:queda|falta)|"
    r"dove (?:eravamo|siamo)|onde (?:estavamos|paramos|ficamos))\b"
)
# Matches "Quick one, unrelated: what is a quine?"; must not match "Which tests are unrelated to
# this change?" or "Give the button a totally different colour."
_LEAVES = Regex(
    r"\W*(?:(?:ok(?:ay)?|so|now|hey|just|quick|and|mal|und|kurz|kurze|noch|et|bon|sinon|un|une|"
    r"a|an|one|on|something|question|frage|etwas|petite)\W+){0,4}"
    r"(?:unrelated|off[- ]?topic|not related|(?:this )?(?:has )?nothing to do with|"
    r"(?:completely|entirely|totally|quite|something) (?:different|else|other|unrelated)|"
    r"(?:et)?was (?:ganz|vollig|komplett) anderes|ganz (?:et)?was anderes|ganz andere frage|"
    r"(?:hat )?nichts damit zu tun|themawechsel|rien a voir|hors[- ]sujet|"
    r"(?:tout|toute) autre (?:chose|question)|(?:aucun|sans) rapport)"
    r"(?: (?:question|frage|topic|thema|sujet))?\W*(?:[:,.;!–—-]|$)"
)
# Matches "Didn't we have that once?" and "Woran lag es, dass der Ofen ausging?"; must not match
# "Why does the kiln stop?" or "Have we got time?"
_BEFORE = Regex(
    r"\b(?:deja[- ]vu|(?:did|had|were|was)(?:n't| not)? (?:we|us)|we(?:'d| had| did)|"
    r"have(?:n't)? we (?!got\b)\w+(?:ed|en|t|ne)\b|"
    r"(?:what|why|how|where|when|which|who)\b[^.?!]{0,40} (?:was|were|did|had)|"
    r"(?:hatten?|waren) (?:wir|uns)|wir hatten|"
    r"haben wir\b[^.?!]{0,60} (?:ge\w+|\w+iert)\b|"
    r"(?:was|warum|wieso|weshalb|wie|wo|wann|welche\w*|wer|wor\w+|womit)\b[^.?!]{0,40} "
    r"(?:war|waren|hatten?|ging|gingen|lag|kam|kamen|lief|liefen|wurden?)|"
    r"(?:on|nous) (?:avait|avions|etait|etions)|"
    r"(?:on a|nous avons) (?:fait|mis|dit|pris|vu|eu|choisi|decide|regle|corrige|change|laisse|"
    r"utilise|ajoute|arrete|trouve|resolu|convenu)|(?:avait|a-t|etait)-on|avions-nous|"
    r"avons-nous|(?:pourquoi|comment|quand|quel\w*|qui|ou)\b[^.?!]{0,40} "
    r"(?!\w*rait)(?!(?:fait|sait|parfait|trait|extrait|retrait|portrait)\b)\w+(?:ait|aient))\b"
)
_ASKED = Regex(
    r"(?:(?:so|and|but|now|then|und|aber|also|et|mais|alors|donc|bon)\W+)?(?:what|why|how|where|"
    r"when|which|who|was|warum|wieso|weshalb|wie|wo|wann|welche\w*|wer|wor\w+|womit|pourquoi|"
    r"comment|quand|quel\w*|qui|ou|haben wir|hatten wir|have we|did we)\b"
)
_WENT_WRONG = Regex(
    r"\b(?:(?:go|goes|gone|going|went) wrong|fail(?:s|ed|ing|ures?)?|broken?|breaks|schief\w*|"
    r"fehlgeschlagen|gescheitert|nicht geklappt|echou\w+|echecs?|mal passe\w*|pas marche)\b"
)
_FILLER = word_set(
    """let lets us our please now today again yesterday session sessions time work working
    works task tasks thing things do did done doing does go going start started stop
    stopped left leave off up open still back want need last previous where what whats
    which next step steps ok okay so and then well hello hi hey morning good tell me about
    with on in of the to it this that we you i remaining remain pending missing talk
    talked talking discuss discussed decide decided finish finished change changed before
    earlier project here everything anything something continue
    weiter bitte jetzt heute gestern noch mal los wir uns machen mach gemacht tun arbeit
    arbeiten sitzung letzte letzten letztes offen dran stand dinge schritt nachste
    nachster nachsten nachstes hallo moin servus guten morgen kommt geht steht fehlt bleibt ist
    was wo haben waren sind als an
    il te vous plait maintenant aujourd hui hier qu est ce que encore travail faire fait
    faisions seance derniere fois prochaine etape bonjour reste on nous ou en etions
    sommes suite est restes por hacer hoy rimasti arrivati fazer hoje"""
)
_LETTERS = Regex(r"[^\W\d_]{2,}")
_KNOWING = word_set(
    """know knows known learn learned learnt store stored memory memories fact facts note notes
    information info person user name before previous previously past earlier last time latest
    recent recently already people
    sais sait savez savoir connais connait souviens souvient souvenir retenu memorise
    memoire avant precedemment derniere fois dernier appris fait faits
    weisst wissen kennst erinnerst uber mich mir vorher zuletzt letztes mal
    sabes conoces recuerdas antes
    sai conosci ricordi prima weet"""
)
_ASKING = Regex(
    r"[?？]|\b(?:what|who|which|tell|recap|remind|summari[sz]e|list|show|remember|que|quoi|qui|"
    r"quels?|quelles?|rappelle|raconte|resume|was|wer|welche|que|quien|cosa|chi)\b"
)
TOPICAL = frozenset(["word", "name", "identifier", "part", "number"])
"""The kinds of query terms that name a topic, and are not ends or stems of other terms."""


def is_generic(text: str) -> bool:
    """Whether a prompt asks for anything known or said: "what do you know about me?"."""
    flat = plain(text)
    if len(flat) > 200 or not _ASKING.search(flat):
        return False
    words = query_terms(flat.replace("-", " "))
    left = {term.term for term in words if term.kind in TOPICAL}
    return bool(words) and left <= (ANYTHING | _KNOWING)


def points_back(text: str) -> bool:
    """Whether a prompt refers to earlier work without naming any of it: "Where were we?"."""
    flat = plain(text)
    if len(flat) > _LONGEST_PROMPT:
        return False
    if is_generic(text):
        return True
    if not _BACK.search(flat) or any(map(str.isdecimal, flat)):
        return False
    return _is_filler(_BACK.sub(" ", flat), text)


def asks_what_failed(text: str) -> bool:
    """Whether a prompt asks about any earlier failure: "What failed last time?"."""
    flat = plain(text)
    if len(flat) > _LONGEST_PROMPT or not _WENT_WRONG.search(flat):
        return False
    return _is_filler(_WENT_WRONG.sub(" ", flat), text)


def _is_filler(rest: str, text: str) -> bool:
    """Whether the `rest` of a prompt has only fillers and stop words, in the language of `text`."""
    language = guess_language(text)
    return all(
        is_stop_word(word, language) or is_stop_word(word, "english")
        for word in set(_LETTERS.findall(rest)) - _FILLER
    )


def leaves_subject(text: str) -> bool:
    """Whether a prompt begins by saying that it is off topic: "Quick one, unrelated: …"."""
    return _LEAVES.match(plain(text[:_LONGEST_PROMPT])) is not None


def asks_of_before(text: str) -> bool:
    """Whether a question presupposes that something was said or done: "How had we fixed that?".

    Without a question mark, a sentence that begins with a question word is one.
    """
    flat = plain(text)
    asked = [flat] if "?" in text else [part for part in sentences(flat) if _ASKED.match(part)]
    return any(_BEFORE.search(part) for part in asked)


def names_nothing(text: str, now: datetime) -> bool:
    """Whether a prompt has nothing to search for: it points back (`points_back`), without a time.

    "What do you know about me?" has: it asks for anything known.
    """
    if _BACK.search(plain(text)) is None or not points_back(text):
        return False
    from ragmem.memory.dates import time_spans

    return not time_spans(text, now)
