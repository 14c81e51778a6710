"""python -m soak recurring|endless|kills|rehearse|fuzz|serve|ray [options]: ends in one line, and
in exit code 1 where something was found. `ray` needs the extra [ray]."""

import sys

import holdfast

holdfast.tune_cpu()  # before torch is loaded

import tyro  # noqa: E402

from soak.endless import endless  # noqa: E402
from soak.fuzz import fuzz  # noqa: E402
from soak.kills import kills  # noqa: E402
from soak.ray_serving import ray_serving  # noqa: E402
from soak.recurring import recurring  # noqa: E402
from soak.rehearsing import rehearsing  # noqa: E402
from soak.serving import serving  # noqa: E402

COMMANDS = {
    "recurring": recurring,
    "endless": endless,
    "fuzz": fuzz,
    "kills": kills,
    "ray": ray_serving,
    "rehearse": rehearsing,
    "serve": serving,
}


def main() -> int:
    verdict = tyro.extras.subcommand_cli_from_dict(COMMANDS, prog="python -m soak")
    for failure in verdict.failures:
        print(f"  found: {failure}")
    print(verdict, flush=True)
    return 0 if verdict.passed else 1


if __name__ == "__main__":
    sys.exit(main())
