"""The shipped classifiers of short texts: none of these was fitted on."""

import pytest

from ragmem.memory.classifiers import BUCKETS, GENERAL, LASTING, Classifier, packed

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


def test_the_file_of_a_classifier_gives_back_its_weights() -> None:
    weights = [0.0] * BUCKETS
    weights[0], weights[-1] = 2.54, -1.27
    file = packed(weights, 0.5)
    assert len(file) == 8 + BUCKETS
    assert (file[8], file[-1]) == (127, 256 - 64)


@pytest.mark.parametrize("text", ["", " ", "é", "\ud800", "\0" * 9, "🦀", "x" * 100_000])
def test_any_text_has_odds(text: str) -> None:
    assert -20 < GENERAL.log_odds(text) < 20


def test_neither_case_nor_spaces_count() -> None:
    assert LASTING.log_odds("Tabs,  please\n") == LASTING.log_odds("tabs, please")
