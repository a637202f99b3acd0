"""``python -m dispatch_inspect`` is ``dispatch-inspect``."""

import sys

from dispatch_inspect.cli import main

if __name__ == "__main__":
    sys.exit(main())
