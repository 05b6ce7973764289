"""The files: a page that nothing said can break out of, JSON, GraphML."""

import re
from base64 import b64encode
from datetime import UTC, datetime
from hashlib import sha256
from xml.etree import ElementTree

import msgspec
import pytest

from ragmem.graph import to_graphml, to_html, to_json
from ragmem.memory.graph import Graph, Node, Wanted, _clipped, collect
from ragmem.store import Store
from tests.graph.evil import EVIL
from tests.graph.garden import garden, requests
from tests.store.conftest import opens, store

__all__ = ["store"]
NOW = datetime(2026, 11, 24, tzinfo=UTC)
KEY = "ghp_" + "a1B2" * 9
open_store = opens("sqlite")


@pytest.fixture
async def hostile(store: Store) -> Graph:
    await store.apply(garden(1, (*EVIL, f"token {KEY}")))
    return await collect(store, Wanted(title="".join(EVIL)), now=NOW, sent=requests())


def test_nothing_that_was_said_becomes_part_of_the_page(hostile: Graph) -> None:
    page = to_html(hostile).decode()
    clean = to_html(Graph(title="", store="sqlite", made_at=NOW)).decode()
    for tag in ("<script", "</script", "<style", "<!--", "<iframe", "<img", "<svg", "<base", "<a "):
        assert page.count(tag) == clean.count(tag), tag
    assert KEY not in page
    assert page.replace("\n", "").isprintable()
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    assert "<" not in data
    told = msgspec.json.decode(data)
    assert any("</script><script>owned=1" in node["label"] for node in told["nodes"])


def test_the_page_forbids_every_request_and_every_other_script() -> None:
    page = to_html(Graph(title="", store="sqlite", made_at=NOW)).decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    hashes = [b64encode(sha256(text.encode()).digest()).decode() for text in (style, script)]
    assert policy == (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
        f"style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'"
    )
    assert page.index("Content-Security-Policy") < page.index("<style>")
    for word in ("innerHTML", "insertAdjacent", "document.write", "eval(", "http://", "https://"):
        assert word not in script.replace("http://www.w3.org/2000/svg", ""), word
    assert "url(" not in style
    assert len(page) < 150_000


def test_json_holds_all_and_graphml_the_nodes_and_edges(hostile: Graph) -> None:
    told = msgspec.json.decode(to_json(hostile), type=Graph)
    assert len(told.nodes) == len(hostile.nodes)
    assert told.edges == hostile.edges
    root = ElementTree.fromstring(to_graphml(hostile))
    space = "{http://graphml.graphdrawing.org/xmlns}"
    assert len(root.findall(f".//{space}node")) == len(hostile.nodes)
    assert len(root.findall(f".//{space}edge")) == len(hostile.edges)


def test_a_line_of_ten_megabytes_is_cut_and_counted() -> None:
    [text] = _clipped([("x" * 10_000_000, 12_000)])
    assert len(text) < 12_100
    assert text.endswith("9,988,000 more characters")
    apart = [
        ("a" * 11_990 + f" {KEY}" + "y" * 5000, 12_000),
        ("-----BEGIN RSA PRIVATE KEY-----", 40),
    ]
    apart.append((f"{'Q' * 64}\n-----END RSA PRIVATE KEY-----", 400))
    assert KEY[:9] not in "".join(_clipped(apart))
    assert len(_clipped(apart)) == 3


def test_a_node_without_a_time_or_facts_is_short() -> None:
    node = Node(id="file=a", kind="file", label="a")
    assert msgspec.json.encode(node) == b'{"id":"file=a","kind":"file","label":"a"}'
