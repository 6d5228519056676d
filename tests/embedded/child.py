"""Another OS process that uses the embedded server until its standard input ends."""

import sys
from pathlib import Path

from progressor.embedded import EmbeddedPostgres

embedded = EmbeddedPostgres(Path(sys.argv[1]))
print(embedded.start(), flush=True)
sys.stdin.read()
embedded.stop()
