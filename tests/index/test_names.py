"""What a text names as code is named, and what a question names in an index."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from ragmem.index.names import MOST_NAMES, is_named, named_in, names_in, said_in
from tests.index.cuts import Index, function


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("run the tests", []),
        ("does `run` run", ["run"]),
        ("call run() now", ["run"]),
        ("what does `validate(token)` do", ["validate"]),
        ("parse_duration and AuthService", ["parse_duration", "AuthService"]),
        ("Auth::renew, Auth#renew, auth->renew", ["Auth.renew", "auth.renew"]),
        ("see `pip install x_y`", ["x_y"]),
        ("ragmem.store.Store is it", ["ragmem.store.Store"]),
        ("Überprüfung der Größe", []),
        ("größe_prüfen", ["größe_prüfen"]),
        ("Hello. World", []),
        ("e.g. this, i.e. that.And so", []),
        ("HTTPServer and getX", ["HTTPServer", "getX"]),
        ("__init__ of it, _so_ and so", []),
        ("Auth.__init__ and _private", ["Auth.__init__", "_private"]),
        ("all URLs and IDs", []),
        ("$this->token and $scope.get_it", ["this.token", "scope.get_it"]),
        ("run `do-it` or pre-parse_it", ["do-it"]),
        ("version 3.11 of 1_000", []),
        ("look at src/auth_service.py", []),
        ("tests/test_auth.py::test_it fails", ["test_it"]),
        ("", []),
    ],
)
def test_what_looks_like_a_name(text: str, names: list[str]) -> None:
    assert names_in(text) == names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("litres", ["litres"]),
        ("Tank.drain", ["Tank.drain"]),
        ("litres?", ["litres"]),
        ("how many litres", []),
        ("how-many", ["how-many"]),
    ],
)
def test_the_only_word_of_a_search_is_a_name(text: str, names: list[str]) -> None:
    assert names_in(text, alone=True) == names


Place = tuple[str, tuple[int, int] | None]


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("open app/forms.py", [("app/forms.py", None)]),
        ("open forms.py", [("forms.py", None)]),
        ("./src/a.py and ../b/c.go", [("src/a.py", None), ("b/c.go", None)]),
        ("store/base.py:120 fails", [("store/base.py", (120, 120))]),
        ("base.py:120-140, please", [("base.py", (120, 140))]),
        ("/home/ana/app/auth.py:12:5: error", [("home/ana/app/auth.py", (12, 12))]),
        ('File "app/auth.py", line 7, in f', [("app/auth.py", (7, 7))]),
        ("app/auth.py#L3-L9", [("app/auth.py", (3, 9))]),
        ("auth.py, line 4", [("auth.py", (4, 4))]),
        (r"C:\app\auth.py:12", [("app/auth.py", (12, 12))]),
        ("tests/test_auth.py::test_it", [("tests/test_auth.py", None)]),
        ("what is in ragmem/store/?", [("ragmem/store/", None)]),
        ("what is in `store/`", [("store/", None)]),
        (".github/workflows/ci.yml", [(".github/workflows/ci.yml", None)]),
        ("see https://example.com/app/auth.py", []),
        ("at 12:30, version 1.2.3", []),
        ("a sentence. Another one: 5", []),
    ],
)
def test_what_looks_like_a_place(text: str, places: list[Place]) -> None:
    assert [(said.place, said.lines) for said in said_in(text) if said.place] == places


@pytest.mark.parametrize(
    ("asked", "does"),
    [
        ("validate", True),
        ("auth.validate", True),
        ("app.auth.validate", True),
        ("form.validate", False),
        ("valid", False),
        ("auth", False),
    ],
)
def test_whether_a_scope_is_named(asked: str, does: bool) -> None:
    """What has no name never is."""
    assert is_named("validate", "Auth.validate", {asked}) is does
    assert is_named("validate", "Auth.validate#2", {asked}) is does
    assert not is_named("", "imports", {"imports", "", asked})


@pytest.mark.parametrize("text", ["a_b ", "a-", "a/", "`", ".", "a.", "-a", "x", "~$", "/", "a:1 "])
def test_a_long_text_takes_no_time(text: str) -> None:
    """A pasted log, or what would make a pattern try for ever (the test's own limit)."""
    assert len(said_in(text * (1_000_000 // len(text)))) <= MOST_NAMES


def test_a_text_of_many_names() -> None:
    assert len(names_in("a_b " * 1_000_000)) == 1
    assert len(names_in(" ".join(f"a_{n}" for n in range(5_000)))) == MOST_NAMES


@given(st.text(alphabet="ab_A.:/\\#`()~$- 1\n\"',", max_size=80))
def test_any_text_is_read(text: str) -> None:
    """Whatever is written: parts are never empty, and a place or a name is what is said."""
    for said in said_in(text, alone=True):
        assert said.parts or said.place.strip("/.~")
        assert all(said.parts)
        assert not said.place.startswith("/")


# --- in an index -------------------------------------------------------------------------


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index(
        tmp_path,
        {
            "app/auth.py": [
                function("Auth", kind="class"),
                function("Auth.validate", kind="method"),
                function("Auth.validate_all", kind="method"),
            ],
            "app/forms.py": [function("Form.validate", kind="method"), function("clean")],
            "docs/use.md": [function("validate", kind="section")],
        },
    )


def named(index: Index, question: str) -> list[str]:
    """Qualified names, the surest first; without what is only inside of such a one."""
    found, names = named_in(index.connection, question), index.qualified_names
    return [
        names[scope]
        for scope in sorted(found, key=lambda scope: (-found[scope].surely, scope))
        if found[scope].what != "inside"
    ]


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("app.auth.Auth.validate fails", ["Auth.validate", "Form.validate"]),
        ("call validate() twice", ["Auth.validate", "Form.validate"]),
        ("validate_all is slow", ["Auth.validate_all"]),
        ("open forms.py", ["Form.validate", "clean"]),
        ("validate", ["Auth.validate", "Form.validate"]),
        ("validate the form, clean it", []),
        ("nothing.like this_name", []),
        ("", []),
    ],
)
def test_what_is_named(index: Index, question: str, expected: list[str]) -> None:
    assert named(index, question) == expected


def test_a_name_that_very_many_have_names_nothing(tmp_path: Path) -> None:
    index = Index(
        tmp_path, {f"{n}.py": [function("get_it", f"def get_it(): {n}")] for n in range(60)}
    )
    index.put({"a/b.py": [function("Thing.get_it", kind="method")]})
    assert named(index, "get_it()") == []
    assert named(index, "Thing.get_it")[0] == "Thing.get_it"


def test_the_more_have_a_name_the_less_it_says(tmp_path: Path) -> None:
    many = {f"{n}.py": [function("many_have", f"def many_have(): {n}")] for n in range(20)}
    index = Index(tmp_path, {**many, "one.py": [function("one_has")]})
    assert named(index, "many_have and one_has") == ["one_has", *["many_have"] * 20]


# --- by place ----------------------------------------------------------------------------


IN_BASE = {"Cart", "Cart.add", "Cart.total", "checkout"}


@pytest.fixture
def shop(tmp_path: Path) -> Index:
    """A package with a class of some length, a module beside it, and the same name elsewhere."""
    body = "class Cart:\n" + "    ...\n" * 19
    return Index(
        tmp_path,
        {
            "shop/cart/base.py": [
                function("Cart", body, kind="class"),
                function("Cart.add", "def add(self):\n    ...", kind="method", line=3),
                function("Cart.total", "def total(self):\n    ...", kind="method", line=8),
                function("checkout", line=30),
            ],
            "shop/cart/__init__.py": [function("open_cart")],
            "shop/cart/price.py": [function("Cart.price", kind="method"), function("Cartoon.draw")],
            "shop/base.py": [function("setup")],
            "old/shop/cart/base.py": [function("legacy")],
        },
    )


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("what fails at shop/cart/base.py:8?", "Cart.total"),
        ("shop/cart/base.py:9", "Cart.total"),
        ("shop/cart/base.py:6", "Cart"),
        ("cart/base.py#L3-L4", "Cart.add"),
        ("/home/ana/src/shop/cart/base.py:30:1: error", "checkout"),
        ('  File "/home/ana/src/shop/cart/base.py", line 4, in add', "Cart.add"),
        ("--- a/shop/cart/base.py, line 30", "checkout"),
        (r"C:\work\shop\cart\base.py:3", "Cart.add"),
    ],
)
def test_a_line_is_the_scope_that_it_is_in(shop: Index, question: str, first: str) -> None:
    """As tools, tracebacks and people write it; the rest of the file stands behind."""
    found = named(shop, question)
    assert found[0] == first
    assert set(found) >= IN_BASE


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("what is shop.cart.base for", IN_BASE),
        ("what is shop.base for", {"setup"}),
        ("what is old.shop.cart.base for", {"legacy"}),
        ("what is shop.cart for", {*IN_BASE, "open_cart", "Cart.price", "Cartoon.draw"}),
        ("what is in old/", {"legacy"}),
        ("what is in old/shop?", {"legacy"}),
        ("what is in the folder /home/ana/src/old/", {"legacy"}),
        ("what is in shop/base.py", {"setup"}),
        ("cash and/or carry, 1/2 of it", set()),
        ("see https://example.com/shop/base.py", set()),
    ],
)
def test_modules_and_folders_are_places(shop: Index, question: str, expected: set[str]) -> None:
    """The module's file, the folder's files; a path from the project's folder on wins."""
    assert set(named(shop, question)) == expected


def test_a_module_is_meant_less_surely_than_a_file(shop: Index) -> None:
    by_module = named_in(shop.connection, "in shop.cart.base")
    by_file = named_in(shop.connection, "in shop/cart/base.py")
    assert set(by_module) == set(by_file)
    assert all(by_module[scope].surely < by_file[scope].surely for scope in by_file)


def test_a_name_in_a_named_place_is_the_surer(shop: Index) -> None:
    shop.put({"web/cart.py": [function("checkout")]})
    names = dict(shop.connection.execute("SELECT scope, path FROM scopes JOIN files USING (file)"))
    found = named_in(shop.connection, "`checkout` in web/cart.py")
    best = max(found, key=lambda scope: found[scope].surely)
    assert (names[best], found[best].what) == ("web/cart.py", "name")


def test_what_a_named_class_holds_is_inside(shop: Index) -> None:
    found = named_in(shop.connection, "how does `Cart` add up")
    inside = {shop.qualified_names[scope]: found[scope].surely
              for scope in found if found[scope].what == "inside"}  # fmt: skip
    assert inside == {"Cart.add": 0, "Cart.total": 0, "Cart.price": 0}
