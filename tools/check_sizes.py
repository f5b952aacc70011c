#!/usr/bin/env python3
"""Reports source files that have grown too long to read: more than 400 lines is a note, more than
500 fails.

  check_sizes.py [ROOT]
"""

import os
import sys

NOTE, LIMIT = 400, 500
FOLDERS = ("kvgraft", "bench", "examples", "tests", "tools")


def main(argv):
    root = argv[1] if len(argv) > 1 else os.path.join(os.path.dirname(__file__), "..")
    failed = 0
    for folder in FOLDERS:
        for base, _, names in sorted(os.walk(os.path.join(root, folder))):
            for name in sorted(names):
                if not name.endswith((".h", ".cc", ".py", ".sh")):
                    continue
                path = os.path.join(base, name)
                with open(path, "rb") as file:
                    lines = sum(1 for _ in file)
                if lines > NOTE:
                    verdict = "split it" if lines > LIMIT else "consider splitting it"
                    print("%s: %d lines; %s" % (os.path.relpath(path, root), lines, verdict))
                    failed += lines > LIMIT
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
