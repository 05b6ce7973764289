"""Markdown and its kin, plain text and data, cut into sections and windows."""

import json

from inline_snapshot import snapshot

from ragmem.index.cut import cut
from tests.index.cut.outline import check, drawn, outline


def test_markdown() -> None:
    """Sections by heading, under their parents' names; code in fences is none."""
    source = """
        ---
        title: x
        # no heading
        ---

        What stands before. See `parse_duration(text)`.

        Big title
        =========

        # Install `ragmem` #

        ## From [source](x.md)

        ```sh
        # no heading
        ~~~
        ```

        Calls `AuthService.validate()` and ``a::b_c``.

        ## From source
        ### Deep
        | a | b |
        |---|---|

        Not a heading, since
        it is a paragraph
        ---

        # Use
        """
    assert drawn("README.md", source) == snapshot("""\
1-4 block : ---
6-6 text : What stands before. See `parse_duration(text)`.
  > parse_duration
8-9 section Big title: Big title
11-11 section Install ragmem: # Install `ragmem` #
  > ragmem
13-20 section Install ragmem.From source: ## From [source](x.md)
  > validate, b_c
22-22 section Install ragmem.From source#2: ## From source
23-29 section Install ragmem.From source.Deep: ### Deep
31-31 section Use: # Use\
""")


def test_headings_of_other_texts() -> None:
    rst = """
        =====
        Title
        =====

        Intro with ``QuerySet.update`` and :meth:`~a.b.C.name`.

        Install
        =======

        .. code::

           no heading
           ----------

        From source
        -----------
        Text.

        Use
        ===
        """
    assert drawn("index.rst", rst) == snapshot("""\
1-5 section Title: Title
  > update, name
7-13 section Title.Install: Install
15-17 section Title.Install.From source: From source
19-20 section Title.Use: Use\
""")


def test_a_book_is_cut_at_its_higher_headings() -> None:
    source = "".join(f"# Part {a}\n" + "## Small\n\ntext\n" * 200 for a in range(3))
    assert [row[1] for row in outline("CHANGES.md", source)] == ["Part 0", "Part 1", "Part 2"]


def test_text_is_cut_at_blank_lines() -> None:
    source = "\n".join("" if row % 25 == 24 else f"line {row}" for row in range(200))
    assert [row[:3] for row in outline("notes.txt", source)] == snapshot(
        [
            ("text", "", "1-49"),
            ("text", "#2", "51-99"),
            ("text", "#3", "101-149"),
            ("text", "#4", "151-199"),
        ]
    )
    long = "\n".join(f"line {row}" for row in range(20_000))
    assert len(outline("notes.txt", long)) <= 40
    assert outline("empty.txt", "") == []
    assert outline("blank.py", " \n\t\n") == []


def test_big_data_has_few_scopes() -> None:
    rows = [f"{number},name {number}" for number in range(50_000)]
    keys = {f"key{number}": list(range(30)) for number in range(500)}
    for path, text in {
        "a.csv": "\n".join(rows),
        "a.json": json.dumps(keys, indent=1),
        "one.json": json.dumps(keys),
        "a.yaml": "".join(f"key{number}:\n" + "  - 1\n" * 50 for number in range(500)),
        "a.lock": "".join(f"[[package]]\nname = {number}\n\n" for number in range(5000)),
        "uv.lock": "".join(f"[[package]]\nname = {number}\n\n" for number in range(5000)),
    }.items():
        made = cut(path, text.encode())
        check(made, text.encode())
        assert 1 <= len(made.scopes) <= 40


def test_languages_without_a_parser_are_text() -> None:
    vue = "<template>\n  <p/>\n</template>\n\n<script>\nexport default { }\n</script>\n"
    assert [row[:4] for row in outline("App.vue", vue)] == [("text", "", "1-7", "<template>")]
    assert cut("App.vue", b"x").language == "vue"
    assert cut("x.unknown", b"x").language == "text"
