"""Prints URL and password of the local Neo4j, a line each; scripts/test hands them to the tests."""

from ragmem.config import environment, find_paths, load_config
from ragmem.store.neo4j_server import find_connection

paths = find_paths()
connection = find_connection(load_config(paths.config_file), paths, environment())
print(connection.url, connection.password, sep="\n")
