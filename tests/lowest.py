"""Print the lower bound of each dependency as a constraint for pip: `make test-lowest` installs these."""

import re
import tomllib
from itertools import chain
from pathlib import Path

_BOUND = re.compile(r"(?P<name>[\w-]+)(?:\[[\w,]+\])?>=(?P<version>[\d.]+)")


def lowest(pyproject: Path) -> list[str]:
    """Return `name==version` for each requirement of the package and its extras."""
    project = tomllib.loads(pyproject.read_text())["project"]
    stated = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    # An extra may take another one with it.
    requirements = [each for each in stated if not each.startswith(f"{project['name']}[")]
    bounds = [_BOUND.match(requirement) for requirement in requirements]
    missing = [given for given, bound in zip(requirements, bounds, strict=True) if bound is None]
    if missing:
        raise SystemExit(f"no lower bound: {', '.join(missing)}")
    return [f"{bound['name']}=={bound['version']}" for bound in bounds if bound is not None]


if __name__ == "__main__":
    print("\n".join(lowest(Path(__file__).parent.parent / "pyproject.toml")))
