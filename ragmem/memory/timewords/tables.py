"""The words of time in seven languages, without case and accents; see `readers`."""

import re
from collections.abc import Iterable, Mapping


def any_of(words: Iterable[str]) -> str:
    """A pattern for one of the words, the longest first."""
    return "|".join(sorted((w.replace(" ", r"\s") for w in words), key=len, reverse=True))


def _table(rows: Mapping[str, str]) -> dict[str, str]:
    return {word.replace("_", " "): key for key, words in rows.items() for word in words.split()}


def _numbered(rows: str, first: int) -> dict[str, int]:
    return {
        word.replace("_", " "): number
        for number, words in enumerate(rows.strip().split("\n"), first)
        for word in words.split()
    }


MONTHS = _numbered(
    """january jan janvier januar jaenner enero gennaio janeiro januari
february feb fevrier februar febrero febbraio fevereiro februari
march mar mars marz marzo marco maart
april apr avril abril aprile
may mai mayo maggio maio mei
june jun juin juni junio giugno junho
july jul juillet juli julio luglio julho
august aug aout agosto augustus
september sep sept septembre septiembre settembre setembro
october oct octobre oktober octubre ottobre outubro
november nov novembre noviembre novembro
december dec decembre dezember diciembre dicembre dezembro""",
    1,
)
WEEKDAYS = _numbered(
    """monday mon lundi montag lunes lunedi segunda-feira maandag
tuesday tue tues mardi dienstag martes martedi terca-feira dinsdag
wednesday wed mercredi mittwoch miercoles mercoledi quarta-feira woensdag
thursday thu thurs jeudi donnerstag jueves giovedi quinta-feira donderdag
friday fri vendredi freitag viernes venerdi sexta-feira vrijdag
saturday sat samedi samstag sonnabend sabado sabato zaterdag
sunday sun dimanche sonntag domingo domenica zondag""",
    0,
)
SHY = frozenset(
    [
        "may",
        "march",
        "mar",
        "mars",
        "mai",
        "mei",
        "sun",
        "sat",
        "mon",
        "wed",
        "fri",
        "thu",
        "jan",
        "jun",
        "dec",
        "sep",
        "nov",
        "oct",
        "marco",
        "marz",
    ]
)
"""Words that are often something else: they need a preposition before them."""

PREPOSITIONS = [
    "in",
    "on",
    "since",
    "during",
    "until",
    "by",
    "before",
    "after",
    "early",
    "late",
    "mid",
    "en",
    "au",
    "pendant",
    "depuis",
    "le",
    "im",
    "am",
    "seit",
    "vom",
    "der",
    "an",
    "el",
    "del",
    "em",
    "no",
    "na",
    "nel",
    "di",
    "il",
    "nell'",
    "op",
    "sinds",
    "around",
    "last",
    "until",
    "between",
    "from",
    "to",
    "and",
    "entre",
    "et",
    "und",
    "y",
    "e",
    "zwischen",
]

NUMBERS = {
    **_numbered(
        """one un une ein eine einem einer uno una um uma een
two deux zwei dos due dois duas twee
three trois drei tres tre drie
four quatre vier cuatro quattro quatro
five cinq funf cinco cinque vijf
six sechs seis sei zes
seven sept sieben siete sette sete zeven
eight huit acht ocho otto oito
nine neuf neun nueve nove negen
ten dix zehn diez dieci dez tien
eleven onze elf once undici
twelve douze zwolf doce dodici doze twaalf""",
        1,
    ),
    "a": 1,
    "an": 1,
    "quinze": 15,
}
_TEENS = _numbered(
    """thirteen treize
fourteen quatorze
fifteen quinze
sixteen seize
seventeen dix_sept
eighteen dix_huit
nineteen dix_neuf""",
    13,
)
_ENGLISH = [*_numbered("one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine", 1)]
_FRENCH = [
    *_numbered("un\ndeux\ntrois\nquatre\ncinq\nsix\nsept\nhuit\nneuf\ndix\nonze\ndouze", 1),
    *(word for word in _TEENS if not word.endswith("teen")),
]
_TENS = {
    **_numbered("twenty\nthirty\nforty\nfifty\nsixty\nseventy\neighty\nninety", 2),
    **_numbered("vingt\ntrente\nquarante\ncinquante\nsoixante\n\nquatre_vingt", 2),
}
COUNTED = {
    **{word: number for word, number in NUMBERS.items() if word not in ("a", "an")},
    **_TEENS,
    **{word: 10 * tens for word, tens in _TENS.items()},
    **{
        f"{word} {unit}": 10 * tens + count
        for word, tens in _TENS.items()
        for count, unit in enumerate(_ENGLISH if word.endswith("ty") else _FRENCH, 1)
    },
    **{f"{word} et un": 10 * tens + 1 for word, tens in _TENS.items()},
    "soixante et onze": 71,
    "quatre vingts": 80,
    **dict.fromkeys(("hundred", "a hundred", "one hundred", "cent"), 100),
}
"""Numbers up to a hundred in English and in French, up to twelve in others; without hyphens."""
FEW = {
    "a few": 3,
    "few": 3,
    "a couple of": 2,
    "a couple": 2,
    "couple of": 2,
    "some": 3,
    "several": 4,
    "quelques": 3,
    "plusieurs": 4,
    "ein paar": 3,
    "einigen": 3,
    "unos": 3,
    "unas": 3,
    "algunos": 3,
    "algunas": 3,
    "qualche": 3,
    "alcuni": 3,
    "alguns": 3,
    "algumas": 3,
    "een paar": 3,
    "enkele": 3,
}

UNITS = _table(
    {
        "minute": "minute minutes minuten minuto minutos minuti minuut min mins",
        "hour": "hour hours heure heures stunde stunden hora horas ora ore uur uren",
        "day": "day days jour jours tag tage tagen dia dias giorno giorni dag dagen",
        "week": "week weeks semaine semaines woche wochen semana semanas settimana settimane weken",
        "month": "month months mois monat monate monaten mes meses mese mesi maand maanden",
        "year": "year years an ans annee annees jahr jahre jahren ano anos anno anni jaar jaren",
        "weekend": "weekend week-end wochenende fin_de_semana fine_settimana fim_de_semana",
    }
)

DAY_PARTS: dict[str, tuple[int, int]] = {
    word.replace("_", " "): hours
    for words, hours in (
        (
            "morning matin matinee morgen fruh manana mattina mattino manha ochtend vormittag",
            (4, 12),
        ),
        ("noon midi mittag mediodia lunch lunchtime", (11, 14)),
        ("afternoon apres-midi nachmittag tarde pomeriggio middag", (12, 18)),
        ("evening soir soiree abend sera avond", (17, 24)),
        ("tonight", (17, 28)),
        ("night nuit nacht noche notte noite nachts", (19, 30)),
    )
    for word in words.split()
}

TODAY = ("today", "aujourd'hui", "heute", "hoy", "oggi", "hoje", "vandaag")
YESTERDAY = ("yesterday", "hier", "gestern", "ayer", "ieri", "ontem", "gisteren")
BEFORE_YESTERDAY = (
    "the day before yesterday",
    "day before yesterday",
    "avant-hier",
    "vorgestern",
    "anteayer",
    "antes de ayer",
    "l'altro ieri",
    "altro ieri",
    "anteontem",
    "eergisteren",
)
THIS = (
    "this",
    "ce",
    "cet",
    "cette",
    "diese",
    "dieser",
    "diesen",
    "dieses",
    "esta",
    "este",
    "questa",
    "questo",
    "sta",
    "nesta",
    "neste",
    "deze",
    "dit",
    "earlier this",
)
RECENT = (
    "recently",
    "lately",
    "the other day",
    "recemment",
    "dernierement",
    "l'autre jour",
    "neulich",
    "kurzlich",
    "vor kurzem",
    "recientemente",
    "hace poco",
    "el otro dia",
    "recentemente",
    "di recente",
    "l'altro giorno",
    "ha pouco tempo",
    "onlangs",
    "laatst",
)

# With {n}: numbers; {unit}: units.
AGO = (
    r"(?P<n>{n}) (?P<unit>{unit}) ago",
    r"(?P<n>{n}) (?P<unit>{unit}) (?:fa|atras|geleden|back)",
    r"il y a (?P<n>{n}) (?P<unit>{unit})",
    r"y a (?P<n>{n}) (?P<unit>{unit})",
    r"vor (?P<n>{n}) (?P<unit>{unit})",
    r"hace (?P<n>{n}) (?P<unit>{unit})",
    r"ha (?P<n>{n}) (?P<unit>{unit})",
)
PAST = (
    r"(?:in|over|during|within)? ?the (?:last|past) (?:(?P<n>{n}) )?(?P<unit>{unit})",
    r"(?:last|past) (?P<n>{n}) (?P<unit>{unit})",
    r"(?:ces|les) (?P<n>{n}) (?:dernier|derniere)s? (?P<unit>{unit})",
    r"(?:in )?(?:den|die) letzten (?P<n>{n}) (?P<unit>{unit})",
    r"(?:en )?(?:los|las) ultim[oa]s (?P<n>{n}) (?P<unit>{unit})",
    r"(?:negli|gli|le|nelle) ultim[ie] (?P<n>{n}) (?P<unit>{unit})",
    r"(?:nos|nas|os|as) ultim[oa]s (?P<n>{n}) (?P<unit>{unit})",
    r"de (?:laatste|afgelopen) (?P<n>{n}) (?P<unit>{unit})",
)
LAST = (
    r"last (?P<unit>{unit})",
    r"(?:la |le |l')?(?P<unit>{unit}) (?:derniere|dernier|passee|passe)",
    r"(?:letzte|vorige|vergangene)[nrsm]? (?P<unit>{unit})",
    r"(?:la |el )?(?P<unit>{unit}) (?:pasada|pasado)",
    r"(?:la |il |lo |l')?(?P<unit>{unit}) (?:scorsa|scorso|passata|passato)",
    r"(?:n?a |n?o )?(?P<unit>{unit}) (?:passada|passado)",
    r"(?:vorige|afgelopen) (?P<unit>{unit})",
)

ANYTHING = frozenset(
    word
    for words in (
        """happen happens happened happening work works worked working go going went say said saying
        talk talked talking discuss discussed speak spoke spoken change changed changes tell show
        finish finished achieve achieved accomplish accomplished get got stuff thing things anything
        everything something remind remember recall recap summary summarize summarise session
        sessions conversation conversations chat day week month""",
        """passe passer passait parle parler parlions dit disait dire discute discuter travaille
        travailler change resume resumer rappelle rappeler montre montrer raconte chose choses
        journee jour semaine mois""",
        """passiert passierte geschah geschehen gemacht machten gearbeitet arbeiteten besprochen
        gesprochen geredet gesagt sagten getan erledigt geandert zeig zeige zusammenfassung sachen
        sitzung sitzungen gesprach lief gelaufen los tag woche monat""",
        """paso pasaba pasado ocurrio sucedio hicimos hiciste hice hecho hablamos hablado dijimos
        dije dicho trabajamos trabajado cambio cambiamos cambiado resumen cosas sesion sesiones
        conversacion dia semana""",
        """successo accaduto fatto facemmo detto parlato lavorato discusso cambiato riassunto cose
        sessione sessioni conversazione giorno settimana mese""",
        """aconteceu acontecido passou fizemos fizeste fiz feito dissemos disse dito falamos falado
        trabalhamos trabalhado mudou mudamos resumo coisas sessao sessoes conversa dia""",
        """gebeurd gebeurde gedaan deden gezegd gepraat gesproken gewerkt besproken veranderd
        samenvatting dingen sessie sessies gesprek dag maand""",
    )
    for word in words.split()
)
"""Words of a question that is about whatever there was, as index terms."""


def _longest_words() -> frozenset[str]:
    named = [*UNITS, *MONTHS, *WEEKDAYS, *DAY_PARTS, *TODAY, *YESTERDAY, *BEFORE_YESTERDAY]
    nights = ["last night", "hier nuit", "cette nuit", "letzte nacht", "anoche", "stanotte"]
    return frozenset(
        max(re.split(r"[^\w]+", words), key=len) for words in [*named, *RECENT, *nights]
    )


TELLING = _longest_words()
"""Of all that names a time without a digit the longest word."""
