"""Python cut into scopes."""

from inline_snapshot import snapshot

from tests.index.cut.outline import drawn, outline, texts

SOURCE = '''
    #!/usr/bin/env python3
    # Copyright of somebody. All rights reserved.
    """Who may do what.

    Tokens come from `login`.
    """

    from __future__ import annotations

    import os
    from typing import TYPE_CHECKING, Literal

    if TYPE_CHECKING:
        from .store import Store

    MAX_TRIES = 3
    """How often a password may be wrong."""

    TABLE = {
        "a": 1,
        "b": compute(2),
    }
    Role = Literal["admin", "guest"]
    type Names = dict[str, str]
    _cache = {}


    # Raised where a token is no good.
    # noqa: N818
    class Expired(Exception):
        pass


    class AuthService(Base, metaclass=Meta):
        """Checks tokens.

            Indented.
        """

        limit = make_limit(3)

        def __init__(self, store: Store) -> None:
            super().__init__(store)
            self.store = store

        # Comments above count too,
        # in a run.
        @cached(ttl=3)
        @property
        def current(
            self,
            *,
            fresh: bool = False,  # asks anew
        ) -> str:
            def inner():
                return helper()
            return self.store.session.lookup(inner())

        class Nested:
            async def validate(self, token): return check(token)

        if os.name == "nt":
            def validate(self, token): ...
        else:
            def validate(self, token):
                \'\'\'Other systems.\'\'\'

    logger = get_logger(__name__)

    def login(name):
        # only a comment
        "One line."
        for _ in range(MAX_TRIES):
            print(AuthService(name).current)
        # trailing

    if __name__ == "__main__":
        login("x")
'''


def test_python() -> None:
    assert drawn("auth.py", SOURCE) == snapshot("""\
1-14 block : #!/usr/bin/env python3
  | Who may do what.
  |
  | Tokens come from `login`.
16-17 constant MAX_TRIES: MAX_TRIES = 3
  | How often a password may be wrong.
19-22 constant TABLE: TABLE = { "a": 1, "b": compute(2), }
  > compute
23-23 type Role: Role = Literal["admin", "guest"]
24-24 type Names: type Names = dict[str, str]
25-25 block #2: _cache = {}
28-31 class Expired: class Expired(Exception)
  | Raised where a token is no good.
34-66 class AuthService: class AuthService(Base, metaclass=Meta)
  | Checks tokens.
  |
  | Indented.
  > make_limit
42-44 method AuthService.__init__: def __init__(self, store: Store) -> None
  > __init__
46-57 method AuthService.current: def current(self, *, fresh: bool = False) -> str
  | Comments above count too,
  | in a run.
  > cached, helper, lookup, inner
59-60 class AuthService.Nested: class Nested
60-60 method AuthService.Nested.validate: async def validate(self, token)
  > check
63-63 method AuthService.validate: def validate(self, token)
65-66 method AuthService.validate#2: def validate(self, token)
  | Other systems.
68-68 block #3: logger = get_logger(__name__)
  > get_logger
70-75 function login: def login(name)
  | One line.
  > AuthService
77-78 block #4: if __name__ == "__main__":
  > login\
""")


def test_text_of_a_class_has_its_methods_as_one_line() -> None:
    found = dict(texts("auth.py", SOURCE))
    assert found["AuthService"] == snapshot('''\
class AuthService(Base, metaclass=Meta):
    """Checks tokens.

        Indented.
    """

    limit = make_limit(3)

    def __init__(self, store: Store) -> None

    def current(self, *, fresh: bool = False) -> str

    class Nested

    if os.name == "nt":
        def validate(self, token)
    else:
        def validate(self, token)\
''')
    assert found["AuthService.current"] == snapshot("""\
    # Comments above count too,
    # in a run.
    @cached(ttl=3)
    @property
    def current(
        self,
        *,
        fresh: bool = False,  # asks anew
    ) -> str:
        def inner():
            return helper()
        return self.store.session.lookup(inner())\
""")


LONG = "\n".join(f"        step_{number}()" for number in range(35))


def test_long_nested_functions_are_scopes() -> None:
    source = (
        f"def outer():\n    def inner():\n{LONG}\n"
        "    def short():\n        tiny()\n    return inner\n"
    )
    rows = outline("deco.py", source)
    assert [row[:4] for row in rows] == [
        ("function", "outer", "1-40", "def outer()"),
        ("function", "outer.inner", "2-37", "def inner()"),
    ]
    assert rows[0][5] == ("tiny",)
    assert rows[1][5] == tuple(f"step_{number}" for number in range(35))


def test_a_file_with_only_imports_is_one_block() -> None:
    assert drawn("__init__.py", "# All of it.\n\nimport a\nfrom b import (\n  c,\n)\n") == snapshot(
        "1-6 block imports: # All of it."
    )


def test_many_constants_of_one_line_stay_together() -> None:
    source = "".join(f"E_{number} = {number}\n" for number in range(41))
    assert [row[:3] for row in outline("errno.py", source)] == [("block", "", "1-41")]
    assert len(outline("errno.py", source.replace("E_40 = 40\n", ""))) == 40


def test_names_that_come_again_are_numbered() -> None:
    """Unique within kind and file, also beside a name that looks like a number."""
    source = "def f(): 1\ndef f(): 2\nclass f: 3\ndef f(): 4\n"
    assert [row[:2] for row in outline("a.py", source)] == [
        ("function", "f"),
        ("function", "f#2"),
        ("class", "f"),
        ("function", "f#3"),
    ]
    headings = "# a\n\n# a#2\n\n# a\n\n# a\n"
    assert [row[1] for row in outline("a.md", headings)] == ["a", "a#2", "a#3", "a#4"]
