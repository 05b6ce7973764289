"""Words for days and times in seven languages, lowercase and without accents; see `dates`."""

import re
from collections.abc import Iterable, Mapping


def any_of(words: Iterable[str]) -> str:
    """Return a pattern that matches any of the words, preferring the longest."""
    return "|".join(sorted((w.replace(" ", r"\s") for w in words), key=len, reverse=True))


def _table(rows: Mapping[str, str]) -> dict[str, str]:
    return {word.replace("_", " "): key for key, words in rows.items() for word in words.split()}


def _phrases(words: str) -> tuple[str, ...]:
    return tuple(word.replace("_", " ") for word in words.split())


def word_set(words: str) -> frozenset[str]:
    """Return the words of a text, in which an underscore stands for a space."""
    return frozenset(_phrases(words))


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
SHY = word_set(
    "dec fri jan jun mai mar march marco mars marz may mei mon nov oct sat sep sun thu wed"
)
"""Words that often mean something else, and count only after a preposition."""

PREPOSITIONS = _phrases(
    """in on since during until by before after early late mid en au pendant depuis le im am seit
    vom der an el del em no na nel di il nell' op sinds around last between from to and entre
    et und y e zwischen"""
)

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
FEW = _numbered(
    """a_couple_of a_couple couple_of
a_few few some quelques ein_paar einigen unos unas algunos algunas qualche alcuni alguns algumas \
een_paar enkele
several plusieurs""",
    2,
)

UNITS = _table(
    {
        "minute": "minute minutes minuten minuto minutos minuti minuut min mins",
        "hour": "hour hours heure heures stunde stunden hora horas ora ore uur uren",
        "day": "day days jour jours tag tage tagen dia dias giorno giorni dag dagen",
        "week": "week weeks semaine semaines woche wochen semana semanas settimana settimane weken",
        "month": "month months mois monat monate monaten mes meses mese mesi maand maanden",
        "year": "year years an ans annee annees jahr jahre jahren ano anos anno anni jaar jaren",
        "weekend": """weekend weekends week-end week-ends wochenende fin_de_semana fine_settimana
            fim_de_semana""",
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
END_OF_DAY = _phrases(
    """tonight this_evening this_afternoon ce_soir end_of_day end_of_the_day eod fin_de_journee
    la_fin_de_la_journee"""
)
YESTERDAY = ("yesterday", "hier", "gestern", "ayer", "ieri", "ontem", "gisteren")
BEFORE_YESTERDAY = _phrases(
    """the_day_before_yesterday day_before_yesterday avant-hier vorgestern anteayer antes_de_ayer
    l'altro_ieri altro_ieri anteontem eergisteren"""
)
LAST_NIGHT = _phrases("last_night hier_nuit cette_nuit letzte_nacht anoche stanotte")
TOMORROW = ("tomorrow", "demain", "morgen", "manana", "domani", "amanha")
AFTER_TOMORROW = _phrases(
    """the_day_after_tomorrow day_after_tomorrow apres-demain apres_demain ubermorgen pasado_manana
    dopodomani depois_de_amanha overmorgen"""
)
THIS = _phrases(
    """this ce cet cette diese dieser diesen dieses esta este questa questo sta nesta neste deze dit
    earlier_this"""
)
RECENT = _phrases(
    """recently lately the_other_day recemment dernierement l'autre_jour neulich kurzlich
    vor_kurzem recientemente hace_poco el_otro_dia recentemente di_recente l'altro_giorno
    ha_pouco_tempo onlangs laatst"""
)

# Patterns. {n}: a number; {unit}: a unit of time; each is a group of that name.
AGO = ("{n} {unit} (?:ago|fa|atras|geleden|back)", "(?:il y a|y a|vor|hace|ha) {n} {unit}")
PAST = (
    "(?:in|over|during|within)? ?the (?:last|past) (?:{n} )?{unit}",
    "(?:last|past|(?:in )?(?:den|die) letzten|(?:en )?(?:los|las) ultim[oa]s"
    "|(?:negli|gli|le|nelle) ultim[ie]|(?:nos|nas|os|as) ultim[oa]s|de (?:laatste|afgelopen))"
    " {n} {unit}",
    "(?:ces|les) {n} (?:dernier|derniere)s? {unit}",
)
LAST = (
    "(?:last|(?:letzte|vorige|vergangene)[nrsm]?|afgelopen) {unit}",
    "(?:la |le |l'|el |il |lo |n?a |n?o )?{unit} (?:derni(?:ere|er)|passee?|pasad[ao]|scors[ao]"
    "|passat[ao]|passad[ao])",
)
NEXT = r"next|prochain|prochaine|nachste[nrsm]?|proximo|proxima|prossim[oa]|volgende"
END = r"end|fin|ende|final|fine|fim|eind"

ANYTHING = word_set(
    """happen happens happened happening work works worked working go going went say said saying
    talk talked talking discuss discussed speak spoke spoken change changed changes tell show
    finish finished achieve achieved accomplish accomplished get got stuff thing things anything
    everything something remind remember recall recap summary summarize summarise session
    sessions conversation conversations chat day week month
    passe passer passait parle parler parlions dit disait dire discute discuter travaille
    travailler change resume resumer rappelle rappeler montre montrer raconte chose choses
    journee jour semaine mois
    passiert passierte geschah geschehen gemacht machten gearbeitet arbeiteten besprochen
    gesprochen geredet gesagt sagten getan erledigt geandert zeig zeige zusammenfassung sachen
    sitzung sitzungen gesprach lief gelaufen los tag woche monat
    paso pasaba pasado ocurrio sucedio hicimos hiciste hice hecho hablamos hablado dijimos
    dije dicho trabajamos trabajado cambio cambiamos cambiado resumen cosas sesion sesiones
    conversacion dia semana
    successo accaduto fatto facemmo detto parlato lavorato discusso cambiato riassunto cose
    sessione sessioni conversazione giorno settimana mese
    aconteceu acontecido passou fizemos fizeste fiz feito dissemos disse dito falamos falado
    trabalhamos trabalhado mudou mudamos resumo coisas sessao sessoes conversa dia
    gebeurd gebeurde gedaan deden gezegd gepraat gesproken gewerkt besproken veranderd
    samenvatting dingen sessie sessies gesprek dag maand"""
)
"""Words of a question about anything that happened, as index terms."""


TELLING = frozenset(
    max(re.split(r"[^\w]+", words), key=len)
    for names in (
        *(UNITS, MONTHS, WEEKDAYS, DAY_PARTS),
        *(TODAY, YESTERDAY, BEFORE_YESTERDAY, RECENT, LAST_NIGHT),
    )
    for words in names
)
"""The longest word of each time expression without a digit."""
