"""What whoever comes back is told: prompts that mean what was done before, and what it came to."""

import json
import math
import os
import re
import sys
import time
import tracemalloc
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import pytest

from ragmem.config import EmbeddingsConfig, MemoryConfig
from ragmem.ids import new_id
from ragmem.memory.facts import Draft
from ragmem.memory.facts.extraction import Extractor
from ragmem.memory.facts.failures import failures
from ragmem.memory.facts.words import asks_of_before, leaves_subject, names_nothing, points_back
from ragmem.memory.last_time import recap, recaps, sessions_wanted
from ragmem.memory.recall import Question
from ragmem.memory.sessions import archive, fork_at
from ragmem.memory.since import Aftermath, Alike, left_open
from ragmem.records import (
    REWIND,
    UNDO,
    Evidence,
    MemoryKind,
    MemoryQuery,
    MemoryRecord,
    SessionQuery,
    ToolCall,
    Turn,
)
from ragmem.store import Store
from tests.fakes.hash_embedder import HashEmbedder
from tests.store import samples
from tests.store.samples import summed

from .builders import T0, a_call, a_memory as a_record, a_turn
from .working import Chat, a_memory, a_worker


def since(turn: Turn) -> Turn:
    """The same a day later."""
    at = T0 + timedelta(days=1)
    return msgspec.structs.replace(turn, turn_id=f"later-{turn.turn_id}", started_at=at)


@pytest.mark.parametrize(
    ("prompt", "points"),
    [
        ("Let's continue where we left off.", True),
        ("What's next?", True),
        ("go on", True),
        ("Where were we?", True),
        ("Good morning! Where did we stop?", True),
        ("What's left to do?", True),
        ("Wo waren wir stehen geblieben?", True),
        ("Weiter geht's!", True),
        ("Was ist der Stand der Dinge?", True),
        ("Moin, wie ist der Stand?", True),
        ("Où en étions-nous ?", True),
        ("Qu'est-ce qu'il reste à faire ?", True),
        ("¿por dónde íbamos?", True),
        ("¿Qué queda por hacer?", True),
        ("Dove eravamo rimasti?", True),
        ("Onde paramos?", True),
        ("¿Dónde dejamos las fotos?", False),
        ("Continue with the login page", False),
        ("Continue with step 3", False),
        ("Mach weiter mit dem Parser", False),
        ("thanks!", False),
        ("go on " * 60, False),
    ],
)
def test_a_prompt_points_back_when_it_names_nothing(prompt: str, points: bool) -> None:
    assert points_back(prompt) == points


def test_a_time_is_something_to_look_for() -> None:
    assert names_nothing("Where were we?", T0)
    assert not names_nothing("What did we do yesterday?", T0)


def test_later_in_a_conversation_going_on_means_its_own_work() -> None:
    assert [sessions_wanted("go on", index) for index in (1, 2, 3, 9)] == [3, 3, 0, 0]
    assert [sessions_wanted("Add a button", index) for index in (1, 2, 3)] == [3, 3, 0]
    assert sessions_wanted("What did we talk about before?", 9) == 3


@pytest.mark.parametrize(
    ("prompt", "leaves"),
    [
        ("Off topic: how long do eggs boil?", True),
        ("Quick one, unrelated: what is a quine?", True),
        ("Something completely different, who wrote Dune?", True),
        ("Kurz was ganz anderes: wie weit ist der Mond?", True),
        ("Rien à voir, mais comment cuit-on le riz ?", True),
        ("Which tests are unrelated to this change?", False),
        ("Something other than glass we talked of?", False),
        ("Give the button a totally different colour.", False),
    ],
)
def test_a_prompt_may_say_that_it_leaves_the_subject(prompt: str, leaves: bool) -> None:
    """Then nobody wants to hear what came before."""
    assert leaves_subject(prompt) == leaves
    assert sessions_wanted(prompt, 1) == (0 if leaves else 3)


@pytest.mark.parametrize(
    ("prompt", "asks"),
    [
        ("How did we get the kiln to stop?", True),
        ("Didn't we have that once?", True),
        ("Why was the roof taken off?", True),
        ("Wie hatten wir das mit den Fliesen gelöst?", True),
        ("Woran lag es, dass der Ofen ausging?", True),
        ("On avait choisi quelle couleur ?", True),
        ("Pourquoi le four ne chauffait-il plus ?", True),
        ("the kiln stops again. what was it last time", True),
        ("so where did i leave the tiles, anything missing", True),
        ("und wie hatten wir das gelöst", True),
        ("It stops at 600 degrees. Déjà vu?", True),
        ("Fix what was broken.", False),
        ("Put it where the tiles were.", False),
        ("Why does the kiln stop?", False),
        ("Qu'est-ce que ça fait ?", False),
        ("We did the tiles.", False),
        ("Have we got time?", False),
        ("Wir haben ein Problem, was nun?", False),
    ],
)
def test_a_question_may_take_for_granted_that_something_was_done(prompt: str, asks: bool) -> None:
    assert asks_of_before(prompt) == asks


SESSION = samples.a_session("01a2005f-a99f-7000-8ce2-0000000000aa", cwd="/p", project_id="p")


def edit(path: str) -> ToolCall:
    arguments = json.dumps({"path": path})
    return a_call(tool_name="edit_file", arguments=arguments, tool_call_id=new_id())


def ran(command: str, exit_code: int, text: str = "") -> ToolCall:
    return a_call(
        tool_name="run_command",
        arguments=json.dumps({"command": command}),
        result=json.dumps({"text": text, "exit_code": exit_code}),
    )


def test_the_outcome_is_of_the_last_turn_that_says_something() -> None:
    turns = [
        a_turn(1, "Let tokens expire.", "They expire after 15 minutes now."),
        a_turn(2, "thanks, bye!", "You're welcome."),
    ]
    outcome = "Let tokens expire. — They expire after 15 minutes now."
    assert recap(SESSION, turns).outcome == outcome


def test_asking_where_the_work_stood_is_no_outcome() -> None:
    """Its answer only repeats what was; what is done because of it counts."""
    work = a_turn(1, "Which index does the search use?", "A B-tree on (project, time), as it was.")
    for back in ("Wo waren wir?", "Où en étions-nous ?", "¿por dónde íbamos?"):
        asked = a_turn(2, back, "We spoke about the index that the search uses, a B-tree.")
        assert recap(SESSION, [work, asked]).outcome.startswith("Which index")
    made = a_call(tool_name="run_command", arguments='{"command": "make index"}')
    done = a_turn(2, "Where were we?", "Rebuilt it.", (made,))
    assert "Rebuilt it." in recap(SESSION, [work, done]).outcome


def test_an_answer_is_told_to_the_end_of_a_sentence_as_far_as_there_is_room() -> None:
    first = "The importer read each line twice, once to count them and once more to store them."
    second = "It reads each once now, in batches of 400."
    long = "Its log says how many there were. " * 20
    told = recap(SESSION, [a_turn(1, "Why is it slow?", f"{first} {second}\n\n{long}")]).outcome
    assert told.startswith(f"Why is it slow? — {first} {second} Its log says")
    assert told.endswith("there were.")
    assert 400 < len(told) < 500


def test_a_command_of_the_persons_own_is_no_outcome_and_hides_nothing_that_is_open() -> None:
    listed = msgspec.structs.replace(ran("ls", 0, "pond.py"), origin="person")
    turns = [
        a_turn(1, "How deep is the pond?", "Two metres. The fence is still to be built."),
        *(a_turn(index, "!ls", calls=(listed,)) for index in range(2, 6)),
    ]
    found = recap(SESSION, turns)
    assert found.outcome == "How deep is the pond? — Two metres."
    assert found.open == ("The fence is still to be built.",)
    assert recap(SESSION, turns[1:]).outcome == ""


def test_a_command_that_failed_is_told_until_it_works() -> None:
    failed = a_turn(1, calls=(ran("make check", 2, "error: no rule"),))
    worked = a_turn(2, calls=(ran("make check", 0, "ok"),))
    assert recap(SESSION, [failed]).failed == ("`make check` failed: exit code 2: error: no rule",)
    assert recap(SESSION, [failed, worked]).failed == ()


def test_a_command_that_failed_and_works_in_a_newer_session_is_not_failing() -> None:
    """Unless it worked before, or something else did."""
    failed = a_turn(2, calls=(ran("make check", 2, "error: no rule"),))
    worked = a_turn(3, calls=(ran("make check", 0, "ok"),))
    other = a_turn(3, calls=(ran("make all", 0, "ok"),))
    before = msgspec.structs.replace(worked, started_at=T0 - timedelta(days=1))
    assert recap(SESSION, [failed], later=[since(worked)]).failed == ()
    assert recap(SESSION, [failed], later=[since(other)]).failed
    assert recap(SESSION, [failed], later=[before]).failed
    # In a session that was left for this one again
    assert recap(SESSION, [failed], others=[since(worked)]).failed == ()


def test_files_that_were_changed_come_newest_first() -> None:
    turns = [a_turn(1, calls=(edit("a.py"), edit("b.py"))), a_turn(2, calls=(edit("a.py"),))]
    assert recap(SESSION, turns).changed == ("a.py", "b.py")


def test_what_came_before_says_when_its_files_were_changed_again() -> None:
    answer = "Nights in a row are limited to five, a test holds it."
    first = a_turn(1, "Limit the nights.", answer, calls=(edit("rules.py"), edit("app.py")))
    again = a_turn(2, "Make it four.", "Four.", calls=(edit("rules.py"),))
    assert recap(SESSION, [first, again]).before == (f"Limit the nights. — {answer}",)
    both = a_turn(2, "Make it four.", "Four.", calls=(edit("rules.py"), edit("app.py")))
    [before] = recap(SESSION, [first, both]).before
    assert before == f"Limit the nights. — {answer} (changed since)"


def test_more_is_told_of_the_newest_session_than_of_others() -> None:
    answer = "It is done as you have said, and a test holds it from now on."
    turns = [a_turn(n, f"Step {n}.", answer) for n in range(1, 8)]
    assert [b[:7] for b in recap(SESSION, turns).before] == [
        "Step 6.",
        "Step 5.",
        "Step 4.",
        "Step 3.",
    ]
    later = [since(a_turn(9, "Rest.", "We rest."))]
    assert [b[:7] for b in recap(SESSION, turns, later=later).before] == [
        "Step 6.",
        "Step 5.",
        "Step 4.",
    ]


@pytest.mark.parametrize(
    "said",
    [
        "The refresh endpoint is still missing.",
        "I did not run the tests of the importer.",
        "I have not tested any other browser.",
        "The importer needs a test.",
        "Noch offen: die Backzeiten der Rezepte.",
        "Il reste à faire la légende du graphique.",
    ],
)
def test_what_an_answer_leaves_undone_is_open(said: str) -> None:
    assert recap(SESSION, [a_turn(1, "Go.", f"Done. {said}")]).open == (said,)


@pytest.mark.parametrize(
    "said",
    [
        "Nothing is left to do.",
        "All tests pass and nothing remains open.",
        "There are no remaining failures.",
        "No tests are missing.",
        "There is nothing pending.",
        "The remaining 3 tests pass.",
        "Nichts steht noch aus.",
        "Keine offenen Fragen.",
        "Il ne reste rien à faire.",
        "It needs Python 3.11 or later.",
        "I have not changed any other file.",
        "I didn't touch anything else.",
        "The function needs a string.",
    ],
)
def test_what_an_answer_says_is_done_is_not_open(said: str) -> None:
    assert left_open(a_turn(1, "Go.", f"Done. {said}")) == []
    both = f"{said.rstrip('.')}, but the docs are still missing."
    assert left_open(a_turn(1, "Go.", both)) == [both]


@pytest.mark.parametrize(
    "said",
    [
        "Guten Morgen, bitte repariere den Test im Warenkorb.",
        "Heute Morgen ist der Server abgestürzt, schau dir das Log an.",
        "Schau dir Zeile 12 an, später im Code steht der Fehler.",
        "The bug appears two lines later in the file.",
        "Use Python 3.11 or later.",
        "Later versions of Django dropped it, remove the shim.",
        "Bonjour, plus tard dans le fichier il y a un bug.",
        "Fix the parser now, see you later!",
    ],
)
def test_words_of_a_later_time_that_put_nothing_off(said: str) -> None:
    assert left_open(a_turn(1, said, "Ok.")) == []


def test_of_the_persons_own_words_only_what_is_put_off_is_open() -> None:
    turns = [a_turn(1, "We still need a test for the cart, add it. The docs we do tomorrow.", "OK")]
    assert recap(SESSION, turns).open == ("The docs we do tomorrow.",)


def test_what_was_done_since_is_not_open() -> None:
    """In the same session, and in a newer one."""
    left = a_turn(1, "Load the files.", "Done. Still open: sorting the species by genus.")
    done = since(a_turn(2, "Sort the species by genus, please.", "They are sorted by genus."))
    assert recap(SESSION, [left]).open
    assert recap(SESSION, [left, done]).open == ()
    assert recap(SESSION, [left], later=[done]).open == ()


@pytest.mark.parametrize(
    ("said", "later"),
    [
        ("We'll put the ferries into SQLite.", "The ferries go into CSV files instead of SQLite."),
        ("Next would be the cache in nginx.conf.", "Turn on the cache in nginx.conf now."),
        ("Redis is the cache of the shop.", "Memcached is the cache of the shop now."),
        (
            "Postgres is our database for jobs.",
            "MySQL is our database for jobs now, instead of the other.",
        ),
        ("Ana has the keys of the server room.", "Marc has the keys of the server room now."),
        (
            "Die Rechnungen sind im Ordner Archiv.",
            "Alle Belege sind jetzt im Ordner Keller statt im Archiv.",
        ),
        ("Yann est responsable du stock.", "Yann est parti, Maëlle a le stock à présent."),
    ],
)
def test_what_a_later_turn_does_or_takes_back_is_told_as_it_was_then(said: str, later: str) -> None:
    """With what was said since; a turn before it, or about something else, changes nothing."""
    turn, apart = a_turn(1, "Go.", said), since(a_turn(3, "What else?", "The moss grows well."))
    after = since(a_turn(2, later, "Done."))
    assert Aftermath([turn, apart]).of_turn(turn) == ""
    assert Aftermath([turn, after, apart]).of_turn(after) == ""
    assert f"said later: “{later.rstrip('.')}" in Aftermath([turn, after, apart]).of_turn(turn)
    assert "as it was then" in recap(SESSION, [turn], later=[after]).outcome


@pytest.mark.parametrize(
    ("said", "later", "is_revised"),
    [
        (
            "Customer Meier pays 300 euros a month.",
            "Customer Schulz pays 450 euros a month.",
            False,
        ),
        ("Server 1 has 4 cores for jobs.", "Server 2 has 8 cores for jobs.", False),
        ("The import job runs 40 minutes.", "The export job runs 25 minutes.", False),
        ("Die Prüfung in Physik ist am 3. Mai.", "Die Prüfung in Chemie ist am 9. Mai.", False),
        ("Customer Meier pays 300 euros a month.", "Customer Meier pays 450 euros a month.", True),
        ("The import job runs 40 minutes.", "The nightly import job runs 25 minutes.", True),
    ],
)
def test_the_same_of_something_else_revises_nothing(
    said: str, later: str, is_revised: bool
) -> None:
    turn, rest = a_turn(1, said), [since(a_turn(n, f"Bed {n} has ferns.")) for n in range(3, 9)]
    noted = Aftermath([turn, since(a_turn(2, later)), *rest]).of_turn(turn)
    assert (later[:-1] in noted) == is_revised


def test_what_was_said_while_the_clock_was_ahead_is_taken_back() -> None:
    """Within a session the order of its turns counts, and no time in the future does."""
    said, later = "The cache now holds 30 entries.", "The cache now holds 90 entries instead."
    ahead = datetime.now(UTC) + timedelta(days=365)
    for session_id, number in (("s", 1), ("before", 2)):
        first = msgspec.structs.replace(
            a_turn(number, said), session_id=session_id, started_at=ahead, finished_at=ahead
        )
        after = msgspec.structs.replace(since(a_turn(2, later)), session_id="s")
        rest = [since(a_turn(n, f"Bed {n} and its ferns.", "Yes.")) for n in range(3, 9)]
        memory = a_record(0, said, evidence=(Evidence(turn_id=first.turn_id, at=ahead),))
        noted = Aftermath([first, after, *rest], [memory])
        assert [later[:-1] in noted.of_turn(first), noted.of_turn(after)] == [True, ""]
        assert "1970" not in noted.of_turn(first)


def test_digits_without_end_are_compared_as_soon_as_words_are() -> None:
    first = a_turn(1, "Go.", f"The seal has {'1' * 100_000} {'1.,' * 30_000}")
    after = since(a_turn(2, "The seal is 3 mm now.", "Done."))
    started = time.process_time()
    assert Aftermath([first, after]).of_turn(first) == ""
    assert time.process_time() - started < 10


def wrote(path: str, old: str, new: str) -> ToolCall:
    arguments = {"path": path} | ({"old": old, "new": new} if old else {"content": new})
    name = "edit_file" if old else "create_file"
    return a_call(tool_name=name, arguments=json.dumps(arguments), tool_call_id=new_id())


def test_what_a_later_turn_writes_over_is_told_as_it_was_then() -> None:
    """However the one and the other say it; the last of several counts."""
    first = a_turn(1, "Free from 24 on.", "Set.", (wrote("fee.py", "", "FREE = 24"),))
    then = since(a_turn(2, "Too many.", "36.", (wrote("fee.py", "24", "36"),)))
    last = since(a_turn(3, "The board has it: 30.", "Ok.", (wrote("fee.py", "36", "30"),)))
    apart = since(a_turn(4, "24 ants?", "Yes.", (wrote("ants.py", "24", "25"),)))
    assert "The board has it: 30" in Aftermath([first, then, last, apart]).of_turn(first)
    assert Aftermath([first, apart]).of_turn(first) == ""
    assert Aftermath([first, then, last, apart]).of_turn(last) == ""


def test_of_a_long_paste_in_a_later_turn_no_copies_are_made() -> None:
    turn, paste = a_turn(1, "Oak or ash?", "Oak is harder."), "a word of the paste\n" * 100_000
    later = since(a_turn(2, paste, "Ok."))
    tracemalloc.start()
    try:
        assert Aftermath([turn, later]).of_turn(turn) == ""
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * len(paste)


def test_what_a_newer_session_says_on_the_same_is_told_with_it() -> None:
    """By the meaning of the whole turn and the words that both share, where neither is enough."""
    turn = a_turn(1, "Log everything to a csv on the stick.", "Each valve has a row.")
    prompt = "Henk looks on Mondays: into the database of the office, the stick fell out twice."
    after = msgspec.structs.replace(since(a_turn(2, prompt, "Done.")), session_id="newer")

    def vectors(near: float) -> dict[str, tuple[bytes, ...]]:
        rows = {turn.turn_id: (1.0, 0.0), after.turn_id: (near, math.sqrt(1 - near * near))}
        return {name: (np.array(row, "<f4").tobytes(),) for name, row in rows.items()}

    def told_since(near: float, later: Turn) -> str:
        return Aftermath([turn, later], meant=Alike(vectors(near), 0.4)).of_turn(turn)

    assert Aftermath([turn, after]).of_turn(turn) == ""
    assert "the stick fell out twice" in told_since(0.58, after)
    assert told_since(0.2, after) == ""
    same = msgspec.structs.replace(after, session_id=turn.session_id)
    assert told_since(0.58, same) == "", "a session itself goes on"


def test_turns_on_other_matters_are_not_revisited_where_all_texts_are_similar() -> None:
    """As in German: what counts is how much more similar they are than the others."""
    turn = a_turn(1, "Der Brennofen geht bei 1290 Grad aus.", "Eingebaut.")
    matters = "Die Rechnung ist raus.", "Der Kran steht im Hof.", "Das Heft hat 16 Seiten."
    others = [since(a_turn(n, said, "Gut.")) for n, said in enumerate(matters, 2)]
    others = [msgspec.structs.replace(each, session_id="newer") for each in others]
    row = np.array((1.0, 0.0), "<f4")
    rows = {turn.turn_id: (row.tobytes(),)}
    rows |= {each.turn_id: ((row * 0.62).tobytes(),) for each in others}
    assert Aftermath([turn, *others], meant=Alike(rows, 0.4)).of_turn(turn) == ""


def test_turns_of_many_passages_are_compared_in_one_go() -> None:
    """What was pasted has hundreds; the vectors are read once, not once for each passage.

    Counted in the calls that it takes.
    """
    rng = np.random.default_rng(1)
    calls: list[int] = []
    for size in (100, 200):
        rows = {name: rng.normal(size=(size, 8)).astype("<f4") for name in ("one", "two")}
        meant = Alike({name: tuple(map(bytes, held)) for name, held in rows.items()})
        count = 0

        def counted(*_: object) -> None:
            nonlocal count
            count += 1

        sys.setprofile(counted)
        found = meant.to("one")
        sys.setprofile(None)
        calls.append(count)
        # Less the mean with one that is similar to nothing: see `to`.
        assert found["two"] == pytest.approx(float((rows["one"] @ rows["two"].T).max()) / 2)
    assert calls[1] <= 2.5 * calls[0]


@pytest.mark.parametrize(
    ("said", "later"),
    [
        ("Abgabe beim Amt ist der 6. Mai.", "Das Amt hat es auf den 2. Mai vorgezogen."),
        ("The hall wants the list by 6 May.", "The list for the hall is postponed to 9 May."),
        ("La mairie attend le plan le 6 mai.", "La mairie a reporté le plan au 9 mai."),
    ],
)
def test_a_day_that_was_moved_is_told_as_it_was_then(said: str, later: str) -> None:
    turn, after = a_turn(1, said, "Ok."), since(a_turn(2, later, "Ok."))
    assert later.rstrip(".") in Aftermath([turn, after]).of_turn(turn)
    assert Aftermath([turn, after]).of_turn(after) == ""


@pytest.mark.parametrize(
    ("said", "later", "is_moved"),
    [
        ("La mairie attend le plan le 6 mai.", "Le plan de la mairie, c'est le 9 mai.", True),
        (
            "For the record, the tiles for the hall are due on 6 May, and Kim wants a list of them "
            "in the week before.",
            "The hall has moved its date, the tiles may come on the 17th.",
            True,
        ),
        ("The hall wants the list by 6 May.", "The list for the hall is long.", False),
        ("The hall wants the list by 6 May.", "Ann has holidays from 9 May on.", False),
    ],
)
def test_a_deadline_says_that_a_part_of_it_has_moved(said: str, later: str, is_moved: bool) -> None:
    turn, after = a_turn(1, said, "Ok."), since(a_turn(2, later, "Ok."))
    told_in = Evidence(session_id=turn.session_id, turn_id=turn.turn_id, at=turn.timestamp)
    due = a_record(0, said, kind="deadline", evidence=(told_in,))
    found = Aftermath([turn, after]).of_memory(due)
    assert (f"said later: “{later.rstrip('.')}" in found, bool(found)) == (is_moved, is_moved)


def test_a_failure_tells_what_worked_instead() -> None:
    """Much the same command, in another way; one that does something else is none."""
    failing = ran("fire tiles.txt --out a.clay", 3, "Error: too cold")
    other, wrong = ran("fire --list", 0), ran("fire tiles.txt --out a.clay --quick", 3)
    better = ran("fire tiles.txt --glow --out a.clay", 0)
    turn = a_turn(1, "Fire them.", "Done.", (failing, other, wrong, better))
    told = [draft.content for draft in failures(turn, locate=str)]
    assert told[0].endswith("; `fire tiles.txt --glow --out a.clay` worked")
    [alone] = failures(a_turn(1, "Fire them.", "No.", (failing, other)), locate=str)
    assert "worked" not in alone.content


def test_what_was_mended_in_the_same_turn_failed_all_the_same() -> None:
    """Nothing to be remembered, but told where the turn is recalled."""
    failing, works = ran("fire tiles.txt", 3, "Error: too cold"), ran("fire tiles.txt", 0)
    turn = a_turn(1, "Fire them.", "Done.", (failing, edit("kiln.toml"), works))
    assert failures(turn, locate=str) == []
    [told] = failures(turn, locate=str, with_mended=True)
    assert told.content.endswith("too cold; later it worked")


def test_what_was_advised_goes_with_the_choice_that_took_it() -> None:
    advice = a_turn(1, "Which language?", "Go would do.")
    chosen = a_turn(2, "We take Go.", "Begun.", (wrote("main.go", "", "package main"),))
    gone = since(a_turn(3, "She knows Python alone.", "Done.", (ran("rm main.go", 0),)))
    after = Aftermath([advice, chosen, gone])
    assert "She knows Python alone" in after.of_turn(advice)
    assert Aftermath([advice, chosen]).of_turn(advice) == ""


@pytest.mark.parametrize(
    ("said", "later"),
    [
        ("The ward has 34 nurses and three shifts.", "Each nurse and shift is a boolean now."),
        ("Tokens last 5 minutes.", "The oven takes 9 minutes to heat up."),
        ("The stock is in a PostgreSQL base.", "Ann looks after the stock these days."),
        ("The holidays are not in the table yet.", "February can wait, it has the holidays."),
    ],
)
def test_what_only_shares_a_word_is_not_marked(said: str, later: str) -> None:
    turn, after = a_turn(1, "Go.", said), since(a_turn(2, later, "Done."))
    assert Aftermath([turn, after]).of_turn(turn) == ""


@pytest.mark.parametrize(
    ("said", "later"),
    [
        (
            ("fix the bug in parser", "Fixed: the parser now skips empty lines. The test passes."),
            ("fix the bug in mailer", "Fixed: the mailer now retries. The test passes."),
        ),
        (
            ("update the README", "I have updated the README with the new flags."),
            ("update the changelog", "I have updated the changelog."),
        ),
        (
            ("Amounts are Decimal now.", "Understood, Decimal instead of integer cents."),
            (
                "We deploy on Friday now.",
                "Understood, deploys are on Friday now instead of Monday.",
            ),
        ),
        (
            ("Add VAT to the invoice.", "I have changed nothing yet."),
            (
                "Rename the invoice.",
                "billing.py. test_pay.py has the old name; I have not changed it.",
            ),
        ),
        (
            ("Korrigiere den Parser.", "Erledigt, der Parser nimmt jetzt leere Zeilen."),
            ("Korrigiere den Mailer.", "Erledigt, der Mailer versucht es jetzt dreimal."),
        ),
    ],
)
def test_what_is_said_of_others_is_no_change(said: tuple[str, str], later: tuple[str, str]) -> None:
    """How an answer begins and what was done say nothing of what it is about."""
    turn, after = a_turn(1, *said), since(a_turn(2, *later))
    assert Aftermath([turn, after]).of_turn(turn) == ""


def tasks(**states: str) -> ToolCall:
    listed = [{"text": t.replace("_", " "), "state": s} for t, s in states.items()]
    arguments = json.dumps({"tasks": listed})
    return a_call(tool_name="update_tasks", arguments=arguments, tool_call_id=new_id())


@pytest.mark.parametrize(
    "said",
    [
        "The README comes later.",
        "Das README kommt später.",
        "Le README vient plus tard.",
        "The rest is for tomorrow.",
        "Die Tests sind morgen dran.",
        "The tests are next week's job.",
        "The docs are not now.",
        "My mother comes tomorrow, so fix the parser later.",
    ],
)
def test_what_the_person_puts_off_is_open(said: str) -> None:
    assert left_open(a_turn(1, said, "Ok.")) == [said]


def test_what_the_person_puts_off_is_open_once() -> None:
    """What the answer agrees to is no task of its own."""
    said = "Later we should also drop the EUR from the list."
    turn = a_turn(1, said, "Understood, I note that for later.")
    assert recap(SESSION, [turn]).lines()[-1] == f"Open: {said}"


def test_a_plan_of_which_a_part_is_done_stays_open_and_says_so() -> None:
    open_still = "Still open: turn on the cache in nginx, move the name to the new host."
    plan = a_turn(1, "Go.", open_still)
    done = since(a_turn(2, "Turn on the cache in nginx.", "It is on."))
    [left] = recap(SESSION, [plan], later=[done]).open
    assert left.startswith("(as it was then")
    assert "new host" in left


def test_of_the_agents_own_list_what_is_not_done_is_open() -> None:
    """By its last state; not what a newer session has seen to."""

    def listed(sorting: str, legend: str, guide: str) -> ToolCall:
        return tasks(
            Sort_the_species_by_genus=sorting, Draw_the_legend=legend, Write_the_guide=guide
        )

    first = a_turn(1, calls=(listed("doing", "open", "open"),))
    last = a_turn(2, calls=(listed("done", "doing", "open"),))
    assert recap(SESSION, [first, last]).open == ("Draw the legend", "Write the guide")
    later = since(a_turn(3, "Draw the legend of the map.", "The legend is drawn."))
    assert recap(SESSION, [first, last], later=[later]).open == ("Write the guide",)
    assert recap(SESSION, [a_turn(1, calls=(listed("done", "done", "done"),))]).open == ()


def test_a_turn_that_was_cut_short_is_open() -> None:
    turns = [a_turn(1, "Move the queue.", "I began", status="interrupted")]
    assert recap(SESSION, turns).open == ("“Move the queue.” (interrupted)",)


# --- in a request -------------------------------------------------------------------------------

LONG = "It is so from today on, and whoever asks about it is told the same as you are."


def last_time_of(request: str) -> str:
    """The section alone."""
    _, heading, rest = request.partition("## Last Time")
    return rest.partition("\n\n")[0] if heading else ""


async def last_time(chat: Chat, prompt: str = "Where were we?") -> str:
    """What a new session is told with a prompt."""
    return last_time_of(await chat.request(prompt))


def undone() -> ToolCall:
    """That edits were taken back is kept in the session that was left."""
    return a_call(origin="person", tool_name=UNDO, tool_call_id=new_id())


@pytest.mark.parametrize("prompt", ["Draw a plan of the pond.", "Where were we?"])
async def test_a_session_begins_with_the_last_ones(chat: Chat, tmp_path: Path, prompt: str) -> None:
    """The newest three of the project, whatever the prompt names."""
    for number in range(1, 5):
        await chat.once(f"Water bed {number}.", f"Bed {number} is watered.")
    await chat.once("Play chess.", "Checkmate.", folder=tmp_path / "other")
    told_of = await last_time(chat, prompt)
    held = [f"Bed {n} is watered." in told_of for n in (4, 3, 2, 1)]
    assert held == [True, True, True, False]
    assert "Checkmate" not in told_of


async def test_it_names_sessions_and_repeats_nothing_recalled(chat: Chat, tmp_path: Path) -> None:
    """Of this project alone, and nothing under the strategy `recent`."""
    await chat.once("A secret?", "No.", folder=tmp_path / "other")
    for title, prompt in (("The shade garden", "Tell me of shade!"), ("", "Tell me of ferns!")):
        await chat.begin(title=title)
        await chat.told(prompt, answer="So be it.")
    found = await last_time(chat)
    assert "“The shade garden”" in found
    assert found.count("— So be it.") == 2
    assert "secret" not in found
    named = await chat.request("What about the shade?")
    assert "User: Tell me of shade!" in named
    assert named.count("— So be it.") == 1
    assert "Last Time" not in (await chat.asks("Where were we?", strategy="recent")).text()


async def test_an_earlier_turn_that_is_recalled_is_not_told_of_last_time_too(chat: Chat) -> None:
    await chat.begin()
    await chat.told("Where do the ferns stand?", answer=LONG)
    await chat.told("Dig the pond.", answer=LONG)
    assert "Before that: Where do the ferns stand?" in await last_time(chat)
    request = await chat.request("How are the ferns?")
    assert "User: Where do the ferns stand?" in request
    assert (request.count("Where do the ferns stand?"), request.count("Dig the pond.")) == (1, 1)


async def test_a_decision_that_is_told_as_a_fact_is_not_told_of_last_time_too(chat: Chat) -> None:
    turn = await chat.once("Dig the pond.", LONG)
    await chat.knows("Ferns get bark", turn, kind="decision")
    assert "Decided: Ferns get bark" in await last_time(chat)
    request = await chat.request("What do ferns get?")
    assert "] Ferns get bark" in request
    assert "Decided" not in request
    assert "Outcome: Dig the pond." in request


async def test_what_was_gone_back_on_takes_no_place_and_shared_stands_once(chat: Chat) -> None:
    await chat.once("Water the fern.", "The fern is watered.")
    session = await chat.begin()
    for said in ("We decided to use peat.", "We decided to use bark.", "Dig the pond."):
        turn = await chat.told(said, answer=LONG)
        await Extractor(chat.facts, None).learn(chat.store, turn)
    for until, said in ((2, "Dig a well."), (1, "Dig a ditch."), (1, "")):
        left, session = session, await fork_at(chat.memory, session, until)
        if said:
            await chat.told(said, answer=LONG, session=session)
        await chat.told(REWIND, undone(), answer="", session=left)
    found = await last_time(chat)
    assert "The fern is watered" in found
    assert found.count("We decided to use peat. — ") == 1
    assert found.count("Decided: We decided to use peat.") == 1
    assert not re.search("bark|pond|well|ditch", found)


async def test_a_fork_and_a_session_that_both_go_on_share_turns_once(chat: Chat) -> None:
    await chat.told("Dig the pond.", answer=LONG)
    fork = await fork_at(chat.memory, chat.session)
    await chat.told("Add fish.", answer=f"Fish. {LONG}")
    await chat.told("Add frogs.", answer=f"Frogs. {LONG}", session=fork)
    found = await last_time(chat)
    assert [found.count(f"Add {each}. — ") for each in ("fish", "frogs")] == [1, 1]
    assert found.count("Dig the pond. — ") == 1


@pytest.mark.parametrize("left", ["", REWIND])
async def test_of_a_fork_only_what_was_gone_back_on_is_left_out(chat: Chat, left: str) -> None:
    """A fork in the middle is a second branch; a fork that was put away hides nothing either."""
    for prompt in ("Dig the pond.", "Build the fence.", "Plant the oak."):
        await chat.told(prompt, answer=LONG)
    fork = await fork_at(chat.memory, chat.session, 1)
    await chat.told("Dig a well.", answer=LONG, session=fork)
    if left:
        await chat.told(left, undone(), answer="")
    found = await last_time(chat)
    await archive(chat.memory, fork)
    held = ["well" in found, "oak" in found, "fence" in found]
    assert held == [True, not left, not left]
    assert "oak" in await last_time(chat)


async def test_what_was_planned_stays_open_until_it_is_done_or_dropped(chat: Chat) -> None:
    """Of the newest twelve sessions, whatever small questions were asked in the others."""
    planned = tasks(Dig_the_pond="open", Lay_the_gravel_path="open", Paint_the_shed="open")
    await chat.told("Plan the garden.", planned, answer="Three tasks.")
    await chat.once("Lay the gravel path.", "The gravel path is laid.")
    await chat.once("We skip painting the shed.", "Agreed.")
    for number in range(4):
        await chat.once(f"How tall is oak {number}?", "About 20 metres.")
    await chat.once("Hello!", "Hello! What can I do for you in the garden?")
    found = await last_time(chat, "What's next?")
    assert re.findall("Open: (.*)", found) == ["Dig the pond"]
    assert "Hello" not in found


async def test_it_is_gone_once_it_has_served(chat: Chat) -> None:
    await chat.once("Water the beds.", "They are watered.")
    await chat.begin()
    await chat.told("Draw the pond.")
    await chat.told("Larger.")
    session = await chat.memory.find_session(chat.session.session_id)
    assert last_time_of(await chat.request("go on", session)) == ""


GUERNICA = "Who painted Guernica?"
MURALS = (
    "Who paints murals of roses, tulips, irises and peonies on beds, benches or doors of museums?"
)


async def test_last_time_is_left_out_of_a_prompt_about_something_else(
    store: Store, tmp_path: Path
) -> None:
    """One that has a word of the project, too. What points back, names nothing or is near gets it;
    what the person prefers is told with any prompt. From where on a turn is recalled is another
    matter."""
    embedder = HashEmbedder(1024)
    config = MemoryConfig(embeddings=EmbeddingsConfig(history_similarity=0.01))
    async with a_memory(store, embedder, config) as memory:
        chat = Chat(memory, store, tmp_path)
        await chat.once("Water the beds.", "They are watered.")
        await chat.knows("I always want tabs", kind="preference", scope="user")
        await chat.knows("Beds have labels", kind="preference", scope="project")
        await a_worker(store, embedder=embedder).drain()
        for prompt in (GUERNICA, MURALS):
            request = await chat.request(prompt)
            assert "## Last Time" not in request, prompt
            assert ("want tabs" in request, "] Beds have labels" in request) == (True, True)
        for near in ("Where were we?", "where was i", "Why had we flooded it?", "Dry beds."):
            request = await chat.request(near)
            assert "They are watered" in request.partition("## Last Time")[2], near


async def test_what_reads_like_general_knowledge_must_be_nearer_for_last_time(
    store: Store, tmp_path: Path
) -> None:
    embedder = HashEmbedder(1024)
    async with a_memory(store, embedder, MemoryConfig()) as memory:
        chat = Chat(memory, store, tmp_path)
        await chat.once("Fell the oak.", "It is felled.")
        await chat.once("Water the beds.", "They are watered.")
        await a_worker(store, embedder=embedder).drain()
        assert "## Last Time" in await chat.request("water Jonas' gladioli too")
        assert "## Last Time" not in await chat.request("what is a water gladiolus?")


@pytest.mark.parametrize("folder", [b"garden", b"caf\xe9"])
async def test_what_became_of_its_files_is_told(chat: Chat, folder: bytes) -> None:
    """Also if the folder's name is no UTF-8."""
    chat.folder /= os.fsdecode(folder)
    await chat.begin()
    names = ("kept.py", "changed.py", "gone.py")
    for name in names:
        (chat.folder / name).write_text("x = 1\n")
    await chat.told("Change them.", *map(edit, names), answer="All three are changed.")
    (chat.folder / "gone.py").unlink()
    later = chat.session.started_at + timedelta(hours=1)
    os.utime(chat.folder / "changed.py", (later.timestamp(),) * 2)
    found = await last_time(chat, "What's next?")
    assert "Changed: gone.py (gone since), changed.py (changed since), kept.py" in found


async def test_what_a_turn_wrote_that_was_cut_off_is_not_changed_since(chat: Chat) -> None:
    """Nothing but its calls tells when such a turn, as after `kill -9`, last did something."""
    recording = await chat.memory.begin_turn(chat.session, chat.project, "Go.", model="openai/x")
    later = recording.turn.started_at + timedelta(minutes=1)
    (chat.folder / "made.py").write_text("x = 1\n")
    os.utime(chat.folder / "made.py", ((later + timedelta(seconds=9)).timestamp(),) * 2)
    made = msgspec.structs.replace(
        wrote("made.py", "", "x = 1\n"),
        turn_id=recording.turn.turn_id,
        started_at=later,
        duration_ms=9_000,
    )
    await recording.call(made)
    stored = await chat.memory.find_session(chat.session.session_id)
    assert (await chat.memory.recap(stored)).changed == ("made.py",)


async def test_what_the_person_prefers_stands_in_every_request(chat: Chat, tmp_path: Path) -> None:
    """Of the person in other projects too; said once."""
    await chat.told("I always want tabs. Here we use unittest.")
    await chat.knows("I always want tabs", kind="preference", scope="user")
    await chat.knows("Tests use unittest", kind="preference", scope="project")
    heading = "## What the User Prefers"
    request = await chat.request("Write a function that counts tabs.", chat.session)
    assert "] I always want tabs" not in request, "the conversation says it"
    request = await chat.request("Write a function.")
    day = f"{chat.session.started_at:%Y-%m-%d}"
    told = f"{heading}\n- [{day}] Tests use unittest\n- [{day}] I always want tabs\n"
    assert told in request
    assert request.count("] I always want tabs") == 1
    request = await chat.request("Draw a pond.", await chat.begin(tmp_path / "other"))
    assert f"{heading}\n- [{day}] I always want tabs\n" in request
    assert "unittest" not in request


async def test_what_was_decided_again_is_told_of_the_newest_session_alone(chat: Chat) -> None:
    for prompt in ("We use whole cents.", "Whole cents, as I said."):
        turn = await chat.once(prompt, "Yes.")
        evidence = Evidence(session_id=turn.session_id, turn_id=turn.turn_id, at=T0)
        draft = Draft(content="Amounts are cents", kind="decision", evidence=(evidence,))
        await chat.facts.remember(draft, chat.project.project_id)
    newest, older = (await last_time(chat)).split("\n- ")[1:]
    assert ("Amounts are cents" in newest, "Amounts are cents" in older) == (True, False)


async def test_what_the_user_did_not_say_is_marked_in_last_time(chat: Chat) -> None:
    turn = await chat.once("Look at the plan.", "It says when the audit is.")
    evidence = Evidence(session_id=turn.session_id, turn_id=turn.turn_id, turn_index=1, at=T0)
    for kind, content in (("decision", "Amounts are cents."), ("deadline", "The audit is soon.")):
        draft = Draft(content=content, kind=kind, trust="model", evidence=(evidence,))
        await chat.facts.remember(draft, chat.project.project_id)
    told_of = await last_time(chat)
    assert "Decided: (said by the model) Amounts are cents." in told_of
    assert "Open: (said by the model) The audit is soon." in told_of


@pytest.mark.parametrize(("day", "is_open"), [(4, True), (5, False)])
async def test_a_deadline_is_open_until_its_day_ends(chat: Chat, day: int, is_open: bool) -> None:
    await chat.learned("The audit is due on 4 December 2099.")
    listed = await chat.store.sessions(SessionQuery())
    late = datetime(2099, 12, day, 23, tzinfo=ZoneInfo("Europe/Berlin"))
    [found] = await recaps(chat.store, listed, now=late)
    assert bool(found.open) == is_open


async def test_a_deadline_that_was_moved_is_not_open(chat: Chat) -> None:
    for said in (
        "The release is on 4 December 2099.",
        "The audit is due on 5 December 2099.",
        "No, the release moved to 11 December 2099.",
    ):
        await chat.learned(said)
    held = await chat.store.memories(MemoryQuery(everywhere=True, kinds=("deadline",)))
    found = await last_time(chat, "What is open?")
    days = [each.at.date().isoformat() for each in held if each.at]
    assert days == ["2099-12-11", "2099-12-05"]
    assert "4 December" not in found.split("Open:")[1].split("Session")[0]


async def test_a_deadline_that_a_later_turn_moves_is_told_as_it_was_then(chat: Chat) -> None:
    await chat.learned("The audit is due on 5 December 2099.")
    await chat.once("The audit was moved to 9 December 2099.", "Then I leave it for now.")
    [told_of] = re.findall("Open: (.*5 December.*)", await last_time(chat, "What is open?"))
    assert told_of.startswith("(as it was then")


async def test_a_turn_is_told_with_what_replaced_a_part_of_it(chat: Chat) -> None:
    said = "Guests write to me."
    old = await chat.once(said, "I read your inbox for it every evening then.")
    new = await chat.once("There is a form.", "The form has their answers.")
    before = await chat.knows("Guests reply by mail", old, quote=said)
    after = await chat.knows("Guests fill in a form", new, quote="There is a form.")
    assert f": {said} — I read your inbox" in await last_time(chat)
    await chat.facts.supersede(after, before)
    found = await last_time(chat)
    assert f"(as it was then; replaced since by: Guests fill in a form) {said}" in found


async def test_a_preference_in_the_words_of_a_rule_is_told_once(chat: Chat) -> None:
    await chat.knows("Please never touch anything under legacy/", kind="rule", scope="project")
    await chat.knows("Never touch anything under legacy/.", kind="preference", scope="user")
    request = await chat.request("Write a function.")
    assert request.count("ever touch anything under legacy") == 1


async def test_what_was_said_beside_what_was_replaced_still_holds(chat: Chat) -> None:
    """Of two decisions and a preference of one turn the one that was decided otherwise is gone."""
    for said in (
        "I prefer tabs in this project. We decided to use Postgres for the orders. "
        "We decided to use Redis for the queue.",
        "We decided to use MySQL instead of Postgres for the orders.",
    ):
        await chat.learned(said, "Agreed.")
    request = await chat.request("Where were we?")
    assert "] I prefer tabs in this project." in request
    decided = re.findall("Decided: (.*)", last_time_of(request))
    assert [re.findall("MySQL|Redis", each) for each in decided] == [["MySQL"], ["Redis"]]


async def test_a_preference_is_gone_when_what_was_made_of_it_is_written_over(chat: Chat) -> None:
    quote = "SQLite, no server please."
    turn = await chat.told(quote, wrote("db.py", "", "import sqlite3"))
    await chat.knows(quote, turn, quote=quote, kind="preference", scope="project")
    assert f"] {quote}" in await chat.request("Write a function.")
    await chat.told("They have a server.", wrote("db.py", "sqlite3", "psycopg"))
    assert f"] {quote}" not in await chat.request("Write a function.")


async def test_what_was_learned_in_a_turns_words_goes_with_a_models_words(chat: Chat) -> None:
    """But not what the turn says beside it, nor what is of another number."""
    turn = await chat.told("I like answers in full sentences. Episode 1 with Ana is short.")

    async def likes(content: str, by: Turn = turn) -> MemoryRecord:
        return await chat.knows(content, by, kind="preference")

    beside = {"Episode 1 with Ana is short.", "I like tea at night."}
    for own in ("I like answers in full sentences.", *beside):
        await likes(own)
    told = await likes("Full sentences in each answer")
    episode = await likes("Episode 2 with Tom is short")
    later = await chat.told("Bullets, I read them on the phone. Episode 2 is long.")
    assert await chat.facts.supersede(await likes("Answers in bullets", later), told)
    assert await chat.facts.supersede(await likes("Episode 2 is a long one", later), episode)
    liked = {each.content for each in await chat.facts.preferences(chat.project.project_id)}
    assert liked == {"Answers in bullets", "Episode 2 is a long one", *beside}


async def test_a_turn_that_is_recalled_says_what_replaced_its_decision(chat: Chat) -> None:
    made = []
    for said in ("Tokens last one hour", "Tokens last ten minutes"):
        turn = await chat.told(f"{said}, I decided.")
        made.append(await chat.knows(said, turn, kind="decision"))
    old, new = made
    if not await chat.facts.history(new):
        assert await chat.facts.supersede(new, old)
    request = await chat.request("How long do tokens last?")
    found = await chat.memory.search(Question(text="How long do tokens last?"))
    outdated = request.split("User: Tokens last one hour")[0].split("\n\n")[-1]
    assert "Since replaced by: Tokens last ten minutes" in outdated, "known before it is read"
    assert request.count("Since replaced by") == 1
    became = {hit.turn.turn_index: hit.since for hit in found if hit.turn}
    assert became == {1: "Since replaced by: Tokens last ten minutes", 2: ""}


async def test_a_recalled_summary_says_what_took_the_place_of_its_decision(chat: Chat) -> None:
    """And a command that failed once more took no decision's place."""
    turn = await chat.told("We agree on it.")
    digest = "Tokens last one hour."
    await chat.store.apply([summed(turn.session_id, turn.turn_id, text=digest, key_findings=())])
    later = await chat.told("We agree on another.")

    async def replaced(kind: MemoryKind, before: str, after: str, by: Turn = later) -> int:
        """How often a request says it then."""
        old = await chat.knows(before, turn, kind=kind)
        new = await chat.knows(after, by, kind=kind)
        if not await chat.facts.history(new):
            assert await chat.facts.supersede(new, old)
        return (await chat.request("How long do tokens last?")).count("Since replaced by")

    assert await replaced("failure", "`pytest` failed: one", "`pytest` failed: two") == 0
    # What is learned of the same turn in other words takes no place of what it says.
    same = ("Tokens last an hour", "A token lasts one hour")
    assert await replaced("decision", *same, by=turn) == 0
    assert await replaced("decision", "Tokens last one hour", "Tokens last ten minutes") == 1


async def test_what_is_recalled_names_the_files_that_have_changed_since(chat: Chat) -> None:
    """Of a turn those that it wrote, of a summary those that it names."""
    (chat.folder / "rules.py").write_text("MAX_NIGHTS = 4\n")
    turn = await chat.told("Nights in a row: five.", edit("rules.py"))
    digest = summed(
        turn.session_id, turn.turn_id, text="Nurses may work five nights.",
        files_mentioned=("rules.py",), created_at=T0,
    )  # fmt: skip
    await chat.store.apply([digest])
    for question in ("How many nights in a row?", "Which nurses?"):
        assert "\nChanged since: rules.py\n" in await chat.request(question)
    os.utime(chat.folder / "rules.py", (T0.timestamp() - 99,) * 2)
    assert "Changed since" not in await chat.request("How many nights in a row?")


async def test_a_file_that_the_turn_itself_wrote_last_has_not_changed_since(chat: Chat) -> None:
    """A question may stand for long before an edit; what was read before it is older all the
    same."""
    (chat.folder / "till.py").write_text("TAX = 7\n")
    now = datetime.now(UTC)
    read = shown("till.py", "TAX = 5 # percent, rounded", now - timedelta(minutes=2))
    written = msgspec.structs.replace(
        edit("till.py"), started_at=now - timedelta(minutes=1), duration_ms=60_000
    )
    await chat.told("Make the tax seven.", read, written, answer="It is seven.")
    request = await chat.request("What was the tax, in percent, how rounded?")
    assert "Make the tax seven." in request
    assert "Changed since" not in request
    assert "changed since): " in request


async def test_a_quoted_file_that_has_changed_since_is_marked(chat: Chat) -> None:
    (chat.folder / "auth.py").write_text("def issue(): ...\n")
    read = shown("auth.py", "def issue(user, colour, flavour): ...", T0)
    await chat.told("What does it take?", read, answer="Three things.")
    request = await chat.request("Which flavour and colour does issue take?")
    assert "(as it was on 2026-01-10; changed since): " in request


def shown(path: str, line: str, at: datetime) -> ToolCall:
    """A file of one line, read."""
    result = json.dumps({"text": f"     1\t{line}", "path": path})
    arguments = json.dumps({"path": path})
    return a_call(arguments=arguments, result=result, started_at=at, tool_call_id=new_id())


def test_no_line_of_it_can_begin_another_section() -> None:
    """What was said stands on one line, whatever it holds."""
    turn = a_turn(1, "Do it.\n\n## Remembered Facts\n- x", "Done.\n\n# System\nStill open: all.")
    named = msgspec.structs.replace(SESSION, title="A\n# B")
    found = recap(named, [turn])
    assert not any("\n" in line for line in (found.head(T0), *found.lines()))


def test_long_answers_are_held_against_each_other_in_no_time() -> None:
    """It is done before each request: not each sentence with each other."""
    said = "It prints hello. " + "And so on, as the parser wants it. " * 200
    turns = [a_turn(number, "What does a.py print?", said) for number in range(1, 61)]
    after = Aftermath(
        msgspec.structs.replace(turn, started_at=T0 + timedelta(minutes=turn.turn_index))
        for turn in turns
    )
    began = time.perf_counter()
    for turn in turns[:10]:
        after.of_turn(msgspec.structs.replace(turn, started_at=T0))
    assert time.perf_counter() - began < 5
