"""Where a Neo4j server is, and as whom to sign in."""

from urllib.parse import urlsplit

import msgspec

from ragmem.errors import StoreRefused

_SCHEMES = ("bolt", "bolt+s", "bolt+ssc", "neo4j", "neo4j+s", "neo4j+ssc")


class Connection(msgspec.Struct, frozen=True):
    """One database of one server; its text form never holds the password."""

    url: str
    username: str = "neo4j"
    password: str = ""
    database: str | None = None
    """None: the user's home database."""

    def __repr__(self) -> str:
        """As any struct, with the password hidden."""
        return (
            f"Connection(url={self.location!r}, username={self.username!r}, "
            f"password='…', database={self.database!r})"
        )

    @property
    def location(self) -> str:
        """The address without credentials, for messages."""
        scheme, mark, rest = self.url.partition("://")
        return f"{scheme}{mark}{rest.rpartition('@')[2]}"

    def check(self) -> "Connection":
        """Itself; StoreRefused when no memory can be kept there."""
        try:
            parts = urlsplit(self.url)
            host = (parts.hostname or "").encode("idna")
            usable = parts.scheme in _SCHEMES and host != b"" and parts.port != 0
            usable = usable and self.url.isprintable()
        except ValueError:  # Which an address that no name server knows how to write is too.
            usable = False
        if not usable:
            raise StoreRefused(
                f"{self.location!r} is not an address of a Neo4j server.",
                hint="Such are bolt://localhost:7687 and neo4j+s://name.example.org.",
            )
        if parts.username or parts.password:
            raise StoreRefused(
                f"The address of Neo4j at {self.location} carries a user name or password.",
                hint="Keep the address without them; set NEO4J_USERNAME and NEO4J_PASSWORD.",
            )
        if self.database == "system":
            raise StoreRefused(
                f"The database 'system' of Neo4j at {self.location} keeps no data.",
                hint="Name another one in store.database or NEO4J_DATABASE, or none at all.",
            )
        return self
