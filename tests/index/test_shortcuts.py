"""What a search reads in a short way is what it would read in the plain one."""

from pathlib import Path

from ragmem.index.search import _COLUMNS, _imports, _Scores
from tests.index.cuts import Index, function


def test_columns_of_the_text_index_are_told_by_their_first_letters(tmp_path: Path) -> None:
    held = Index(tmp_path).connection.execute("SELECT name FROM pragma_table_info('texts')")
    columns = [str(name) for (name,) in held]
    assert "".join(name[0] for name in columns) == _COLUMNS
    assert len(set(_COLUMNS)) == len(columns) == 4


def test_only_imports_among_the_files_that_were_found_count(tmp_path: Path) -> None:
    index = Index(tmp_path)
    index.put({path: [function(path[0])] for path in ("a.py", "b.py", "c.py", "d.py")})
    index.import_file("a.py", "b.py")
    index.import_file("a.py", "d.py")
    index.import_file("b.py", "a.py")
    index.import_file("d.py", "a.py")
    found = _imports(index.connection, {"a.py", "b.py", "c.py"})
    assert found == {"a.py": ["b.py"], "b.py": ["a.py"]}
    assert _imports(index.connection, set()) == {}


def test_scores_of_scopes_that_have_none_are_left_out() -> None:
    import numpy as np

    scores = _Scores(np.array([3, 5, 9]), np.array([0.3, 0.5, 0.9]))
    assert scores.of([9, 1, 3, 4, 10]) == {9: 0.9, 3: 0.3}
    assert scores.of([]) == {}
    assert _Scores(np.empty(0, np.int64), np.empty(0)).of([1]) == {}
