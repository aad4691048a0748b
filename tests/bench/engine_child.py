"""llama.cpp as the agent starts it, telling what it allocates: `python -m tests.bench.engine_child FLAGS`."""

import sys

from agent.engines import llamacpp_launcher

TELLS_ALL = 5
"""llama.cpp's verbosity at which it names its buffers."""
_plain = llamacpp_launcher.to_params


def _telling(flags: "llamacpp_launcher.argparse.Namespace") -> "llamacpp_launcher.xllamacpp.CommonParams":
    params = _plain(flags)
    params.verbosity = TELLS_ALL
    return params


if __name__ == "__main__":
    llamacpp_launcher.to_params = _telling
    sys.exit(llamacpp_launcher.main())
