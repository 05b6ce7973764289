"""How a person wants things to be: read from signs, since nobody can list all phrases for it.

One sign says little: "no", "please", or that a sentence is about comments. A sentence that has
several of them, or that the answer takes note of, says how work is to be done from then on.
"""

from ragmem.memory.facts.words import plain
from ragmem.text import Regex

_ENOUGH = 3
"""Of what the signs of a sentence count."""
_LEAST_WORDS = 3
_LEAST_KEPT = 5
"""Words of what is kept only since the answer takes note of it."""
_ANSWER_CHARS = 160
"""In so many at its beginning an answer takes note."""

_AGREED = r"^(?:(?:sure|ok(?:ay)?|right|yes|good|fine|gut|bien|ja|oui)[,.:!;]? )*"
_NOTED = Regex(
    rf"{_AGREED}(?:noted|understood|"
    r"got it|will do|agreed|makes sense|from now on|i(?:'ll| will) (?:keep|remember|stick|avoid|"
    r"follow|bear|do (?:so|that|it)|write|use)|verstanden|alles klar|notiert|gemerkt|"
    r"mache ich|geht klar|in ordnung|einverstanden|ich (?:halte|merke|werde|nehme)|"
    r"entendu|d'accord|compris|note\b|c'est note|bien note|je (?:m'y tiens|retiens|garde|note))\b"
    r"|\bi'll keep to (?:it|that)\b|\bnoted\b"
)
_KEPT = Regex(
    rf"{_AGREED}(?:understood|"
    r"i(?:'ll| will) (?:keep|remember|bear)|verstanden|notiert|gemerkt|ich (?:merke|notiere)|"
    r"entendu|compris|note\b|c'est note|bien note|je (?:retiens|note))\b|\bnoted\b"
)
"""The same of what was told, where the answer says that it keeps that in mind."""
_BAN = Regex(
    r"(?:^|[,:;(] ?|\b(?:and|but|also|please|und|bitte|et|mais|aussi) )"
    r"(?:no |keine?n? |pas (?:de |d'))(?!(?:one|need|idea|problem|worries|matter|way|longer|doubt|"
    r"errors?|more|space|money|rush|ahnung|panik|problem|eile|souci|doute|probleme)\b)\w{2,}"
)
_OF_WORK, _WANTED, _IN_GENERAL, _IN_PASSING, *_OTHERS = (
    Regex(pattern)
    for pattern in (
        # What work is made of
        r"\b(?:code|coding|comments?|docstrings?|commits?|messages?|names?|naming|named|"
        r"identifiers?|abbreviations?|tests?|mocks?|functions?|methods?|classes|lines?|indent\w*|"
        r"tabs?|spaces?|types?|type hints|annotations?|answers?|repl(?:y|ies)|explanations?|"
        r"units?|dates?|emojis?|style|quotes|commas?|semicolons?|dependenc\w+|packages?|librar\w+|"
        r"frameworks?|branch(?:es)?|prs?|pull requests?|docs?|documentation|headings?|titles?|"
        r"figures?|plots?|charts?|columns?|diffs?|english|german|french|spanish|spelling|"
        r"sentences?|words|colou?rs?|"
        r"kommentare?n?|namen|bezeichner|abkurzungen|funktionen|methoden|zeilen?|zeichen|"
        r"einruckung\w*|antworten|einheiten|datum|satze?n?|worter|meldungen|uberschriften|"
        r"spalten?|diagramme?|farben|deutsch\w*|englisch\w*|franzosisch\w*|abhangigkeiten|"
        r"pakete?|bibliotheken|"
        r"commentaires?|noms?|fonctions?|variables?|lignes?|indentation|reponses?|unites?|"
        r"phrases?|mots|titres?|graphiques?|couleurs?|colonnes?|francais|anglais|allemand|"
        r"dependances?|paquets?|bibliotheques?|abreviations?)\b",
        # That somebody wants it
        r"\b(?:please|pls|i (?:prefer|want|like|hate|love|can't stand)|i'd (?:like|rather)|wants?|"
        r"spare me|bitte|lieber|will (?=.*\b(?:und|nicht|keine?n?|immer|nur)\b)|"
        r"(?:ich|wir) (?:mochte|mag|hasse|brauche)|"
        r"(?:mir|uns) (?:ein )?(?:graus|wichtig|lieb)\w*|stort mich|nervt|"
        r"s'il (?:te|vous) plait|stp|svp|je (?:prefere|veux|deteste|tiens)|j'aime\w*|merci de)\b",
        # That it holds in general
        r"\b(?:always|all|every(?:thing|where|one)?|any|in (?:new|all|my|your) (?:code|projects?|"
        r"files?|texts?)|only|in general|from (?:now|today)(?: on)?|usually|mostly|whenever|each|"
        r"at most|under \d+|as a rule|rule|immer|alle[sn]?|jede[rsmn]?|uberall|nur|grundsatzlich|"
        r"ab jetzt|kunftig|meist(?:ens)?|hochstens|uber \d+|unter \d+|toujours|tous|toutes|"
        r"chaque|partout|seulement|uniquement|desormais|maximum|au plus(?! tard)|d'habitude|"
        r"dans (?:ce|le|tout le) (?:projet|code))\b",
        # That it is said in passing
        r"^(?:(?:ok|okay|and|so|und|et|ach)[,.]? )*(?:by the way|btw|oh,? (?:and|also)|also|"
        r"one (?:more|other|last) thing|another thing|fyi|for the record|note that|ubrigens|"
        r"nebenbei|noch (?:was|etwas)|ach ja|au fait|au passage|d'ailleurs|sinon|a propos)\b|"
        r"\b(?:btw|by the way|ubrigens|au fait)[.!]*$",
        # That something is not to be
        r"\b(?:no|not|don't|do not|never|without|avoid|instead of|rather than|kein\w*|nicht|nie|"
        r"niemals|ohne|statt|pas|jamais|sans|plutot que)\b",
        # How the person works
        r"\b(?:i (?:read|review|skim|use|work|print|look at|open|keep|am|can't|have to)|i'm|we're|"
        r"my (?:eyes|screen|phone|editor|laptop|team)|"
        r"ich (?:lese|arbeite|nutze|bin|habe|sehe|kann|schaue)|"
        r"mein\w* (?:handy|bildschirm|laptop|editor|augen)|"
        r"je (?:relis|lis|travaille|suis|ne (?:parle|lis|vois)|n'ai)|"
        r"mon (?:ecran|telephone|editeur)|moi)\b",
    )
)
_ONCE = Regex(
    r"\b(?:says?|said|reports?|this|that one|these|those|here|hier|diese[rsmn]?|ici|cette?|ces|"
    r"(?:line|zeile|ligne) \d+)\b|\b[\w/]+\.(?:py|js|ts|md|html|css|c|h|rs|go|ml|sh|toml|ya?ml|"
    r"json|csv|r)\b"
)
"""What is before one's eyes, or somebody else's words."""
_PAST = Regex(
    r"\b(?:was|were|did|had|yesterday|(?:you|it|he|she|they|we) \w+ed|fails?|failed|broke|war|"
    r"hatte|gestern|etait|avait|hier)\b"
)
_ORDER = Regex(
    r"^(?:(?:ok(?:ay)?|and|so|now|then|please|und|et|bitte|dann|jetzt),? )*(?:add|fix|remove|"
    r"rename|move|make|delete|run|show|change|check|update|build|create|put|set|turn|try|look|"
    r"find|draw|plot|load|clean|open|read|explain|undo|convert|write (?:a|the)|fug\w*|schreib|"
    r"mach|zeig|bau|losch\w*|ander\w*|wandle|pruf\w*|plan|ajoute|ecris|corrige|fais|supprime|"
    r"montre|regarde|mets|trace|traduis)\b"
    r"|\b(?:for (?:now|today)|vorerst|erst ?mal|zunachst|pour l'instant)\b"
)
"""What is to be done now, or holds for now."""
_OF_SELF = Regex(r"\b(?:i|i'(?:m|d|ve)|my|ich|mein\w*|mir|mich|je|j'\w+|mon|ma|mes|moi)\b")


def is_kept(sentence: str, answer: str) -> bool:
    """Whether a sentence tells something that the answer says to have understood or noted; what is
    to be done now is none."""
    flat = plain(sentence)
    is_told = len(flat.split()) >= _LEAST_KEPT and not _ORDER.search(flat)
    return is_told and _KEPT.search(plain(answer[:_ANSWER_CHARS])) is not None


def is_wish(sentence: str, answer: str) -> bool:
    """Whether a sentence of the person says how things are to be, and not only this once; an answer
    that takes note of it is a sign of that."""
    flat = plain(sentence)
    noted = _NOTED.search(plain(answer[:_ANSWER_CHARS])) is not None
    is_willed = [sign.search(flat) is not None for sign in (_BAN, _WANTED, _IN_PASSING)]
    of_what = [sign.search(flat) is not None for sign in (_OF_WORK, _IN_GENERAL)]
    # What only says that something is not so may be a fault that is reported.
    may_be = any(is_willed) or (noted and any(of_what))
    if flat.endswith("?") or len(flat.split()) < _LEAST_WORDS or not may_be:
        return False
    signs = sum(is_willed) + sum(of_what) + 2 * noted
    signs += sum(sign.search(flat) is not None for sign in _OTHERS)
    against = (_ONCE.search(flat) is not None) + (_PAST.search(flat) is not None)
    against += 2 * (_ORDER.search(flat) is not None)
    return signs - against >= _ENOUGH


def is_of_self(sentence: str) -> bool:
    """Whether somebody speaks of themselves in it."""
    return _OF_SELF.search(plain(sentence)) is not None
