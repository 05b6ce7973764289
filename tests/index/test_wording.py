"""What a scope is found by."""

from hypothesis import given, strategies as st
from inline_snapshot import snapshot
from msgspec.structs import replace

from ragmem.index.rows import scope_row
from tests.index.cuts import function

VALIDATE = replace(
    function(
        "AuthService.validate",
        '''\
    def validate(self, token):
        """Whether a token is good."""
        found = self.lookup(token)
        return found is not None
''',
        docstring="Whether a token is good.",
        calls=["lookup"],
        kind="method",
        line=10,
    ),
    signature="def validate(self, token)",
)


def test_a_scope_in_words() -> None:
    found = scope_row("src/auth/service.py", "python", VALIDATE)
    assert [found.names, found.paths, found.about, found.body] == [
        "authservice.validate authservice auth service servic validate valid validate valid",
        "src/auth/service.py service.py src auth service servic py auth/service.py python",
        "whether token token good def validate valid self",
        "def validate valid self self token token token whether good found found self.lookup lookup"
        " return none",
    ]
    assert found.length == 8 + 16
    assert found.embedded.splitlines() == snapshot(
        [
            "method auth service validate in src auth service",
            "Whether a token is good.",
            "def validate(self, token)",
            "def validate(self, token): found = self.lookup(token) return found is not None",
        ]
    )


def test_the_number_of_a_second_scope_of_a_name_is_no_part_of_it() -> None:
    first, second = (replace(function(name), hash="h") for name in ("load", "load#2"))
    found = scope_row("a.py", "python", second)
    assert replace(found, scope=first) == replace(scope_row("a.py", "python", first), scope=first)


def test_paths_are_found_by_their_ends() -> None:
    paths = scope_row("ragmem/store/sqlite/base.py", "python", VALIDATE).paths.split()
    assert {"ragmem/store/sqlite/base.py", "sqlite/base.py", "store/sqlite/base.py"} <= {*paths}
    assert {"base.py", "store", "sqlite", "python"} <= {*paths}


def test_a_table_of_data_is_capped() -> None:
    """A term counts a few times, and only so many distinct ones are kept."""
    text = "token " * 5000 + " ".join(f"word{number}x" for number in range(5000))
    body = scope_row("a.py", "python", function("table", text)).body.split()
    assert body.count("token") == 8
    assert len(set(body)) <= 400


def test_what_is_embedded_is_short() -> None:
    text = "\n".join(f"    total += {name}.weight" for name in ["alpha", "beta"] * 200)
    long = function("sum_all", text, docstring="Add up what there is. " * 100)
    assert len(scope_row("a/b.py", "python", long).embedded) <= 480


def test_imports_alone_have_no_vector() -> None:
    block = function("imports", "import os\nimport sys", kind="block")
    assert scope_row("a.py", "python", block).embedded == ""


@given(
    path=st.text(min_size=1, max_size=60),
    name=st.text(max_size=40),
    docstring=st.text(max_size=300),
    text=st.text(max_size=800),
)
def test_any_text_gives_words(path: str, name: str, docstring: str, text: str) -> None:
    """No text breaks it, the columns' terms have no spaces, and the length is that of the terms."""
    scope = function(name, text, docstring=docstring, kind="section")
    found = scope_row(path, "markdown", scope)
    assert found.length == len(found.about.split()) + len(found.body.split())
    assert found == scope_row(path, "markdown", scope)
