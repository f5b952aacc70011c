#!/usr/bin/env python3
"""Turns a folder that `pip install --target` filled with llama-cpp-python into a CMake prefix.

  tidy_engine.py FOLDER

Keeps include/, lib/ and the licence; drops the Python part. Wheels cannot hold links, so each
library lies there under three names: the shorter ones become links again. llama.pc gets a prefix
that moves with the folder in place of the folder that it was built in.
"""

import filecmp
import glob
import os
import re
import shutil
import sys


def drop_python(folder):
    licences = os.path.join(folder, "share", "licenses", "llama-cpp-python")
    for found in glob.glob(os.path.join(folder, "*.dist-info", "licenses", "*")):
        os.makedirs(licences, exist_ok=True)
        shutil.copy(found, licences)
    for name in os.listdir(folder):
        if name not in ("include", "lib", "share"):
            path = os.path.join(folder, name)
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)


def link_copies(lib):
    for name in glob.glob(os.path.join(lib, "libllama-common*")):
        os.unlink(name)
    names = sorted((name for name in os.listdir(lib) if re.search(r"\.(so|dylib)\b", name)),
                   key=len, reverse=True)
    kept = []
    for name in names:
        path = os.path.join(lib, name)
        twin = next((other for other in kept if other.startswith(re.split(r"\.(?:\d|so|dylib)", name)[0] + ".")
                     and filecmp.cmp(os.path.join(lib, other), path, shallow=False)), None)
        if twin:
            os.unlink(path)
            os.symlink(twin, path)
        else:
            kept.append(name)


def fix_pkgconfig(lib):
    for path in glob.glob(os.path.join(lib, "pkgconfig", "*.pc")):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        old = re.search(r"^prefix=(.*)$", text, re.MULTILINE)
        if old:
            text = text.replace(old.group(1), "${prefix}")
            text = text.replace("prefix=${prefix}", "prefix=${pcfiledir}/../..", 1)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)


def main(argv):
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    folder = argv[1]
    lib = os.path.join(folder, "lib")
    if not os.path.isfile(os.path.join(lib, "cmake", "llama", "llama-config.cmake")):
        print("tidy_engine: no lib/cmake/llama/llama-config.cmake in %s" % folder, file=sys.stderr)
        return 1
    drop_python(folder)
    link_copies(lib)
    fix_pkgconfig(lib)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
