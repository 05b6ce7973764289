"""Which language a text is in, told by its commonest words, and which words carry no topic."""

import re
from collections.abc import Iterable

# As they are written after case folding; those of one language that are words of another's
# topics ("die", "main", "son") count for the guess only.
STOP_WORDS: dict[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "english": """
            a about after again all also am an and any are as at be because been before being
            between both but by can could did didn do does doesn doing don down during each few
            for from further get got had has have having he her here hers him his how i if in
            into is isn it its just let ll me more most my no nor not now of off on once only or
            other our ours out over own please re s same she should so some such t than that the
            their theirs them then there these they this those through to too under until up us
            ve very was wasn we were what when where which while who whom whose why will with
            won would yes you your yours""",
        "french": """
            a afin ai aient ainsi ait alors après au aucun aura aurait aussi autre aux avait
            avant avec avez avoir avons c car ce cela celle celui ces cet cette ceux chaque
            chez ci comme comment d dans de depuis des deux doit donc dont du elle elles en
            encore entre est et etc eu eux fait faire faut il ils j je jusqu l la le les leur
            leurs lui là m ma mais me mes moi moins mon même n ne ni non nos notre nous on ont
            ou où par parce pas pendant peu peut plus pour pourquoi pourtant puis qu quand que
            quel quelle quelles quels qui quoi s sa sans se sera serait ses si son sont sous
            suis sur t ta te tes toi ton tous tout toute toutes tu un une vers voici voilà vos
            votre vous y ça étaient était étant été être""",
        "german": """
            aber alle allem allen aller alles als also am an ander andere anderen auch auf aus
            bei bin bis bist bitte da damit dann das dass daß dein deine dem den denn der des
            dich die dies diese diesem diesen dieser dieses dir doch dort du durch ein eine
            einem einen einer eines er es etwas euch euer für gegen gibt habe haben hat hatte
            hatten hier hin hinter ich ihm ihn ihnen ihr ihre im in ins ist ja jede jeder jetzt
            kann kein keine können man mein meine mich mir mit muss müssen nach nicht nichts
            noch nun nur ob oder ohne schon sehr sein seine sich sie sind so soll sollte
            sondern sonst um und uns unser unsere unter vom von vor wann war waren warum was
            weg weil welche welchem welchen welcher welches wenn wer werde werden wie wieder
            wieso will wir wird wo wollen worden wurde wurden während zu zum zur zwischen über""",
        "spanish": """
            a al algo algunos ante antes aquel aquí así aunque cada como cómo con contra cual
            cuál cuando cuándo cuánto de del desde donde dónde dos e el ella ellas ellos en
            entonces entre era eran es esa ese eso esos esta estaba estamos estar estas este
            esto estos está están fue fueron ha había hace hacer han hasta hay he hemos la las
            le les lo los me mi mis mucho muy más mí nada ni no nos nosotros nuestra nuestro o
            os otra otro para pero poco por porque pues que quien quién qué se sea según ser si
            sido sin sobre son su sus sí también tan te tengo tiene tienen todo todos tu tus tú
            un una uno unos usted ya yo él""",
        "italian": """
            a abbiamo ad ai al alla alle allo anche ancora avere aveva c che chi ci ciò come con
            contro cosa cui d da dai dal dalla dalle dallo degli dei del della delle dello dentro
            di dopo dove due e ed era erano essere fa fare fino fra gli ha hai hanno ho i il in
            io l la le lei li lo loro lui ma me mi mia mio molto ne nei nel nella nelle nello noi
            non nostra nostro o ogni per perché perciò più poi prima proprio qual quale quali
            quando quanto quella quelle quelli quello questa queste questi questo qui se sei
            senza si sia siamo sono sopra sotto sta stata stato stati su sua sui sul sulla suo
            tra tu tua tuo tutti tutto un una uno vi voi è""",
        "portuguese": """
            a ao aos aquela aquele aquilo as assim até cada com como da das de dela dele deles
            depois desde do dos e ela elas ele eles em então entre era eram essa esse esta
            estamos estar estava este está estão eu foi foram há isso isto já lhe mais mas me
            mesmo meu meus minha muito na nas nem no nos nossa nosso num numa não nós o onde os
            ou para pela pelas pelo pelos por porque porquê quais qual quando quanto que quem
            quê se seja sem ser seu seus sobre sua suas são só também te tem temos tenho ter
            tinha tudo tu tua um uma você vocês às é à""",
        "dutch": """
            aan al alle als altijd andere ben bij dan dat de der deze die dit doch doen door dus
            een eens en er ge geen geweest haar had heb hebben heeft hem het hier hij hoe hun ik
            in is ja je jij jouw kan kunnen kon maar me meer men met mij mijn moet na naar niet
            niets nog nu of om omdat onder ons onze ook op over reeds te tegen toch toen tot u
            uit uw van veel voor waar waarom wanneer want waren was wat we wel welke werd wezen
            wie wij wil worden wordt zal ze zelf zich zij zijn zo zonder zou""",
    }.items()
}

_WORD = re.compile(r"[^\W\d_]+")
_SAMPLE = 4000
"""Characters at the start of a text's prose that are looked at."""
_LOOKED_AT = 4 * _SAMPLE
_FENCED = re.compile(r"^ {0,3}(```+|~~~+)[^\n]*\n.*?(?:^ {0,3}\1|\Z)", re.DOTALL | re.MULTILINE)
_SPELLED = re.compile(r"`[^`\n]*`")
_FEW_LINES = 3
_CODE = re.compile(
    r"""
      ^\s*(?: [@$|*] | [+-](?!\ \w) | //  )   # a change, a prompt, a comment
    | ^(?:\t|\ {4})\s*\S                    # what stands far in
    | [{}\\=<>] | ;\s*$ | \w\( | :: | ->     # no prose has these
    """,
    re.VERBOSE,
)
"""Is found in a line of code, or of a difference between two files."""
_LEAST = 2
"""Stop words below which a text says nothing about its language."""
_LEAD = 1.2
"""How much the first language must be ahead of the second."""

# What decides between two languages that share their commonest words.
_OWN: dict[str, frozenset[str]] = {
    language: words
    - frozenset().union(*(w for other, w in STOP_WORDS.items() if other != language))
    for language, words in STOP_WORDS.items()
}


def _votes() -> dict[str, tuple[tuple[str, float], ...]]:
    """Of each stop word the languages that it speaks for, and how much."""
    votes: dict[str, tuple[tuple[str, float], ...]] = {}
    for language, words in STOP_WORDS.items():
        for word in words:
            weight = (1.0 if len(word) > 1 else 0.5) + (0.5 if word in _OWN[language] else 0.0)
            votes[word] = (*votes.get(word, ()), (language, weight))
    return votes


_VOTES = _votes()


def guess_language(text: str) -> str | None:
    """The language that the stop words of a text's prose speak for; None when they don't tell."""
    return guess(_WORD.findall(_prose(text[:_LOOKED_AT])[:_SAMPLE].casefold()))


def _prose(text: str) -> str:
    """Without what is code: a loop's `do`, `es` or `se` are no words of a language.

    Of a few lines, as a question has, each is kept whatever names stand in it.
    """
    text = _SPELLED.sub(" ", _FENCED.sub(" ", text))
    lines = text.split("\n")
    if len(lines) <= _FEW_LINES:
        return text
    return "\n".join(line for line in lines if not _CODE.search(line))


def guess(words: Iterable[str]) -> str | None:
    """`guess_language` of words that are case-folded already."""
    counts = dict.fromkeys(STOP_WORDS, 0.0)
    for word in words:
        for language, weight in _VOTES.get(word, ()):
            counts[language] += weight
    first, second = sorted(counts, key=counts.__getitem__, reverse=True)[:2]
    if counts[first] < _LEAST or counts[first] < _LEAD * counts[second]:
        return None
    return first


def is_stop_word(word: str, language: str | None) -> bool:
    """Whether a case-folded word has no topic of its own; in no language known, in any."""
    if language is None:
        return any(word in stops for stops in STOP_WORDS.values())
    return word in STOP_WORDS.get(language, ())
