"""The statements of the `.cypher` files beside this module."""

from pathlib import Path

_FOLDER = Path(__file__).parent


def named_statements(file: str) -> dict[str, str]:
    """Statements by the name that stands before each as `// :name`."""
    text = (_FOLDER / file).read_text("utf-8")
    sections = [section.partition("\n") for section in text.split("\n// :")[1:]]
    return {name.split()[0]: body.strip().rstrip(";") for name, _, body in sections}


def listed_statements(file: str) -> list[str]:
    """Statements one after the other, each ended by a semicolon."""
    lines = (_FOLDER / file).read_text("utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.startswith("//"))
    return [statement.strip() for statement in text.split(";") if statement.strip()]


STATEMENTS = named_statements("statements.cypher")
