"""Another OS process that uses the embedded server until its standard input ends."""

import sys
from pathlib import Path

from tests import postgres

embedded = postgres.embedded(Path(sys.argv[1]))
print(embedded.start(), flush=True)
sys.stdin.read()
embedded.stop()
