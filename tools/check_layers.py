#!/usr/bin/env python3
"""Holds every #include of kvgraft/<module>/ against layers.txt.

  check_layers.py [ROOT]     exit 0: clean, 1: violations (one a line), 2: layers.txt itself is wrong

A module includes only itself and what its line names; a line names only modules above it, so the
order proves that there is no cycle. Only engine_llama includes the engine's headers, and math those
of its tensor library. Tests
(x_test.cc) obey the same rules. A module folder without a line, and an include that is not written
as "kvgraft/<module>/<file>", are violations too.
"""

import os
import re
import sys

ENGINE_MODULE = "engine_llama"
ENGINE_HEADER = re.compile(r"^(llama|ggml|gguf)[a-z-]*\.h$")
TENSOR_MODULE = "math"
TENSOR_HEADER = re.compile(r"^ggml[a-z-]*\.h$")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^">]+)[">]')


def read_layers(path):
    """{module: set of modules that it may include}; raises ValueError when a line looks ahead."""
    layers = {}
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            line = line.split("#")[0].strip()
            if not line:
                continue
            match = re.fullmatch(r"([a-z_]+):\s*([a-z_ ]*)", line)
            if not match:
                raise ValueError("%s:%d: not 'module: names'" % (path, number))
            module, uses = match.group(1), match.group(2).split()
            if module in layers:
                raise ValueError("%s:%d: %s has a line already" % (path, number, module))
            for name in uses:
                if name not in layers:
                    raise ValueError("%s:%d: %s uses %s, which is not above it"
                                     % (path, number, module, name))
            layers[module] = set(uses)
    return layers


def sources(root):
    top = os.path.join(root, "kvgraft")
    for base, folders, names in sorted(os.walk(top)):
        folders.sort()
        for name in sorted(names):
            if name.endswith((".h", ".cc")):
                path = os.path.join(base, name)
                yield path, os.path.relpath(path, top).split(os.sep)[0]


def check_include(module, quote, target, layers):
    """What is wrong with the include, or None."""
    if ENGINE_HEADER.match(os.path.basename(target)):
        if module == TENSOR_MODULE and TENSOR_HEADER.match(os.path.basename(target)):
            return None
        if module != ENGINE_MODULE:
            return "only %s may include the engine's %s" % (ENGINE_MODULE, target)
        return None
    parts = target.split("/")
    if parts[0] == "kvgraft" and len(parts) > 2:
        used = parts[1]
        if used != module and used not in layers[module]:
            return "%s may not include %s (layers.txt)" % (module, used)
    elif quote == '"':
        return 'write "%s" as "kvgraft/<module>/<file>"' % target
    return None


def check(root):
    layers = read_layers(os.path.join(root, "layers.txt"))
    problems, n_files = [], 0
    for path, module in sources(root):
        n_files += 1
        where = os.path.relpath(path, root)
        if module not in layers:
            problems.append("%s: module %s has no line in layers.txt" % (where, module))
            continue
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                match = INCLUDE.match(line)
                problem = match and check_include(module, match.group(1), match.group(2), layers)
                if problem:
                    problems.append("%s:%d: %s" % (where, number, problem))
    return problems, n_files


def main(argv):
    root = argv[1] if len(argv) > 1 else os.path.join(os.path.dirname(__file__), "..")
    try:
        problems, n_files = check(root)
    except (OSError, ValueError) as error:
        print("check_layers: %s" % error, file=sys.stderr)
        return 2
    for problem in problems:
        print(problem)
    if not n_files:
        print("check_layers: no sources under %s/kvgraft" % root, file=sys.stderr)
        return 2
    if not problems:
        print("check_layers: %d files, clean" % n_files)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
