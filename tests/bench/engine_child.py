"""llama.cpp as the agent starts it, telling what it allocates: `python -m tests.bench.engine_child FLAGS`."""

import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from agent.engines import llamacpp_launcher

if TYPE_CHECKING:
    from xllamacpp import CommonParams

TELLS_ALL = 5
"""llama.cpp's verbosity at which it names its buffers."""
_plain = llamacpp_launcher.to_params


def _telling(flags: Namespace) -> "CommonParams":
    params = _plain(flags)
    params.verbosity = TELLS_ALL
    return params


if __name__ == "__main__":
    llamacpp_launcher.to_params = _telling
    sys.exit(llamacpp_launcher.main())
