"""Episodes (decisions, rules, preferences, deadlines …) in a prompt, found without a model.

Regular expressions are matched against the user's own words. They are strict: a sentence that only
asks, quotes or supposes something is no episode.
"""

import re
from datetime import datetime

import msgspec

from ragmem.memory.date_words import MONTHS, WEEKDAYS, any_of
from ragmem.memory.dates import Day, days
from ragmem.memory.facts import is_about_person
from ragmem.memory.facts.wishes import (
    EVERYWHERE,
    LATER_CLAUSE,
    ORDER,
    PLEASE,
    is_of_person,
    is_wish,
)
from ragmem.memory.facts.words import CLAUSE, holds_secret, own_words, plain, sentences
from ragmem.records import MemoryKind, MemoryScope
from ragmem.text import Regex

_LONGEST = 400
"""In characters; a longer sentence is no episode."""
_LEAST_WORDS = 2
_MOST = 4
"""The maximum number of episodes per turn."""


class Episode(msgspec.Struct, frozen=True, kw_only=True):
    """A decision, rule, preference, deadline or fact (such as the user's name)."""

    kind: MemoryKind
    content: str
    """What to remember: the sentence or a part of it, with the date of a deadline in ISO form."""
    quote: str
    """The original sentence."""
    scope: MemoryScope | None = None
    at: datetime | None = None
    """When a deadline is due; None for other kinds."""


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns))


# All patterns are matched against `plain` text: lower case, without accents. The examples beside
# them come from tests/memory/facts/test_parts.py.

# Matches "Let's go with httpx.", "On part sur FastAPI pour l'API" and "Use pnpm, not npm."; must
# not match "Let's look at it." or "We take Friday off."
_DECISION = _any(
    # English
    r"^(?:final |our |notre |unsere )?(?:decisions?|entscheidung(?:en)?)"
    r"(?: made| taken| prise| finale| getroffen| gefallen)?\s*:",
    r"\b(?:we|i)(?:'ve| have)? (?:just |finally |now )?(?:decided|agreed|settled|resolved) "
    r"(?:to|on|that|against|for|not to)\b",
    r"\b(?:it (?:was|is|has been)|it's) (?:decided|agreed|settled)\b",
    r"\b(?:we|the team|our team) (?:have |has |'ve )?(?:chosen|picked|chose|decided) \w",
    r"\bi(?:'ve| have)? (?:chosen|picked|chose) \w+ (?:over|as|for|instead)\b",
    r"\bwe(?:'ll| will|'re going to| are going to| are|'re) (?:go|going|stick|sticking) with\b",
    r"^(?:ok(?:ay)?,? |yes,? |so,? |alright,? |then )*let's (?:go with|use|stick with|settle on|"
    r"adopt|switch to|migrate to|standardi[sz]e on)\b(?! (?:it|this|that|them)\b)",
    r"^(?:ok(?:ay)?|alright|all right|fine|good),? (?:so |then )?we use \w.* then[.!]*$",
    r"^(?:ok(?:ay)?,? |so,? )*we(?:'ll| will) (?:use|adopt|drop|keep|switch to|move to|"
    r"migrate to)\b",
    r"\b(?:the decision (?:is|was) (?:to|that)|la decision (?:est|etait) (?:de|que)|"
    r"die entscheidung (?:ist|war|lautet))\b|\bla decision (?:est|etait) d'",
    r"\bwe (?:won't|will not|no longer) (?:use|support|keep|ship)\b",
    r"\b(?:we|i)(?:'ve| have)? (?:now |just |finally )?(?:switched|moved|migrated) (?:over )?"
    r"(?:from \S+ )?to \w",
    r"^(?:ok(?:ay)?,? |so,? )*(?:final|last) (?:call|answer|word)\s*:",
    r"^(?:ok(?:ay)?,? |no,? |hm+,? )*(?:actually|on second thoughts?|change of plans?)[,:;.]? "
    r"(?:let's|we'll|we will|we use|use|go with|make it|keep|take)\b",
    # French
    r"\b(?:on|nous|j'|j) ?(?:a|avons|ai) (?:finalement |enfin )?(?:decide|convenu|choisi|tranche|"
    r"retenu|opte)\b",
    r"\bc'est (?:decide|tranche|entendu|acte)\b",
    r"\bil (?:a ete|est) (?:decide|convenu)\b",
    r"\b(?:on|nous) (?:part|partons|partira|reste|restons|restera) (?:donc )?(?:sur|avec)\b",
    r"\bon (?:va (?:utiliser|garder|adopter|abandonner)|garde|adopte|abandonne) \w",
    r"\b(?:on|nous) (?:passe|passons|bascule|basculons|migre|migrons) "
    r"(?:donc |plutot |finalement )?(?:sur|a|vers|en)\b",
    r"\bfinalement,? (?:on|nous) (?:prend|prenons|utilise|utilisons|garde|gardons|met|mettons)\b",
    r"^(?:ok,? |bon,? |donc,? |alors,? )*on (?:prend|utilise) (?:donc |plutot |finalement )?\w",
    # German
    r"\b(?:wir|ich) hab(?:en|e)? (?:uns |mich )?(?:\S+ ){0,6}(?:entschieden|beschlossen|vereinbart|"
    r"geeinigt|festgelegt)\b",
    r"\bes (?:ist|wurde) (?:\w+ )?(?:entschieden|beschlossen|vereinbart)\b",
    r"\bwir bleiben (?:also |jetzt |nun |doch )?(?:bei|dabei)\b",
    r"^(?:ok(?:ay)?,? |gut,? |ja,? |also,? |dann )*(?:wir |dann )?(?:nehmen|verwenden|benutzen|"
    r"nutzen|wechseln|behalten|streichen) (?:wir )?(?:also |jetzt |nun |doch |kunftig |lieber )?\w",
    r"^(?:ok(?:ay)?,? |gut,? |also,? |dann )*lass(?:t)? uns \w.*\b(?:nehmen|verwenden|benutzen|"
    r"nutzen|wechseln|bleiben|behalten)\b",
    r"\bwir (?:verwenden|benutzen|nutzen|nehmen|unterstutzen) \w.* nicht mehr\b",
    r"\b(?:statt|anstatt|anstelle von) \S+ (?:nehmen|verwenden|benutzen|nutzen) wir\b",
    r"\bwir (?:nehmen|verwenden|benutzen|nutzen) (?:jetzt|nun|doch|kunftig|lieber|also) \w",
    # As an order
    r"^(?:please,? )?use (?!(?:the|this|that|a|an|my|your|it)\b)[\w.'/-]+(?: \w+)?,? "
    r"(?:not|instead of|rather than|never) \w",
    r"\bwe use \w+ here[.!]*$",
)
# Overrides `_DECISION`: "We haven't decided yet", "Warum haben wir Redis genommen".
_NO_DECISION = _any(
    r"\b(?:haven't|hasn't|have not|has not|not yet|didn't|did not|never) (?:yet )?(?:decid|agree|"
    r"settl|cho)",
    r"\b(?:if|whether|when|once|until|before|unless|should|could|can|may|might|would) (?:we|i) ",
    r"\b(?:n'a|n'avons|n'ai|pas encore|si on|si nous|quand on) ?\w* ?(?:decid|choisi|pas)",
    r"\b(?:suppose|imagine|example|for instance|e\.g\.|par exemple|supposons)\b",
    r"^(?!.*\bsondern\b).*\b(?:nicht|nichts|nie|niemals) (?:\S+ ){0,6}(?:entschieden|beschlossen|"
    r"vereinbart|geeinigt|festgelegt)\b",
    r"\b(?:wenn|ob|falls|sobald|bevor|sollen|sollten|konnen|konnten|durfen) (?:wir|ich)\b",
    r"\b(?:angenommen|zum beispiel|beispielsweise|was|warum|wie|wieso|weshalb|wann) (?:haben |hat |"
    r"nehmen |verwenden |nutzen )?(?:wir|ich)\b",
    r"\b(?:what|why|how|who|which|pourquoi|comment|qui|quand) (?:was |have |did |has )?"
    r"(?:we|i|it|on|nous|decided)\b",
    r"\bbut that was wrong\b",
)
# Fillers at the beginning of a sentence: "Ok, and please …".
_LEAD = r"^(?:(?:ok(?:ay)?|and|so|please|btw|by the way|also|but|und|bitte|et|mais|bon|donc),? )*"
_GERMAN_VERB = (
    r"(?:(?:verwend|benutz|nutz|schreib|mach|leg|setz|frag|zeig|stell|teste?|pruf|start|fuhr|lad|"
    r"losch|ander|kommentier|formatier|committ|push|merg|benenn|speicher|antwort|erklar|beginn|"
    r"vermeid|ruf|installier|importier)e?|nimm|lass|gib|lies)"
)
"""German imperatives, with which an order begins."""
_AT_HAND = (
    r"(?:the|this|that|these|those|it|them|me|us|my|our|your|here|yet|now|again|any ?more|about|"
    r"too|so|das|den|die|der|dem|diese\w*|es|ihn|sie|mich|mir|hier|jetzt|noch|mehr|wieder|"
    r"le|la|les|ce|cette|ces|ca|cela|me|moi|ici|encore|plus)"
)
"""Words by which a ban refers to the current work: "don't do that", "don't push it yet"."""
_HERE = r"(?:this|our|my|diesem|unserem|ce|cette|notre)"
_A_HOUSE = r"(?:project|projekt|projet|repo|repository|depot|code ?base|team|house)"
_IN_HOUSE = rf"\b(?:in|dans) {_HERE} {_A_HOUSE}\b"
_FROM_NOW_ON = (
    r"(?:from now on|desormais|dorenavant|a partir de maintenant|ab jetzt|ab sofort|von nun an)"
)
_BEHAVES = (
    r"(?:crash\w*|fails?|failing|breaks|works|hangs|funktionier\w*|klappt|geht|lauft|sturzt|fehl|"
    r"hangt|passiert|plante\w*|marche\w*|fonctionne\w*|echoue\w*|passe|renvoie|retourne|"
    r"reste|manque|bloque|tombe|arrive|termine|finit)"
)
"""Verbs that tell what a program does: "From now on the server crashes", "Plante toujours"."""
# Matches "Use tabs from now on.", "Ask me before you install anything." and "N'utilise jamais
# eval."; must not match "Always fails on Windows." or "Never mind, it works now."
_STANDING = _any(
    rf"{_LEAD}(?:{_FROM_NOW_ON}|kunftig|in zukunft)\b,? (?!.*\b{_BEHAVES}\b)\S+ \w",
    rf"\w+ \w+,? {_FROM_NOW_ON}[.!]*$",
    rf"{_LEAD}(?:please|bitte),? (?:always|never|immer|nie|niemals) \w",
    r"^(?:ok(?:ay)?,? |and |so,? |please,? )*remember(?: that|[:,])? (?:to )?"
    r"(?:always|never) \w",
    # Permanent orders
    rf"{_LEAD}(?:never|(?:don't|do not) ever) (?!(?:mind|seen|heard|had|got|said|been|was|did)\b)"
    r"(?!\w+(?:ed|[^su]s)\b)\w+ \w",
    rf"{_LEAD}always (?!(?:been|the|an?)\b)(?!\w+(?:ed|[^s]s)\b)\w+ (?!(?:it|them)\b)\w",
    r"^we (?:never|always) (?!(?:gets?|got|have|had|sees?|saw|knew|did|were|was|need)\b)(?!\w+ed\b)"
    r"\w+ \w",
    r"\w+ \w+, always[.!]*$|^as a rule,? \w|^(?:(?:my|our|the|house) )?rule(?: is)? ?:",
    rf"{_LEAD}(?:don't|do not|nothing|never) .*\bwithout (?:asking|telling|showing|my |\w+'s )",
    rf"{_LEAD}(?:always )?(?:ask|show|tell) me .*\bbefore you \w",
    rf"{_LEAD}(?:nie|niemals) "
    rf"(?!wieder gesehen)(?!(?:{_BEHAVES}|hatten?|haben?|hat|war|ist|wird|kann|konnte|will)\b)"
    r"\w+ \w.*\w",
    r"^you (?:should|must|have to|need to) (?:always|never) (?!(?:have|be)\b)\w+ \w",
    rf"{_LEAD}{_GERMAN_VERB} "
    r"(?:immer|nie|niemals) (?!(?:noch|mehr|wieder|weniger)\b)\w",
    rf"{_LEAD}immer (?!(?:noch|mehr|wieder|weniger)\b)\w+ \w.*en[.!]*$",
    r"^wir \w+ (?:nie|niemals|grundsatzlich) \w|^(?:bitte )?fass \w.* nie an[.!]*$",
    rf"{_LEAD}(?:(?:on|nous) )?(?:ne |n')(?!(?:{_BEHAVES}|a|ai|avons|est|etait)\b)\w+ jamais "
    r"(?!(?:quand|si|lorsque)\b)\w",
    rf"{_LEAD}(?:ne |n')\w+ \w.*\bsans (?:me|mon|nous) \w|^toujours \w+(?:er|ir|re) \w",
    r"^(?!(?:je|tu|il|elle|on|nous|vous|ils|elles|ca|cela|le|la|les|un|une|mais|et)\b)"
    rf"(?!{_BEHAVES}\b)\w+ toujours "
    r"(?!(?:pas|en|aussi|rien)\b)\w",
)
_NOT_TO = (
    rf"{_LEAD}(?:(?:don't|do not) |{_GERMAN_VERB} nicht |(?:ne |n')\w+ pas |"
    r"fass (?=\w.* nicht an[.!]*$))"
)
_OF_NOW = rf"(?![^,;:]*\b{_AT_HAND}\b(?! {_A_HOUSE}\b))"
# Matches "Don't push to main." and "Push nicht auf main."; must not match "Don't forget to add
# tests." or "Don't do that."
_FORBIDS = Regex(
    rf"{_NOT_TO}(?!(?:forget|worry|bother|know|need|want|care|think|see|mind|get|be|have|stop|"
    rf"start|begin|continue|wait|say|answer|try)\b){_OF_NOW}[\w-]+ \w"
)
"""A ban that is a rule if the sentence also says that it is permanent (`_LASTS`)."""
_KEEPS_FROM = Regex(
    rf"{_LEAD}(?:(?:don't|do not) use|(?:verwende?|benutze?|nutze?) nicht|n'utilise[zr]? pas)\b"
    rf"{_OF_NOW}"
)
"""A ban on a way of working, which may be a preference: "Please don't use emojis …"."""
_IS_BAN = Regex(_NOT_TO)
# Matches "Don't push to main.", "Don't use print in this project." and "Don't mock sockets, they
# hide bugs."; must not match "Don't touch app.py, it is fine as it is."
_LASTS = Regex(
    r"\b(?:to|on(?:to)?|into|auf|nach|sur|vers|en) (?:main|master|develop|trunk|prod(?:uction)?)\b|"
    rf"{_IN_HOUSE}|"
    r"\b(?:because|since|otherwise|or else|so that|weil|denn|parce que|sinon)\b|"
    r"[,;:] (?:car |(?:(?:the|our|das|der|die|le|la|les) \w+|it|they|es|sie|ils|elles|ca) "
    r"(?!(?:is|isn't|are|aren't|was|were|ist|sind|est|sont)\b)\w)"
)
"""Signs that a ban is permanent: a place, or a reason other than the current state of things."""
_FOR_NOW = Regex(
    r"\b(?:any\w*|some(?:thing|one)|everything|all|only|just|until|till|before|first|later|then|"
    r"else|now|today|tonight|tomorrow|big|nichts|etwas|irgend\w*|alles|nur|bloss|bis|bevor|erst|"
    r"vorerst|heute|spater|rien|tout|seulement|avant|jusqu\w*|d'abord|aujourd'hui|demain)\b|"
    r"\b(?:write|edit|change|touch|modify|create|read|run) (?:code|files|tests|commands)\b|"
    r"\b[\w/-]+\.[a-z]{1,5}\b(?<!\be\.g)"
)
"""A ban with one of these words, or with a file name, is only about the current work."""
_PAST_VERB = (
    r"(?:\w+ed|had|were|was|did|said|saw|spoke|made|wrote|went|got|ran|took|met|found|built|came|"
    r"began|broke|lost|left|kept|told|thought|chose)\b"
)
_KEEP = (
    r"(?:merke? dir(?: bitte)?|denke? (?:bitte )?daran|vergiss (?:bitte )?nicht|"
    r"(?:rappelle|souviens)-toi|n['’]oublie[zr]? pas|retiens|(?:don['’]t|do not) forget)"
    r"(?:,? (?:dass|that|que)\b| qu['’]| ?:)"
)
"""What asks to remember in other words than "remember"."""
# Matches "Remember the API uses snake_case keys." and "Please remember we deploy with poetry.";
# must not match "Remember when we had Redis?" or "Remember that time the server was down."
_REMEMBER = re.compile(
    r"^(?:ok(?:ay)?,? |and |so,? |please,? )*remember(?:(?: that\b|:) ?(?=\w)| (?=(?:the|this|my|"
    r"our|we|i) (?:\S+ )+(?:is|are|has|have|uses?|runs?|needs?|must|lives?|prefers?) \w)|"
    rf" (?=(?:we|i) (?!{_PAST_VERB})\w+ \w))"
    r"(?!(?:time|day|bug|error|one|thing|issue|conversation)\b|(?:the|that|this) (?:time|day|bug|"
    r"error|one|thing|issue|conversation)\b)|"
    rf"^(?:ok(?:ay)?,? |and |so,? |und |et |please,? |bitte )*{_KEEP} ?"
    r"(?!(?:you|du|ihr|sie|tu|vous)\b)\w"
)
# The words to strip from what is remembered: "Please remember: our tests need Redis."
_ASKED = re.compile(
    r"^(?:(?:ok(?:ay)?|and|so|und|et|please|bitte),? )*(?:remember(?! to\b)(?: that\b|:)?|"
    rf"{_KEEP}) *",
    re.IGNORECASE,
)
# Overrides rules and facts: 'The page says "from now on use tabs".', "I don't remember that …".
_NO_ORDER = re.compile(
    r"\b(?:do|did|don't|didn't|can't|cannot|couldn't) (?:you |i |we |not )*remember\b|"
    r"\b(?:says|said|reads|prints|outputs|wrote|writes|suppose|imagine)\b|"
    r"^(?:and |so |but |what )?(?:if|whether)\b|[\"“”«»]"
)
_IN_WORK = (
    r"(?:(?:the|my|our|your|all|les|mes|le|den) )?(?:commits?(?: messages?)?|messages|code(?: "
    r"comments)?|comments?|commentaires|kommentaren?|tests?|names|namen|noms|answers?|antworten|"
    r"reponses|texts?|docstrings?|functions?|funktionen|fonctions|error messages)"
)
_TONGUE = (
    r"(?:english|german|french|spanish|italian|deutsch|englisch|franzosisch|francais|anglais|"
    r"allemand)\b"
)
_OWN_TONGUE = Regex(
    r"\b(?:answer|reply|respond|speak|talk|antworte?|sprich|reponds|parle)(?: me| to me| mir|-moi)?"
    rf"(?: always| only| immer| toujours| nur)? (?:in |auf |en )?{_TONGUE}(?! \w)|"
    rf"\bauf {_TONGUE} (?:antworten|sprechen)\b|\breponds toujours en {_TONGUE}"
)
"""The user's language in every project: "answer in German", not "write German comments"."""
# Matches "I hate long answers", "Tabs sind mir lieber" and "Les dates en ISO, partout."; must not
# match "Stick to the plan.", "Only two tests fail." or "Plutôt bien, merci."
_PREFERENCE = _any(
    r"\bi(?:'d| would)? (?:really |strongly |much |generally |usually )*(?:prefer|rather (?:have|"
    r"use|see|keep|not))\b",
    r"\bmy (?:preference|favou?rite|preferred)\b",
    r"\bi (?:really |absolutely |just )*(?:hate|dislike|can't stand|love|enjoy|don't like|"
    r"do not like|don't want you to)\b|\bi(?:'m| (?:really )?am) not a fan of\b",
    rf"\bi like (?!(?:th[aeio]\w*|your|our|how|what|when) )(?:\w+ )?{_IN_WORK}\b",
    r"\bi (?:always|never|usually) (?:use|want|write|like|work|indent|name|put|keep|run|commit)\b",
    # French
    r"\bje (?:prefere|prefererais|deteste|n'aime pas|n'aime vraiment pas|adore)\b",
    r"\bj'(?:aime(?:rais)? (?:mieux|bien|que|quand|beaucoup|pas)|adore)\b",
    r"\bma preference\b|\bmon \w+ prefere\b|\bma \w+ preferee\b",
    # German
    r"\bich (?:bevorzuge|hasse|mag|liebe)\b|\bich (?:hatte|habe|will|mochte) (?:\S+ ){0,3}lieber\b",
    r"\b(?:ist|sind|waren) mir lieber\b|\bmir (?:ist|sind) (?:\S+ ){1,3}lieber\b",
    r"\bmein(?:e|en)? (?:vorliebe|lieblings\w+)\b|\bich arbeite (?:immer|lieber|am liebsten)\b",
    r"\bich (?:nutze|benutze|verwende|schreibe|will|mochte) (?:immer|nie|niemals|grundsatzlich)\b",
    # What answers, code and messages should be like
    r"\bi want (?:all|every) (?:\w+ ){1,3}(?:in(?! this| that| here)|with|to have)\b|"
    r"\bi'm used to \w",
    rf"{_LEAD}(?:all |my |the )?{_IN_WORK} (?:are |should be |must be )?(?:always )?(?:in|auf|en) "
    rf"(?:plain )?{_TONGUE}(?! (?:is|are|was|were|do|does|did|fail\w*)\b)",
    r"\b(?:answer|reply|write|talk|speak)(?: to)? me in " + _TONGUE,
    rf"{_LEAD}keep (?:your |the |all )?(?:functions|methods|answers?|lines|commits?|messages|it) "
    r"(?:short|small|brief|under|below)\b|^(?:please )?be (?:brief|concise|terse)\b",
    rf"{_LEAD}use \w+ (?:spelling|style|quotes|case)\b"
    rf"(?! (?:here|(?:in|for|on) (?:this|that|these|those) (?!{_A_HOUSE}\b)))",
    r"^(?:for|in) all (?:of )?my projects\b",
    rf"\bantworte(?: mir)? auf {_TONGUE}|^(?:bitte )?schreib \w+ (?:immer )?auf {_TONGUE}",
    r"\bje veux des \w+ (?:partout|courte?s|breve?s|petite?s)\b|"
    r"\bj'aime (?:les|mes|des) (?:commits|fonctions|reponses|noms|messages)\b",
    rf"\breponds(?:-| )(?:moi )?(?:toujours )?en {_TONGUE}",
    # What to avoid, and what to use instead of something else
    rf"{_LEAD}(?:avoid|vermeide|meide|evite[zr]?) (?!(?:the|this|that|it|das|den|diese\w*|ce|cette|"
    r"ca|la|le)\b)\w+ \w",
    rf"{_LEAD}stick to (?!(?:the |your |our )?(?:plan|point|topic|facts?|question)\b)\w",
    r"\blike \w.* (?:better|more) than \w|^(?:rather|lieber) (?!not\b|nicht\b)\w.* (?:than|als) \w|"
    r"^plutot (?!bien|mal|pas)\w.* que \w",
    r"^(?:the |all )?\w+ (?:go|goes|belongs?|lives?) (?:in|into|next to|beside|under|before|after) "
    r"\w.*, not\b",
    # Everything in the same way, and forms of address
    rf"^(?:everything|alles|tout|(?:all|alle|tous les|toutes les|les) \w+) (?:in|as|als|en) \w.*"
    rf"\b(?:{PLEASE}|everywhere|uberall|partout)[.!]*$",
    rf"^(?:short|brief|small|plain|full|kurze|kleine) {_IN_WORK}|^\w+(?: \w+)? only,? {PLEASE}",
    rf"{_LEAD}(?:explain|answer|reply|erklar\w*|antworte|explique|reponds)\b.{{0,30}}"
    r"\b(?:briefly|concisely|kurz|knapp|brievement)\b",
    r"\b(?:duze?|sieze?) mich\b|\b(?:tutoie|vouvoie|tutoyez|vouvoyez)[- ]moi\b",
    r"^we (?!\w+ed\b)\w+ \w.* in this (?:team|project|house|code ?base)[.!]*$",
    # French
    r"\bj'utilise (?:toujours|d'habitude)\b|\bje (?:travaille|code|veux) (?:toujours|jamais)\b",
)
_TASTES = (
    r"(?:(?:really|absolutely|just|vraiment) )*(?:hate|dislike|can't stand|love|enjoy|like|prefer|"
    r"rather|don't like|do not like|mag|hasse|liebe|bevorzuge|prefere(?:rais)?|deteste|adore|"
    r"aime(?:rais)?(?: bien| mieux| beaucoup| pas| plus| vraiment pas)?)"
)
_ONE_OF = (
    r"(?:first|second|third|last|latter|former|other|new|old|current|previous|"
    r"(?:erste|zweite|dritte|letzte|andere|neue|alte)\w*|"
    r"premiere?|deuxieme|seconde?|derniere?|nouve\w+|autre)"
)
# A sentence about oneself: "I prefer tabs", "Mir sind Tabs lieber".
_OF_SELF = re.compile(rf"{_LEAD}(?:i|my|je|j'|m[ao]|ich|mir|meine?)\b")
# Overrides `_PREFERENCE`: "Do you prefer tabs?", "Ich mag das."
_NO_PREFERENCE = _any(
    r"\b(?:do|would|did|which|what) (?:you|we|they) \w*",
    r"\bi (?:would |'d )?(?:love|like|prefer|rather) (?:to (?:know|see|understand|hear|ask|get|"
    r"fix|add|have (?:a look|this fixed))|you to (?:explain|fix|look|add|write|check|show)|"
    r"(?:some|your) help)\b",
    r"\bi(?:'d| would) (?:love|like|enjoy)\b|\bi hate (?:this|that|it)\b",
    r"\b(?:if|whether) (?:i|you)\b",
    r"\bj'aimerais (?:bien )?(?:savoir|que tu|que vous|comprendre|voir|avoir|ajouter|corriger)\b",
    r"\bpreferes-tu|preferez-vous\b",
    # "I usually run make, but now it fails", "My favourite bug is back"
    r"\b(?:but (?:now|today|this time|suddenly|it|that|this)|aber (?:jetzt|heute|diesmal|es|das)|"
    r"mais (?:la|maintenant|aujourd'hui|cette fois|ca))\b.*\b(?:fail\w*|broken?|breaks|crash\w*|"
    r"hangs|errors?|(?:does|do|will|is)(?:n't| not)|(?:geht|klappt|lauft|funktioniert) "
    r"(?:\w+ ){0,2}nicht|fehl\w*|scheitert|echoue\w*|plante\w*|marche (?:pas|plus))\b",
    r"\b(?:my favou?rite|mein lieblings|mon) ?(?:bug|error|crash|fehler|bogue)\b",
    r"\b(?:magst|bevorzugst|hast) du\b|\bich mag (?:das|es|die idee|deine \w+)[\s.!]*$",
    r"\bich (?:mochte|wurde gerne?|hatte gerne?) (?:\S+ )?(?:wissen|verstehen|sehen|fragen)\b",
    r"\bi (?:like|love) (?:it|that|this|the idea|your (?:answer|idea|suggestion))[\s.!]*$",
    r"\bj'(?:aime bien|adore)[\s.!]*$",
    # Of what is at hand: "I hate this bug", "Ich mag den Vorschlag", "Je préfère la première"
    rf"\bi(?:'d| would)? {_TASTES} (?:to \w+ )?(?:this|these|your|that you|the {_ONE_OF}|"
    r"the (?:look|sound|result|output)s? of)\b|"
    r"\bi (?:always|never|usually) \w+ (?:this|that|these|it)\b",
    rf"\bich {_TASTES} (?:diese\w*|deine?\w*|dich|(?:den|die|das) (?:{_ONE_OF}|vorschlag|idee|"
    r"ansatz|losung|ergebnis)|es,? wenn das|nicht mehr)\b",
    r"\b(?:ich (?:will|mochte|hatte|habe) lieber|mir (?:ist|sind)) "
    rf"(?:erst|zuerst|(?:den|die|das) {_ONE_OF})\b",
    r"\bich \w+ (?:immer|nie|niemals) (?:noch|wieder|diese\w*)\b",
    rf"\bj(?:e |'|e n'){_TASTES} (?:ce|cet|cette|ces|ta|ton|tes|l[ae] {_ONE_OF}|que tu|"
    r"quand (?:ca|ce|cet|cette))\b|\bje veux toujours (?:savoir|comprendre)\b",
)
_A_DAY = (
    rf"(?:\d{{4}}-\d\d|\d\d?[/.]\d|\d\d?(?:st|nd|rd|th)?(?: of)? (?:{any_of(MONTHS)})\b|"
    rf"(?:{any_of((*MONTHS, *WEEKDAYS))})\b|next\b|tomorrow\b|end\b)"
)
# Matches "The release must be out by Friday." and "Noch was: der Termin ist auf den 3. März
# vorgezogen."; what must not be a deadline is left to `_PAST` and `_ASKS`.
_DUE = _any(
    r"\b(?:deadline|due|due date|no later than|at the latest|cut-?off|"
    r"(?:maintenance|release|deployment) window)\b",
    r"\b(?:postponed|rescheduled|brought forward|pushed back|delayed)\b.*\b(?:to|now|until)\b",
    rf"\bmove[ds]\b.*\b(?:to|now|until)(?: on| the)* {_A_DAY}",
    r"\b(?:must|has to|have to|needs? to|should|will|shall|has got to|got to|want to|wants?|"
    r"going to|plan to|promised?|need|supposed to|'ll|expected|expects?)\b.*\b(?:by|before|until|"
    r"no later than|on|for|within|in|at the end|end)\b",
    r"\b(?:ship|release|deliver|finish|launch|submit|hand in|publish|go live|freeze|merge|demo|"
    r"migrate|complete|send)(?:s|ed|ing|d)?\b.*\b(?:by|before|on|within)\b",
    r"\b(?:release|launch|demo|delivery|presentation|exam|review|freeze|go-live|release date|"
    r"milestone) (?:is|will be|takes place) (?:planned |scheduled |due |set )?(?:for|on|by|in)?\b",
    # French
    r"\b(?:date limite|echeance|delai|deadline|au plus tard|dernier delai)\b",
    r"\b(?:report|repouss|avanc|decal)\w*\b.*\bau\b",
    r"\b(?:doit|doivent|devons|dois|faut|faudra|devra|il me faut|veut|attend|prevu[es]?|prevoit)"
    r"\b.*\b(?:d'ici|avant|pour|jusqu'a|le|au|a la)\b",
    r"\b(?:livr|rend|sort|fin|termin|publi|lanc|deploy|present|remett|envoy)\w*\b.*\b(?:d'ici|"
    r"avant|pour|au plus tard)\b",
    # German
    r"\b(?:frist|stichtag|abgabe\w*|\w*termin|spatestens|fallig|verschoben|vorgezogen|verlegt)"
    r"\b",
    r"\b(?:muss|mussen|soll|sollen|sollte|sollten|will|wollen|wird|werden|braucht|brauchen|geht|gehen)"
    r"\b.*\b(?:bis|am|zum|innerhalb)\b",
)
# The words that lead to the date of a deadline, up to the date itself: "Deadline for the paper is".
_BEFORE_DATE = re.compile(
    r"(?:\b(?:by|before|until|due(?: on| in| by)?|no later than|deadline(?: is| on|:| for \S+ is)?|"
    r"on|for|is|now|to|within|the latest|bis(?: zum)?|am|zum|auf|ist|jetzt|vor dem|avant|d'ici|"
    r"pour|jusqu'a|jusqu'au|au plus tard|le|au|est|limite|echeance|a|antes del?|entro|para)"
    r"|:|\()\s*(?:the |le |la |l'|this |ce |coming |d'ici |end of |der |den |dem )*$"
)
# Overrides `_DUE`: "Until Friday the shop was closed."
_PAST = _any(
    r"\b(?:(?<!noch )(?<!so )was|were|had been|has been|have been|did|went|said|happened|"
    r"broke|crashed|yesterday|ago|last (?:week|month|year|monday|tuesday|wednesday|thursday|friday|"
    r"saturday|sunday))\b",
    r"^(?!.*\b(?:must|has to|have to|need|needs|will|should|be|deadline|due)\b).*\b(?:got|failed|"
    r"worked|fixed|finished|released|shipped|merged|delivered|completed)\b",
    r"\b(?:etait|etaient|a ete|ont ete|hier|il y a|derniere?|avait)\b",
    r"\b(?:war|waren|wurden?|gestern|vorgestern|letzte[nrsm]?)\b",
)
# Overrides `_DUE`: "Nothing is due on Friday", "Am Freitag ist nichts fällig", "We don't have to
# ship by Friday", "Die Abgabe am 15. Dezember entfällt".
_NOT_DUE = Regex(
    r"\b(?:nothing (?:is|will be|gets)|no (?:deadlines?|releases?|exams?)|"
    r"(?:not|no longer|nichts?|nicht mehr|pas|plus|rien (?:n'est|de)) (?:yet |encore )?"
    r"(?:due|scheduled|planned|fallig|geplant|prevue?s?)|keine (?:frist|abgabe)|"
    r"(?:pas|aucune) (?:d')?echeance)\b|n't (?:yet )?(?:due|scheduled|planned)\b|"
    r"\b(?:cancell?ed|called off|entfallt|fallt aus|abgesagt|gestrichen|annulee?s?)\b|"
    r"\b(?:not before|nicht vor|pas avant)\b|"
    r"\b(?:(?:is|are|will|must|shall|should) not|isn't|aren't|won't|mustn't|shouldn't|needn't|"
    r"(?:don't|doesn't|do not|does not) (?:have|need)|"
    r"(?:muss|mussen|soll\w*|brauch\w*) (?:\S+ ){0,3}nicht|"
    r"nicht (?:am|bis|im|zum|vor dem)|n'est pas|"
    r"ne (?:doit|doivent|devons|faut|sera) (?:pas|plus))\b"
)
# Overrides everything: "It is not true that we decided to use Redis."
_DENIED = Regex(
    r"^(?:it (?:is not|isn't|is no longer) (?:at all )?true that|it is untrue that|"
    r"(?:i|we) doubt\b|"
    r"(?:they|people|some(?:one|body)|he|she) (?:claim(?:s|ed)?|told you)\b|"
    r"(?:es )?(?:stimmt nicht|ist nicht wahr|ist falsch),? dass|(?:jemand|sie|er) behaupte\w*|"
    r"ich bezweifle|(?:ce )?n'est pas vrai qu|il est faux qu|(?:quelqu'un|ils|elle|il) pretend)|"
    r"\bthat(?:'s| is| was) (?:a lie|not true|untrue|no longer true)"
)
# A question: by its mark, or by its first word unless it ends with "." or "!".
_ASKS = re.compile(
    r"[?？]|^(?:can|could|would|will|do|does|did|is|are|should|shall|what|why|how|when|where|who|"
    r"which|peux|pouvez|est-ce|pourquoi|comment|quand|combien|qu'est|que |quel|quelle)\b"
    r"(?!.*[.!]$)"
)
# Matches "My name is Ana" and "Ich heiße Ana". Matched against the text as written, since a name
# begins with a capital.
_NAME = re.compile(
    r"(?:\b(?:[Mm]y name is|[Cc]all me|I am called|[Jj]e m['’]appelle|[Mm]on nom est|"
    r"[Aa]ppelle[- ]moi|[Ii]ch hei(?:ß|ss)e|[Mm]ein Name ist|[Nn]enn mich|"
    r"[Mm]e llamo|[Mm]i chiamo)\s+)(?!(?:Sie|Dich|Euch)\b)"
    r"([A-ZÀ-ÖØ-Þ][\w'’-]+(?:\s[A-ZÀ-ÖØ-Þ][\w'’-]+)?)"
)
_IN_DATA = (
    r"(?:in|on|im|auf|dans|sur) (?:the|this|an?|de[rmn]|eine[mr]?|le|la|les|une?) (?:\w+ )?"
    r"(?:fixtures?|examples?|tests?|footers?|headers?|files?|seeds?|mocks?|samples?|templates?|dump|"
    r"json|yaml|csv|readme|screenshots?|beispiel\w*|testdaten|datei|vorlage|exemple|fichier|modele)\b"
    r"(?! (?:team|group|department)\b)"
)
_NAME_IN_DATA = _any(rf"\b{_IN_DATA}.*\|", rf"\| {_IN_DATA}")
"""A name (here: a bar) in data: "In the fixture my name is Bob", "My name is Bob in the footer"."""

_WIDENS = Regex(
    r"^(?:and |und |et )?(?:that|this|it|same|das|dies|gleiches|ca|cela) "
    r"(?:(?:also |auch |aussi )?(?:goes|holds|applies|counts|gilt|vaut|s'applique)\b|"
    r"(?<=same )for\b)"
)
"""Where the previous sentence holds: "That goes for all my repos", not "It for sure breaks"."""
_AND = re.compile(r"^[\s,;:.–—-]*(?:(?:and|et|y|e|und)\b\s*)?", re.IGNORECASE)


def episodes(user_message: str, now: datetime) -> list[Episode]:
    """Return the episodes in a prompt; `now` is when it was said, in the user's time zone."""
    found: list[Episode] = []
    before = False
    for sentence in sentences(own_words(user_message)):
        widens = before and len(sentence) <= _LONGEST and _WIDENS.match(plain(sentence))
        if widens and not _ASKS.search(plain(sentence)):
            found[-1] = _widened(found[-1], sentence)
            continue
        introduced = _introduced(sentence, now)
        read = introduced or _read(sentence, now) or _in_clause(sentence, now)
        found += read
        before = bool(read) and not introduced
    distinct: dict[tuple[str, str], Episode] = {}
    for episode in found:
        distinct.setdefault((plain(episode.content), episode.kind), episode)
    return list(distinct.values())[:_MOST]


def _widened(episode: Episode, sentence: str) -> Episode:
    """Append the sentence after it, which says where it holds ("That goes for all my repos.")."""
    return msgspec.structs.replace(
        episode,
        content=f"{episode.content} {sentence}",
        scope="user" if EVERYWHERE.search(plain(sentence)) else episode.scope,
    )


def _introduced(sentence: str, now: datetime) -> list[Episode]:
    """Return the user's name if the sentence introduces them, and the rest of it as episodes."""
    name = _NAME.search(sentence)
    if not name or len(sentence) > _LONGEST or _ASKS.search(plain(sentence)):
        return []
    around = f"{plain(sentence[: name.start()])}| {plain(sentence[name.end() :])}"
    if _NAME_IN_DATA.search(around) or _DENIED.search(around):
        return []
    named = Episode(
        kind="fact", content=f"The user's name is {name[1]}", quote=sentence, scope="user"
    )
    rest = _AND.sub("", sentence[name.end() :])
    rest = rest[:1].upper() + rest[1:]
    more = _read(rest, now)
    if not more and is_about_person(rest):
        more = [msgspec.structs.replace(named, content=rest)]
    return [named, *(msgspec.structs.replace(each, quote=sentence) for each in more)]


def _in_clause(sentence: str, now: datetime) -> list[Episode]:
    """Return the episode that begins with a later clause of the sentence and extends to its end.

    "Looks good, but never push to main." contains the rule "Never push to main."
    """
    if _ASKS.search(plain(sentence)) or _NO_ORDER.search(plain(sentence)):
        return []
    for mark in LATER_CLAUSE.finditer(sentence):
        rest = sentence[mark.end() :]
        if ORDER.search(plain(sentence[: mark.start()])) and _IS_BAN.match(plain(rest)):
            # A ban after an order is about that order: "Fix the crash, and don't push to main."
            continue
        if found := _read(rest[:1].upper() + rest[1:], now):
            return [msgspec.structs.replace(each, quote=sentence) for each in found]
    return []


def _read(sentence: str, now: datetime) -> list[Episode]:
    flat = plain(sentence)
    if not _is_told(sentence, flat):
        return []
    due = _due(sentence, flat, now)
    kind: MemoryKind
    scope: MemoryScope | None = None
    if due is not None:
        kind = "deadline"
    elif _DECISION.search(flat) and not _NO_DECISION.search(flat):
        kind = "decision"
    elif _OF_SELF.match(flat) and is_preference(sentence):
        # "I prefer tabs, always" is a preference, not a rule of this project.
        kind = "preference"
    elif _is_rule(flat):
        is_for_all = EVERYWHERE.search(flat) and not re.search(_IN_HOUSE, flat)
        kind, scope = "rule", "user" if is_for_all or _OWN_TONGUE.search(flat) else None
    elif _REMEMBER.search(flat) and not _NO_ORDER.search(flat):
        kind = "fact"
    elif is_preference(sentence) or (not _is_ban_of_now(flat) and is_wish(sentence)):
        kind, scope = "preference", None if is_of_person(flat) else "project"
    else:
        return []
    is_asked = kind in ("fact", "preference", "rule")
    content = _what_to_remember(sentence) if is_asked else sentence
    if due is not None and due.text != due.day.isoformat():
        content = f"{sentence[: due.end]} ({due.day.isoformat()}){sentence[due.end :]}"
    return [
        Episode(
            kind=kind, content=content, quote=sentence, scope=scope, at=due.at(now) if due else None
        )
    ]


def _is_told(sentence: str, flat: str) -> bool:
    """Whether a sentence states something; what holds a secret is never for memory."""
    is_one = len(sentence) <= _LONGEST and len(flat.split()) >= _LEAST_WORDS
    return is_one and not (_ASKS.search(flat) or _DENIED.search(flat) or holds_secret(sentence))


def may_last(sentence: str) -> bool:
    """Return whether a sentence that no pattern reads may state a preference by its meaning."""
    flat = plain(sentence)
    return _is_told(sentence, flat) and not (ORDER.search(flat) or _is_ban_of_now(flat))


def _is_rule(flat: str) -> bool:
    """Whether an order is permanent, and not only about the current work."""
    if _NO_ORDER.search(flat):
        return False
    lasts = _LASTS.search(flat) and not _FOR_NOW.search(flat)
    return bool(_STANDING.search(flat) or (_FORBIDS.match(flat) and lasts))


def _is_ban_of_now(flat: str) -> bool:
    """Whether the sentence forbids something in the current work only."""
    is_way = _KEEPS_FROM.match(flat) and not _FOR_NOW.search(flat)
    return bool(_IS_BAN.match(flat)) and not is_way


def is_preference(sentence: str) -> bool:
    """Return whether the sentence states a preference of the user by one of the known phrases."""
    flat = plain(sentence)
    return _PREFERENCE.search(flat) is not None and not _NO_PREFERENCE.search(flat)


def _what_to_remember(sentence: str) -> str:
    """Return the sentence without the request: "Please remember: the key is blue"."""
    what = _ASKED.sub("", sentence)
    return sentence if what == sentence else what[:1].upper() + what[1:]


def _due(sentence: str, flat: str, now: datetime) -> Day | None:
    """Return the day by which the sentence says that something is due; None if it doesn't."""
    if _PAST.search(flat):
        return None
    for day in days(sentence, now):
        clause = next((part for part in CLAUSE.split(sentence) if day.text in part), sentence)
        if _NOT_DUE.search(plain(clause)):
            continue
        before = plain(sentence[: day.start]) + " "
        # "By Friday it must be done" is matched as "It must be done by Friday".
        lead = _BEFORE_DATE.match(re.sub(_LEAD, "", before))
        moved = f"{plain(sentence[day.end :])} {before}{plain(day.text)}" if lead else flat
        if not _DUE.search(moved):
            continue
        named = plain(day.text)
        leads = named.startswith(
            ("within ", "in ", "dans ", "d'ici ", "sous ", "tomorrow", "demain")
        )
        if day.day >= now.date() and (leads or _BEFORE_DATE.search(before)):
            return day
    return None
