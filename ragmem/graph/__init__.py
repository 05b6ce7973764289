"""Exporting a graph as a self-contained HTML page, as JSON, or as GraphML for other programs.

The page contains its scripts, style and data, and forbids the browser all requests with a
Content-Security-Policy, which lists the scripts and the style by hash. The data is JSON in an
element that is never executed, and is inserted into the page as text nodes only.
"""

from base64 import b64encode
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from xml.etree import ElementTree

import msgspec

from ragmem.memory.graph import Graph
from ragmem.text import clean

_SCRIPTS = ("layout.js", "core.js", "map.js", "views.js", "page.js")
_TEXTS = {"kind": "string", "label": "string", "at": "string"}


def to_json(graph: Graph) -> bytes:
    """Return the whole graph as JSON, with the field names of `ragmem.memory.graph`."""
    return msgspec.json.format(msgspec.json.encode(graph), indent=2) + b"\n"


def to_graphml(graph: Graph) -> bytes:
    """Return the graph as GraphML: nodes with kind, label and time, and edges with their kind."""
    root = ElementTree.Element("graphml", xmlns="http://graphml.graphdrawing.org/xmlns")
    for name, kind in _TEXTS.items():
        key = {"id": name, "for": "node", "attr.name": name, "attr.type": kind}
        ElementTree.SubElement(root, "key", key)
    key = {"id": "relation", "for": "edge", "attr.name": "relation", "attr.type": "string"}
    ElementTree.SubElement(root, "key", key)
    drawn = ElementTree.SubElement(root, "graph", id="memory", edgedefault="directed")
    for node in graph.nodes:
        element = ElementTree.SubElement(drawn, "node", id=node.id)
        at = node.at.isoformat() if node.at else ""
        for name, text in zip(_TEXTS, (node.kind, node.label, at), strict=True):
            ElementTree.SubElement(element, "data", key=name).text = text
    for edge in graph.edges:
        element = ElementTree.SubElement(drawn, "edge", source=edge.source, target=edge.target)
        ElementTree.SubElement(element, "data", key="relation").text = edge.kind
    ElementTree.indent(root)
    return b"<?xml version='1.0' encoding='utf-8'?>\n" + bytes(ElementTree.tostring(root)) + b"\n"


def to_html(graph: Graph) -> bytes:
    """Return the graph as a self-contained page; see the module's docstring."""
    style, script, body = _parts()
    # Escaped, so that nothing in the data can close its element or open a comment in it.
    data = msgspec.json.encode(_with_indexed_edges(graph)).decode().replace("<", "\\u003c")
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
        f"style-src '{_hash(style)}'; script-src '{_hash(script)}'"
    )
    parts = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="referrer" content="no-referrer">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(graph.title)}</title>",
        f"<style>{style}</style>\n</head>\n<body>",
        body,
        f'<script type="application/json" id="data">{data}</script>',
        f"<script>{script}</script>\n</body>\n</html>\n",
    )
    return clean("\n".join(parts)).encode()


def _with_indexed_edges(graph: Graph) -> dict[str, object]:
    """Return the graph with edges that refer to nodes by index, which is shorter than their ids."""
    place = {node.id: number for number, node in enumerate(graph.nodes)}
    edges = [(place[each.source], place[each.target], each.kind) for each in graph.edges]
    return msgspec.structs.asdict(graph) | {"edges": edges}


@cache
def _parts() -> tuple[str, str, str]:
    page = files("ragmem.graph") / "page"
    texts = {n: (page / n).read_text("utf-8") for n in (*_SCRIPTS, "page.css", "page.html")}
    return texts["page.css"], "\n".join(texts[name] for name in _SCRIPTS), texts["page.html"]


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
