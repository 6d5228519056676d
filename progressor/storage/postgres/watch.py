"""The watch of a connection's socket: it stays from one wait to the next.

To set a watch and to remove it takes a dozen system calls, as many as a lone transaction needs otherwise.
A socket that nobody watches is looked at before its connection is used again.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
from contextlib import suppress

import psycopg
from psycopg import pq


def has_ended(pgconn: pq.abc.PGconn) -> bool:
    """Return whether the server has ended a connection that nobody uses.

    Whatever else it said meanwhile, such as a setting that was changed, is taken in.
    """
    try:
        arrivals = select.poll()
        arrivals.register(pgconn.socket, select.POLLIN)
        while arrivals.poll(0):
            pgconn.consume_input()
    except psycopg.OperationalError:
        return True
    return False


class SocketWatch:
    """The watch of one connection, for one wait at a time.

    What arrives meanwhile is taken in at once: else the socket would be reported again, before whoever
    waits has had its turn.
    """

    def __init__(self, pgconn: pq.abc.PGconn) -> None:
        # A duplicate for the event loop: libpq closes its own socket when it reads that the server ends the
        # session. The watch of a closed descriptor cannot be removed, and would go off again and again if a
        # forked process has the socket too.
        self._pgconn = pgconn
        self._socket = socket.socket(fileno=os.dup(pgconn.socket))
        self._arrivals = select.poll()
        self._arrivals.register(self._socket, select.POLLIN)
        self.is_set = False
        """True while the loop watches the socket, and nothing has come that nobody asked for."""
        self._awaited: asyncio.Future[None] | None = None

    async def arrival(self, *, or_writable: bool = False) -> None:
        """Wait until something has arrived, or, if that is asked for, the socket can be written.

        psycopg.OperationalError if the connection is lost, or the server has said before why it ends it.
        """
        loop = asyncio.get_running_loop()
        self._awaited = loop.create_future()
        if self.is_set and self._arrivals.poll(0):
            # Bytes that are there already may be the end of a connection that was reset. uvloop reports
            # that only once, then stops watching, and may have reported it together with what was read.
            self.ignore()
        if not self.is_set:
            loop.add_reader(self._socket.fileno(), self._wake)
            self.is_set = True
        if or_writable:
            loop.add_writer(self._socket.fileno(), self._wake)
        try:
            await self._awaited
        finally:
            self._awaited = None
            if or_writable:
                loop.remove_writer(self._socket.fileno())

    def _wake(self) -> None:
        if self._awaited is not None:
            if not self._awaited.done():
                self._take_in(self._awaited)
        elif self._arrivals.poll(0):
            # Not a repeated report of what was just read, but bytes that nobody asked for: the server ends
            # the session. Its next user finds that out, and sets the watch anew.
            self.ignore()

    def _take_in(self, awaited: asyncio.Future[None]) -> None:
        try:
            self._pgconn.consume_input()
        except Exception as error:  # noqa: BLE001 - whoever waits gets it
            awaited.set_exception(error)
        else:
            awaited.set_result(None)

    def ignore(self) -> None:
        """Stop watching until the next wait."""
        if self.is_set:
            self.is_set = False
            asyncio.get_running_loop().remove_reader(self._socket.fileno())

    def hang_up(self) -> None:
        """End the connection, for the server and for a thread that may still use it."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Stop watching, for good."""
        self.ignore()
        self._socket.close()
