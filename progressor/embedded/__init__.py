"""An embedded PostgreSQL for development and demos: the first run needs no database.

Each working folder has data of its own, and many OS processes share their server. The kernel, never a
pid, tells which of them live: each fact is a `flock` that vanishes with its holders, however they die. In
the folder of the major version that began the data (`<data_dir>/pg18`) stand

users.lock      held shared by every process that uses the server, exclusively by the one that ends it
start.lock      held exclusively by the process that starts the server or attaches to it
server.lock     inherited by initdb and PostgreSQL: held as long as one of them lives
watcher.lock    inherited by the watcher: held as long as it lives
data/           PGDATA; always complete, because initdb fills another folder, which is then renamed
run/            the socket (in /tmp/progressor-<hash>/ if the path is too long for a socket)

Start: take start.lock, then users.lock shared, then start a watcher and a server unless they live.
Stop: let users.lock go; the process that then gets it exclusively was the last, and ends the server with
a fast shutdown. While it is held exclusively no process can begin to use the server, so it never ends
under a user. start.lock is only ever taken before users.lock: no deadlock.

The watcher makes the last user's SIGKILL harmless: a tiny detached Python process (10 MB, standard
library only) that sleeps until the kernel gives it users.lock. It starts before the server does, so no
server is ever without a process that would end it; if the watcher is killed too, the next start makes
another. After any kill the next start attaches, or recovers as PostgreSQL does after a crash.

Rule: durability settings stand on the server's command line, where nothing overrides them, and
nothing outside the data directory changes its mode or owner. Needs a local POSIX file system.
"""

from progressor.embedded.folder import default_data_dir, named_data_dir
from progressor.embedded.server import EmbeddedPostgres

__all__ = ["EmbeddedPostgres", "default_data_dir", "named_data_dir"]
