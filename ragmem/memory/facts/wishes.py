"""Wishes of the user for how work is to be done in general, recognized by several signs.

Preferences have too many phrasings to list, so `is_wish` combines signs. A single sign means little
("no", "please", the word "comments"), and most prompts, which ask for one thing once, show several.
So there must also be a sign that the wish is permanent, or a reason why it matters to the user.
"""

import re

from ragmem.memory.facts.words import plain
from ragmem.text import Regex

PLEASE = r"(?:please|bitte|s'il (?:te|vous) plait)"
LATER_CLAUSE = re.compile(r",\s+(?:and|but|et|mais|y|e|und|aber)\s+", re.IGNORECASE)
"""The separator before a clause that may stand by itself."""
EVERYWHERE = Regex(
    r"\b(?:everywhere|anywhere|wherever|uberall|partout|en todas partes|"
    r"(?:all|every|any|each|alle[nr]?|jede[smnr]?|tous|toutes|chaque|todos)(?: of)?"
    r"(?: (?:my|our|the|meine[nr]?|unsere[nr]?|mes|nos|les|mis|los|other))* "
    r"(?:projects?|repos?|repositor(?:y|ies)|projekten?|projets?|depots?|proyectos))\b"
)
_LEAST_WORDS_OF_A_WISH = 3

# Matches "no default exports" and "bitte keine Abkürzungen"; must not match "no space left on
# device" or "Bitte keine Panik."
_BAN = Regex(
    r"(?:^|[,:;(] ?|\b(?:and|but|so|also|btw|oh|please|und|bitte|et|donc|mais|aussi) )"
    r"(?:no |(?:don't|do not) (?:ever|use|write|add|put) |keine?n? |"
    r"pas (?:de |d'))(?!(?:one|any|need|"
    r"idea|problem|worries|matter|way|longer|doubt|errors?|more|space|money|rush|ahnung|panik|"
    r"problem|eile|souci|doute|probleme)\b)"
    r"\w{2,}(?!\w| any ?more\b| mehr\b| plus\b)"
    r"|\b(?:please|bitte) (?:never|nie(?:mals)?) \w|^(?:et )?jamais (?!vu|eu|je n'ai)\w"
)
_OF_ANSWERS, _OF_WORK, _WANTED, _IN_GENERAL, _IN_PASSING, _WORKS_SO = (
    Regex(pattern)
    for pattern in (
        # _OF_ANSWERS: about the agent's answers
        r"\b(?:answers?|repl(?:y|ies)|explanations?|antworten|reponses?)\b",
        # _OF_WORK: about code, texts, figures and the like
        r"\b(?:code|coding|comments?|docstrings?|commits?|messages?|names?|naming|named|"
        r"identifiers?|abbreviations?|tests?|mocks?|functions?|methods?|classes|lines?|indent\w*|"
        r"tabs?|spaces?|types?|type hints|annotations?|"
        r"units?|dates?|emojis?|style|quotes|commas?|semicolons?|dependenc\w+|packages?|librar\w+|"
        r"frameworks?|branch(?:es)?|prs?|pull requests?|docs?|documentation|headings?|titles?|"
        r"figures?|plots?|charts?|columns?|diffs?|english|german|french|spanish|spelling|"
        r"sentences?|words|colou?rs?|"
        r"kommentare?n?|namen|bezeichner|abkurzungen|funktionen|methoden|zeilen?|zeichen|"
        r"einruckung\w*|einheiten|datum|satze?n?|worter|meldungen|uberschriften|"
        r"spalten?|diagramme?|farben|deutsch\w*|englisch\w*|franzosisch\w*|abhangigkeiten|"
        r"pakete?|bibliotheken|"
        r"commentaires?|noms?|fonctions?|variables?|lignes?|indentation|unites?|"
        r"phrases?|mots|titres?|graphiques?|couleurs?|colonnes?|francais|anglais|allemand|"
        r"dependances?|paquets?|bibliotheques?|abreviations?)\b",
        # _WANTED: a request, or whose wish it is: "please", "I'd rather", "nervt"
        r"\b(?:please|pls|i (?:don't|never) (?:want|take|accept|allow)|wants?|"
        r"i (?:prefer|want|like|hate|love|can't stand)|i'd (?:like|rather)|"
        r"spare me|bitte|lieber|will (?=.*\b(?:und|nicht|keine?n?|immer|nur)\b)|"
        r"(?:ich|wir) (?:mochte|mag|hasse|brauche)|"
        r"(?:mir|uns) (?:ein )?(?:graus|wichtig|lieb)\w*|stort mich|nervt|"
        r"s'il (?:te|vous) plait|stp|svp|je (?:prefere|veux|deteste|tiens)|j'aime\w*|merci de)\b",
        # _IN_GENERAL: "always", "überall", "at most", "dans tout le code"
        r"\b(?:always|never|(?:don't|do not) ever|every(?:where|thing (?:you|we)| time)|"
        r"any(?:where|thing you)|each time|"
        r"in (?:new|all|any|every) (?:my |our |your )?(?:code|projects?|repos?|files?|texts?|"
        r"languages?)|all (?:of )?my|whatever you|in general|from (?:now|today)(?: on)?|usually|"
        r"mostly|whenever|by default|as a rule|at most|"
        r"immer|nie(?:mals)?|uberall|grundsatzlich|jedes ?mal|generell|ab jetzt|kunftig|"
        r"meist(?:ens)?|hochstens|"
        r"toujours(?! pas\b)|jamais(?! je n'ai)|partout|ailleurs|chaque fois|desormais|en general|"
        r"d'habitude|au plus(?! tard)|dans (?:tout le|tous (?:les|mes)) (?:projets?|code))\b",
        # _IN_PASSING: "Btw dates are UTC everywhere"
        r"^(?:(?:ok|okay|and|so|und|et|ach)[,.]? )*(?:by the way|btw|oh,? (?:and|also)|also|"
        r"one (?:more|other|last) thing|another thing|fyi|for the record|note that|ubrigens|"
        r"nebenbei|noch (?:was|etwas)|ach ja|au fait|au passage|d'ailleurs|sinon|a propos)\b|"
        r"\b(?:btw|by the way|ubrigens|au fait)[.!]*$",
        # _WORKS_SO: how the user works: "I read diffs on my phone", "je relis tout moi-même"
        r"\b(?:i (?:read|review|skim|use|work|print|look at|open|keep|am|can't|have to)|i'm|we're|"
        r"my (?:eyes|screen|phone|editor|laptop|team)|"
        r"ich (?:lese|arbeite|nutze|bin|habe|sehe|kann|schaue)|"
        r"mein\w* (?:handy|bildschirm|laptop|editor|augen)|"
        r"je (?:relis|lis|travaille|suis|ne (?:parle|lis|vois)|n'ai)|"
        r"mon (?:ecran|telephone|editeur)|moi)\b",
    )
)
# Matches "House style for you: factories, …"; must not match "what's the rule for the names: upper
# or lower case".
_LAID_DOWN = Regex(
    r"^(?!what|which|was |welche|quel)[^:]{0,40}\b(?:rules?|habits?|style|wish|regeln?|wunsch|"
    r"angewohnheit|regles?|habitudes?)\b(?! (?:of|for the|der|des|du)\b)[^:]{0,60}: \w"
)
_TASTE = Regex(
    r"\b(?:spare me|i can't stand|gets on my nerves|(?:mir|uns) ein graus|nervt|stort mich|"
    r"m'enerve)\b"
)
_ONCE = Regex(
    r"\b(?:says?|said|reports?|this|that one|these|those|here|hier|diese[rsmn]?|ici|cette?|ces|"
    r"(?:line|zeile|ligne) \d+)\b|\b[\w/]+\.(?:py|js|ts|md|html|css|c|h|rs|go|ml|sh|toml|ya?ml|"
    r"json|csv|r)\b"
)
"""Signs of a single case or of somebody else's words: "this", "line 3", "app.py", "it says"."""
# "yesterday", "it failed", "hatte".
_TELLS_OF_BEFORE = Regex(
    r"\b(?:(?<!noch )(?<!so )was|were|did|had|yesterday|"
    r"(?:you|it|he|she|they|we) \w+ed|fails?|failed|broke|war|hatte|gestern|etait|avait|hier)\b"
)
ORDER = Regex(
    rf"^(?:(?:ok(?:ay)?|and|so|now|then|also|just|{PLEASE}|pls|und|et|dann|jetzt|auch|aussi|"
    r"can you|could you|kannst du|peux-tu)[,:]? )*"
    r"(?:add|adjust|align|ask|build|bump|change|check|clean|commit|compare|compile|convert|copy|"
    r"count|create|delete|deploy|describe|draw|drop|edit|explain|export|extend|extract|fetch|find|"
    r"fix|format|generate|give|go|handle|help|implement|import|improve|inline|insert|install|list|"
    r"load|look|make|merge|migrate|move|open|plan|plot|print|publish|pull|push|put|read|rebase|"
    r"refactor|release|remove|rename|replace|reset|restart|restore|return|revert|review|rewrite|"
    r"run|save|search|see|send|set|show|sort|split|squash|start|stop|sum up|summari[sz]e|swap|tag|"
    r"take|tell|test|translate|try|turn|undo|update|upgrade|upload|use (?:the|this|that|all|my)|"
    r"verify|wait|wrap|write (?:a|the|some)|"
    r"fug\w*|schreib|mach|zeig|bau|losch\w*|ander\w*|wandle|pruf\w*|plan|"
    r"ajoute\w*|ecris|corrige|fais|supprime|montre|regarde|mets|trace|traduis)\b"
    r"|\b(?:for (?:now|today)|vorerst|erst ?mal|zunachst|pour l'instant)\b"
)
"""An order to do something now ("Please fix …"), or for now ("vorerst")."""


def is_wish(sentence: str) -> bool:
    """Return whether a sentence of the user says how work is to be done in general.

    "Please fix the failing test" and "Only show the last ten lines please" are about one case.
    """
    flat = plain(sentence)
    return not flat.endswith("?") and any(map(_is_wished, LATER_CLAUSE.split(flat)))


def _is_wished(flat: str) -> bool:
    in_general = _IN_GENERAL.search(flat) is not None
    once = any(sign.search(flat) for sign in (ORDER, _ONCE, _TELLS_OF_BEFORE))
    if len(flat.split()) < _LEAST_WORDS_OF_A_WISH or (once and not in_general):
        return False
    if _LAID_DOWN.search(flat):
        return True
    is_ban, is_wanted = _BAN.search(flat) is not None, _WANTED.search(flat) is not None
    is_of_answers = _OF_ANSWERS.search(flat) is not None
    if not is_of_answers and not _OF_WORK.search(flat) and not (is_ban and in_general):
        return False
    works_so = _WORKS_SO.search(flat) is not None
    lasts = in_general or works_so or _TASTE.search(flat) is not None
    in_passing = _IN_PASSING.search(flat) is not None
    if is_ban or is_wanted:
        return lasts or in_passing or (is_ban and is_wanted)
    return lasts and (in_passing or is_of_answers or (in_general and works_so))


def is_of_person(flat: str) -> bool:
    """Return whether the wish in a sentence holds in every project of the user.

    It does if the sentence says so, is about answers, or says how the user is or works. `flat` is
    the sentence's `plain` form.
    """
    signs = (EVERYWHERE, _OF_ANSWERS, _WORKS_SO)
    return any(sign.search(flat) is not None for sign in signs)
