"""The command line tool: `finegemm`, or `python -m finegemm`."""

import os
import signal
import sys

from finegemm import _native


def main() -> int:
    for end in (signal.SIGINT, signal.SIGPIPE):  # end the process, as of any tool
        signal.signal(end, signal.SIG_DFL)
    os.environ.setdefault("VIRTUAL_ENV", sys.prefix)  # NVRTC is looked for there
    return _native.tool(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
