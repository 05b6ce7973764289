"""What a question names."""

from pathlib import Path

import pytest

from ragmem.codeindex.naming import named_in
from tests.codeindex.cuts import Index, function


@pytest.fixture
def index(tmp_path: Path) -> Index:
    made = Index(tmp_path)
    made.put(
        {
            "app/auth.py": [
                function("Auth", kind="class"),
                function("Auth.validate", kind="method"),
                function("Auth.validate_all", kind="method"),
            ],
            "app/forms.py": [function("Form.validate", kind="method"), function("clean")],
            "docs/use.md": [function("validate", kind="section")],
        }
    )
    return made


def named(index: Index, question: str) -> list[str]:
    """Qualified names, the surest first."""
    found = named_in(index.connection, question)
    names = dict(index.connection.execute("SELECT scope, qualified_name FROM scopes"))
    return [
        str(names[scope])
        for scope in sorted(found, key=lambda scope: (-found[scope].surely, scope))
    ]


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Auth.validate fails", ["Auth.validate", "Form.validate"]),
        ("Auth::validate fails", ["Auth.validate", "Form.validate"]),
        ("app.auth.Auth.validate fails", ["Auth.validate", "Form.validate"]),
        ("call validate() twice", ["Auth.validate", "Form.validate"]),
        ("what does `validate` do", ["Auth.validate", "Form.validate"]),
        ("what does `validate(token)` do", ["Auth.validate", "Form.validate"]),
        ("validate_all is slow", ["Auth.validate_all"]),
        ("open app/forms.py", ["Form.validate", "clean"]),
        ("open forms.py", ["Form.validate", "clean"]),
        ("validate the form, clean it", []),
        ("e.g. this. And that", []),
        ("nothing.like this_name", []),
        ("", []),
    ],
)
def test_what_is_named(index: Index, question: str, expected: list[str]) -> None:
    """Only what is written as code counts: a word of a sentence is none."""
    assert named(index, question) == expected


def test_a_name_that_very_many_have_names_nothing(tmp_path: Path) -> None:
    index = Index(tmp_path)
    index.put({f"{n}.py": [function("get_it", f"def get_it(): {n}")] for n in range(60)})
    index.put({"a/b.py": [function("Thing.get_it", kind="method")]})
    assert named(index, "get_it()") == []
    assert named(index, "Thing.get_it")[0] == "Thing.get_it"


def test_the_more_have_a_name_the_less_it_says(tmp_path: Path) -> None:
    index = Index(tmp_path)
    index.put({f"{n}.py": [function("many_have", f"def many_have(): {n}")] for n in range(20)})
    index.put({"one.py": [function("one_has")]})
    found = named_in(index.connection, "many_have and one_has")
    names = dict(index.connection.execute("SELECT scope, qualified_name FROM scopes"))
    surely = {str(names[scope]): one.surely for scope, one in found.items()}
    assert surely["one_has"] > surely["many_have"]
