"""A local Neo4j in one command: found, started, stopped.

    server.py      up, down, status: one server for all processes of this user
    ways.py        how one can run here: `neo4j` on PATH, a container, Java with Maven
    layout.py      what lies where, and a detached child that only its own record can stop
    pom.xml        what Maven fetches

Everything lies under `Paths.neo4j_dir`. It listens on 127.0.0.1 alone, on two free
ports that it keeps from one start to the next (Bolt's, and the Browser's), with a random
password that is kept in a file of mode 0600.
"""

from ragmem.store.neo4j_server.server import (
    ServerStatus,
    down,
    find_connection,
    log_file,
    password,
    status,
    up,
)

__all__ = ["ServerStatus", "down", "find_connection", "log_file", "password", "status", "up"]
