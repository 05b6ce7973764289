"""The first sign-in: a fresh server starts as neo4j/neo4j and gets its own password."""

import asyncio

from ragmem.errors import StoreRefused, StoreUnavailable
from ragmem.store.neo4j.gateway import keep_driver_off_the_terminal

USERNAME = "neo4j"
_FIRST_PASSWORD = "neo4j"


async def sign_in(url: str, password: str, *, timeout_s: float) -> None:
    """Wait until the server takes this password and answers; set it on a fresh one."""
    from neo4j.exceptions import AuthError, DriverError, Neo4jError

    keep_driver_off_the_terminal()
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    return await _ask(url, password, "RETURN 1", None)
                except AuthError:
                    await _ask(
                        url,
                        _FIRST_PASSWORD,
                        "ALTER CURRENT USER SET PASSWORD FROM $old TO $new",
                        "system",
                        old=_FIRST_PASSWORD,
                        new=password,
                    )
                except (DriverError, Neo4jError) as error:
                    if not error.is_retryable():
                        raise
                    await asyncio.sleep(0.2)
    except TimeoutError:
        raise StoreUnavailable(f"Neo4j at {url} listens, but does not answer.") from None
    except AuthError:
        raise StoreRefused(
            "The local Neo4j has another password than the one that ragmem keeps for it.",
            hint="Its data was set up by something else: move the folder `neo4j` of ragmem's data "
            "away, then run `ragmem neo4j up` again.",
        ) from None
    except (DriverError, Neo4jError) as error:
        raise StoreUnavailable(
            f"Neo4j at {url} did not accept the first sign-in: {error}"
        ) from None


async def _ask(
    url: str, password: str, statement: str, database: str | None, **parameters: str
) -> None:
    from neo4j import AsyncGraphDatabase, NotificationMinimumSeverity

    async with AsyncGraphDatabase.driver(
        url,
        auth=(USERNAME, password),
        connection_timeout=3.0,
        max_transaction_retry_time=0,
        notifications_min_severity=NotificationMinimumSeverity.OFF,
        telemetry_disabled=True,
    ) as driver:
        await driver.execute_query(statement, parameters, database_=database)
