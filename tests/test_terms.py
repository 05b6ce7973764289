"""Text into the terms that both stores index and search."""

import time
from threading import Thread

import apsw
import pytest
from hypothesis import given, strategies as st

from ragmem.terms import (
    JOINTS,
    LONGEST,
    TERMS_VERSION,
    guess_language,
    query_terms,
    terms,
    turn_terms,
)
from tests.memory.builders import a_call, a_turn


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "AuthService.login_user",
            "authservice.login_user authservice auth service servic login_user login user",
        ),
        ("src/auth/login.py:42", "src/auth/login.py login.py src auth login py 42"),
        ("error[E0382]", "error e0382"),
        ("KeyError: 'user_id'", "keyerror key error user_id user id"),
        ("getHTTPResponse", "gethttpresponse get http response respons"),
        ("MAX_RETRIES = 3", "max_retries max retries retri 3"),
        ("--no-verify", "no-verify no verify verifi"),
        ("std::vec::Vec", "std::vec::vec std vec"),
        ("0.3.1 v2.10.0 404", "0.3.1 0.3 v2.10.0 2.10.0 2.10 404"),
        ("v1.0rc1 10.0.0.1", "v1.0rc1 1.0rc1 10.0.0.1"),
        ("4be91a2 4be91a2f 20260304", "4be91a2 be 4be91a2f 4be91a2 20260304"),
        ("deadbeef facade", "deadbeef facade facad"),
        ("on 2026-03-04 at 12:30", "on 2026-03-04 2026-03 at 12:30"),
        ("1,000 1_000 30s 500ms", "1000 1000 30s 30 500ms 500"),
        ("C++ C# utf8", "c++ c# utf8 utf"),
        ("l’authentification", "authentification authentif"),
        ("ﬁle Ｃａｆé", "file cafe"),
        ("接続エラー", "接続 続エ エラ ラー"),
        ("Größe Straße", "grosse gross gros- -ross strasse strass stra- -rass"),
        ("подключения", "подключения подключен"),
        ("don't", "don"),
        ("", ""),
    ],
)
def test_what_a_text_is_found_by(text: str, expected: str) -> None:
    """Identifiers split and whole, paths, errors, numbers, dates, scripts.

    Stored rows depend on these: whoever changes them raises TERMS_VERSION.
    """
    assert TERMS_VERSION == 4
    language = "french" if "’" in text else "german" if "ß" in text else None
    assert terms(text, language=language) == expected.split()


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("The retries of the connection pool were doubled.", "retry connections"),
        ("We renamed it to AuthService.login_user today", "login_user"),
        ("We renamed it to AuthService.login_user today", "authservice"),
        ("We renamed it to AuthService.login_user today", "where is the user login"),
        ("see src/auth/login.py:42", "src/auth/login.py"),
        ("see src/auth/login.py:42", "login.py"),
        ("see src/auth/login.py:42", "the login file"),
        ("Les requêtes ont été annulées par le serveur", "pourquoi la requête est annulée ?"),
        ("Les requêtes ont été annulées par le serveur", "requete"),
        ("Die Verbindungen werden nach 30s geschlossen", "wann wird die Verbindung geschlossen"),
        ("Las conexiones se cierran después de un minuto", "¿cuándo se cierra la conexión?"),
        ("the timeout is 30s now", "30 seconds timeout"),
        ("limit of 1,000 rows", "1000"),
        ("データベース接続がタイムアウト", "接続 タイムアウト"),
        ("it raises KeyError('user_id')", "user id key error"),
    ],
)
def test_a_question_finds_what_was_said_otherwise(said: str, asked: str) -> None:
    """By stem, by part, by whole, with or without accents, in several languages."""
    wanted = [t for t in query_terms(asked) if t.kind in ("word", "identifier", "number", "stem")]
    assert {t.term for t in wanted} & set(terms(said))


def test_words_without_a_topic_come_last() -> None:
    """The commonest words cost the most and tell the least; they only fill up."""
    found = query_terms("why did we drop redis for the queue?")
    assert [t.term for t in found if t.kind != "stop"] == ["drop", "redis", "redi", "queue"]
    assert [t.term for t in found[4:]] == ["why", "did", "we", "for", "the"]
    assert {t.kind for t in found[4:]} == {"stop"}
    assert {t.weight for t in found if t.kind == "stop"} == {0.5}, "where they are asked for"
    found = query_terms("Pourquoi a-t-on abandonné Celery ?")
    assert [t.term for t in found[:4]] == ["celery", "abandonne", "abandon", "abandonn"]
    assert {t.kind for t in query_terms("what is it")} == {"stop"}
    assert query_terms("") == ()


def test_a_person_asked_about_counts_double() -> None:
    """A name inside of a sentence is what the question is about."""
    found = {t.term: t.weight for t in query_terms("what did Marta want changed? Redis maybe")}
    assert found["marta"] == 2
    assert found["changed"] == 1
    assert found["redis"] == 1
    german = query_terms("Warum hat Marta die Warteschlange nicht mehr gewollt?")
    assert {t.weight for t in german} == {1, 0.5}, "every noun has a capital"


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("Die Verbindung zum Broker wird nicht mehr geschlossen", "Verbindungen"),
        ("Die Warteschlange haben wir neu gestartet", "Warteschlangen Neustart?"),
        ("Il y a une erreur de réseau dans le journal", "erreurs réseaux"),
    ],
)
def test_few_words_are_stemmed_in_each_language_that_they_may_be_of(said: str, asked: str) -> None:
    """What is searched for has no words that tell its language."""
    assert {t.term for t in query_terms(asked)} & set(terms(said))


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("why did we drop redis for the queue?", "english"),
        ("pourquoi est-ce que la file est dans Redis ?", "french"),
        ("warum haben wir die Warteschlange nicht mehr", "german"),
        ("por qué no usamos la cola de mensajes", "spanish"),
        ("perché non usiamo più la coda dei messaggi", "italian"),
        ("por que não usamos mais a fila de mensagens", "portuguese"),
        ("waarom gebruiken we de wachtrij niet meer", "dutch"),
        ("redis timeout", None),
        ("", None),
        ("x = y[0](z)", None),
        ("+    for se in es {\n+        let des = la();\n+        un(des, se)\n+    }", None),
        ("Warum ist das so?\n\n```go\nfor _, the := range of { and(the, or) }\n```", "german"),
        (
            "Das ist nicht mehr so:\n    if the and of:\n    return to(it)\nSieh es dir an.",
            "german",
        ),
        ("Que fait `the_and(of, to)` dans la file ?", "french"),
    ],
)
def test_the_language_of_a_text(text: str, language: str | None) -> None:
    """A stemmer chosen by language, or none."""
    assert guess_language(text) == language


def test_a_turn_is_indexed_with_its_tools() -> None:
    """What was asked, answered and done; the end of a long result is left to files."""
    call = a_call(
        arguments='{"path": "src/pool.rs", "lines": [1, 2]}',
        text="impl Pool {" + " pool" * 200 + " hapax",
    )
    asked = "Comment est-ce que la connexion est fermée ?"
    turn = a_turn(1, asked, "It closes after a minute of the pool being idle.", (call,))
    found = turn_terms(turn)
    assert {"connexion", "ferm", "minute", "idl", "src/pool.rs", "pool.rs", "read_file"} <= {*found}
    assert found.count("pool") == 2, "once for the answer, once for all that the tool said"
    assert "hapax" not in found


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("Der Mahnlauf ist um 20 Uhr und liest die offenen Posten.", "warum kam die Mahnung"),
        ("Wir rechnen im Schritt Berechne, das ist langsam.", "was war der Berechnungsschritt"),
        ("de wachtrij van de berichten is weg", "waarom is het berichtenwachtrijtje leeg"),
        ("Nummernkreise", "wie ist das mit dem Kreis der Nummern"),
    ],
)
def test_words_written_together_are_found_by_their_ends(said: str, asked: str) -> None:
    """German and Dutch; also of a short text in a turn that is German."""
    answer = "Das ist nicht mehr so." if "achtrij" not in said else "Dat is niet zo."
    turn = a_turn(1, said, answer)
    wanted = {t.term: t for t in query_terms(asked)}
    shared = wanted.keys() & set(turn_terms(turn))
    edges = {term for term in shared if wanted[term].kind == "hint"}
    assert edges
    assert {wanted[term].weight for term in edges} == {0.5}


def test_only_languages_that_join_words_have_ends() -> None:
    """A word of code or of English is not cut; nor is one without a topic."""
    for text in ("The invoices were not sent at all", "pourquoi les factures sont en retard"):
        assert not any(t.startswith("-") or t.endswith("-") for t in terms(text))
        assert not any(t.kind == "hint" for t in query_terms(text))
    german = terms("Das ist nicht im FlatFileItemWriter und in src/haupt.py")
    assert not any(t.startswith("-") or t.endswith("-") for t in german)


def test_a_tool_call_that_is_not_json_is_indexed_as_it_is() -> None:
    """Records of a crash, of another version or of an import."""
    call = a_call(tool_name="shell", arguments="[torn", result="")
    turn = a_turn(1, "x", "", (call,))
    assert turn_terms(turn) == ["x", "shell", "torn"]


@given(st.text() | st.text("aA_.-/\\:'’,+#@0 é\n中"))
def test_any_text_gives_terms_that_every_store_accepts(text: str) -> None:
    """Joined with spaces and split again they are the same; NUL, surrogates and all."""
    found = terms(text)
    for term in found:
        assert 0 < len(term) <= LONGEST
        assert term.encode()
        assert not any(c.isspace() or c == "\0" for c in term)
        assert all(c.isalnum() or c in JOINTS for c in term if c.isascii())
    assert " ".join(found).split() == found
    assert terms(text) == found
    for asked in query_terms(text):
        assert asked.weight in (0.5, 1, 2)


@pytest.mark.parametrize(
    "text",
    [
        "AuthService.login_user in src/auth/login.py:42 C:\\\\temp\\\\x.txt C++ C# @app.route a+b",
        "データベース接続 подключения قاعدة البيانات डेटाबेस कनेक्शन 설정을",
        "v0.3.1-rc1 2026-03-04 12:30:01 it's l’été É E\u0301 \ufb01le \ud800x",
    ],
)
def test_fts5_keeps_each_term_whole(text: str) -> None:
    """Joined with spaces, prefixed by the project; the tokenizer changes nothing."""
    db = apsw.Connection(":memory:")
    joints = JOINTS.replace("'", "''")
    tokenizer = f"ascii tokenchars '{joints}'".replace('"', '""')
    db.execute(f"CREATE VIRTUAL TABLE t USING fts5(x, content='', tokenize=\"{tokenizer}\")")
    db.execute("CREATE VIRTUAL TABLE v USING fts5vocab(t, row)")
    found = [f"p7_{term}" for term in terms(text)]
    db.execute("INSERT INTO t(rowid, x) VALUES (1, ?)", (" ".join(found),))
    assert {term for (term,) in db.execute("SELECT term FROM v")} == set(found)
    for term in found:
        assert db.execute("SELECT rowid FROM t WHERE t MATCH ?", (f'"{term}"',)).fetchall()


@given(st.text("abcXYZ_.é -/1", max_size=60))
def test_a_text_finds_itself(text: str) -> None:
    """Whatever is asked in the words in which it was said is found."""
    asked = {t.term for t in query_terms(text)}
    if asked:
        assert asked & set(terms(text))


@pytest.mark.parametrize(
    "text",
    [
        "x" * 300_000,
        "a." * 150_000,
        "a'" * 150_000,
        "a,123" * 60_000,
        "aB" * 150_000,
        "\ud800\0" * 150_000,
        "-" * 300_000,
    ],
    ids=["one word", "dots", "apostrophes", "commas", "capitals", "surrogates", "dashes"],
)
def test_a_line_without_an_end_is_no_trap(text: str) -> None:
    """Minified code and base64 cost no more than their length."""
    began = time.process_time()
    found = terms(text)
    assert time.process_time() - began < 3
    assert len(found) <= len(text)


def test_threads_do_not_disturb_each_other() -> None:
    """A stemmer keeps its working memory in itself."""
    texts = [f"connections{i} retrying{i} Verbindungen{i} authentification{i}" for i in range(300)]
    expected = [terms(text, language="dutch") for text in texts]
    wrong: list[str] = []

    def work(offset: int) -> None:
        for i in range(len(texts)):
            text, wanted = texts[(i + offset) % 300], expected[(i + offset) % 300]
            if terms(text, language="dutch") != wanted or not terms(f"{text}x{offset}"):
                wrong.append(text)

    threads = [Thread(target=work, args=(n * 70,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_what_is_written_short_is_looked_for_in_full_too() -> None:
    """And the other way round; it counts less than the word itself."""
    for asked, other in (("the prod database", "production"), ("connect to production", "prod")):
        found = {term.term: term for term in query_terms(asked)}
        assert found[other].kind == "short"
        assert found[other].weight < found[asked.split()[-1].replace("database", "prod")].weight
    assert "db" in {term.term for term in query_terms("the prod database")}
