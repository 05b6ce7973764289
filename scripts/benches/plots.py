"""Charts of the cost by the size of a memory."""

from collections.abc import Callable, Sequence

from benches.charts import Chart, Line, drawn
from benches.growth import Growth


def growth_pictures(grown: Sequence[Growth]) -> dict[str, str]:
    """Return an SVG for each store and subject, by name."""
    return {
        f"growth-{store}-{subject}": drawn(chart)
        for store in dict.fromkeys(each.store for each in grown)
        if len(rows := [each for each in grown if each.store == store]) > 1
        for subject, chart in _charts(store, rows).items()
    }


def _charts(store: str, rows: Sequence[Growth]) -> dict[str, Chart]:
    name = {"sqlite": "SQLite", "neo4j": "Neo4j"}[store]

    def line(label: str, value: Callable[[Growth], float], *, dashed: bool = False) -> Line:
        return Line(label, [(row.turns, value(row)) for row in rows], dashed)

    def step(label: str, of: str, *, dashed: bool = False) -> Line:
        return line(label, lambda row: row.steps[of].median, dashed=dashed)

    return {
        "append": Chart(
            f"{name}: recording one step of a turn (median)",
            "milliseconds",
            [
                step("turn begun", "append: turn begun"),
                step("tool call", "append: tool call"),
                step("turn ended", "append: turn ended"),
                line("turn begun, p95", lambda row: row.steps["append: turn begun"].p95),
                step("bare insert", "append: bare insert", dashed=True),
            ],
        ),
        "read": Chart(
            f"{name}: reading (median)",
            "milliseconds",
            [
                step("newest 30 turns", "load the newest 30 turns"),
                step("session of 300 turns", "load a session of 300"),
                step("sessions of a folder", "list a folder"),
                step("sessions of a project", "list a project"),
                step("sessions, newest 50", "list everything, newest 50"),
                step("find by tail of id", "find by the tail of an id"),
            ],
        ),
        "whole": Chart(
            f"{name}: work on all of it",
            "seconds",
            [
                line("take it in", lambda row: row.turns / row.fill_turns_per_s),
                line("read it out", lambda row: row.turns / row.read_turns_per_s),
                line("store check", lambda row: row.check_ms / 1000),
                line("store info", lambda row: row.info_ms / 1000),
                line("open", lambda row: row.open_ms / 1000),
            ],
        ),
        "size": Chart(
            f"{name}: disk and memory",
            "megabytes",
            [
                line("on disk", lambda row: row.size_bytes / 1e6),
                line("peak memory, filling", lambda row: row.fill_rss_bytes / 1e6),
                line("peak memory, at work", lambda row: row.work_rss_bytes / 1e6),
                *(
                    [line("server's memory", lambda row: (row.server_rss_bytes or 0) / 1e6)]
                    if store == "neo4j"
                    else []
                ),
            ],
        ),
    }
