"""What a question names."""

from pathlib import Path

import pytest

from ragmem.index.names import named_in
from tests.index.cuts import Index, function


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
    """Qualified names, the surest first; without what is only inside of such a one."""
    found = named_in(index.connection, question)
    names = dict(index.connection.execute("SELECT scope, qualified_name FROM scopes"))
    return [
        str(names[scope])
        for scope in sorted(found, key=lambda scope: (-found[scope].surely, scope))
        if found[scope].what != "inside"
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


# --- by place ----------------------------------------------------------------------------


@pytest.fixture
def shop(tmp_path: Path) -> Index:
    """A package with a class of some length, a module beside it, and the same name elsewhere."""
    made = Index(tmp_path)
    body = "class Cart:\n" + "    ...\n" * 19
    made.put(
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
        }
    )
    return made


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
    assert set(found) >= {"Cart", "Cart.add", "Cart.total", "checkout"}


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("what is shop.cart.base for", {"Cart", "Cart.add", "Cart.total", "checkout"}),
        ("what is shop.base for", {"setup"}),
        ("what is old.shop.cart.base for", {"legacy"}),
        (
            "what is shop.cart for",
            {
                "Cart",
                "Cart.add",
                "Cart.total",
                "checkout",
                "open_cart",
                "Cart.price",
                "Cartoon.draw",
            },
        ),
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
    """It is spoken of in passing too."""
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
    """Also where it stands in another file of the folder, as in Go."""
    found = named_in(shop.connection, "how does `Cart` add up")
    names = dict(shop.connection.execute("SELECT scope, qualified_name FROM scopes"))
    inside = {str(names[scope]) for scope, one in found.items() if one.what == "inside"}
    assert inside == {"Cart.add", "Cart.total", "Cart.price"}
    assert all(one.surely == 0 for one in found.values() if one.what == "inside")


def test_the_only_word_is_a_name(index: Index) -> None:
    """Of a search; in a sentence it is a word."""
    assert named(index, "validate") == ["Auth.validate", "Form.validate"]
    assert named(index, "validate it") == []
