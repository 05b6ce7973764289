"""The shipped classifiers of short texts: none of these was fitted on."""

import pytest

from ragmem.memory.classifiers import GENERAL, LASTING, Classifier

NEED_NOTHING = [
    "How many litres are in an imperial gallon?",
    "Erklär mir, was eine Primzahl ist.",
    "Raconte-moi une blague sur les boulangers.",
    "What's the difference between TCP and UDP?",
]
NEED_A_PROJECT = [
    "How many litres does the tank on the roof hold?",
    "Erklär Jonas, was am Export noch fehlt.",
    "Écris le mot d'accueil pour les boulangers de samedi.",
    "Switch the telemetry from TCP to UDP.",
]
LASTS = [
    "captions under every picture in sentence case, no full stop",
    "Der Vorstand liest nur PDF, also alles als PDF.",
    "Les noms de fichiers en minuscules, avec des tirets.",
    "prices with a comma, two decimals",
]
PASSES = [
    "The caption under the third picture has a full stop too many.",
    "Der Vorstand hat das PDF vom März noch nicht gelesen.",
    "Le fichier des noms est vide depuis hier.",
    "the price of the second lamp went up by two euros",
]


@pytest.mark.parametrize(
    ("classifier", "inside", "outside"),
    [(GENERAL, NEED_NOTHING, NEED_A_PROJECT), (LASTING, LASTS, PASSES)],
)
def test_texts_of_one_field_are_told_apart(
    classifier: Classifier, inside: list[str], outside: list[str]
) -> None:
    assert min(map(classifier.log_odds, inside)) > 0 > max(map(classifier.log_odds, outside))


@pytest.mark.parametrize("text", ["", " ", "é", "\ud800", "\0" * 9, "🦀", "x" * 100_000])
def test_any_text_has_odds(text: str) -> None:
    assert -20 < GENERAL.log_odds(text) < 20


def test_neither_case_nor_spaces_count() -> None:
    assert LASTING.log_odds("Tabs,  please\n") == LASTING.log_odds("tabs, please")
