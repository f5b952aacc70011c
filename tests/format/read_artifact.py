#!/usr/bin/env python3
"""Independent reader of .kvg artifacts, written from docs/format.md alone: standard library only,
no code shared with the C++ reader. Verifies everything that the page asks for and prints one JSON
object, the manifest among it. Exit code 0, 1 if the file cannot be read, 3 if it is refused.

  read_artifact.py FILE
"""

import hashlib
import json
import re
import struct
import sys

MASK = (1 << 64) - 1
P32_1, P32_2, P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
P64_1, P64_2, P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P64_4, P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5

# The default secret of XXH3 (github.com/Cyan4973/xxHash, doc/xxhash_spec.md).
SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)


def u64(data, at):
    return int.from_bytes(data[at : at + 8], "little")


def u32(data, at):
    return int.from_bytes(data[at : at + 4], "little")


def fold(a, b):
    product = a * b
    return (product & MASK) ^ (product >> 64)


def avalanche(h):
    h ^= h >> 37
    h = h * 0x165667919E3779F9 & MASK
    return h ^ h >> 32


def avalanche64(h):
    h ^= h >> 33
    h = h * P64_2 & MASK
    h ^= h >> 29
    h = h * P64_3 & MASK
    return h ^ h >> 32


def rotl(x, n):
    return (x << n | x >> (64 - n)) & MASK


def mix16(data, at, secret_at):
    return fold(
        u64(data, at) ^ u64(SECRET, secret_at), u64(data, at + 8) ^ u64(SECRET, secret_at + 8)
    )


def xxh3_up_to_16(data, n):
    if n == 0:
        return avalanche64(u64(SECRET, 56) ^ u64(SECRET, 64))
    if n <= 3:
        combined = data[0] << 16 | data[n >> 1] << 24 | data[n - 1] | n << 8
        return avalanche64(combined ^ u32(SECRET, 0) ^ u32(SECRET, 4))
    if n <= 8:
        h = u32(data, n - 4) + (u32(data, 0) << 32) ^ u64(SECRET, 8) ^ u64(SECRET, 16)
        h ^= rotl(h, 49) ^ rotl(h, 24)
        h = h * 0x9FB21C651E98DF25 & MASK
        h ^= (h >> 35) + n
        h = h * 0x9FB21C651E98DF25 & MASK
        return h ^ h >> 28
    low = u64(data, 0) ^ u64(SECRET, 24) ^ u64(SECRET, 32)
    high = u64(data, n - 8) ^ u64(SECRET, 40) ^ u64(SECRET, 48)
    swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
    return avalanche((n + swapped + high + fold(low, high)) & MASK)


def xxh3_up_to_240(data, n):
    acc = n * P64_1
    if n <= 128:
        for i in range((n - 1) // 32, -1, -1):
            acc += mix16(data, 16 * i, 32 * i) + mix16(data, n - 16 * (i + 1), 32 * i + 16)
        return avalanche(acc & MASK)
    for i in range(8):
        acc += mix16(data, 16 * i, 16 * i)
    acc = avalanche(acc & MASK)
    for i in range(8, n // 16):
        acc += mix16(data, 16 * i, 16 * (i - 8) + 3)
    return avalanche((acc + mix16(data, n - 16, 136 - 17)) & MASK)


def xxh3(data):
    """XXH3-64 with seed 0 and the default secret."""
    data = bytes(data)
    n = len(data)
    if n <= 16:
        return xxh3_up_to_16(data, n)
    if n <= 240:
        return xxh3_up_to_240(data, n)
    acc = [P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1]

    def accumulate(at, secret_at):
        values = struct.unpack_from("<8Q", data, at)
        keys = struct.unpack_from("<8Q", SECRET, secret_at)
        for i in range(8):
            key = values[i] ^ keys[i]
            acc[i ^ 1] = acc[i ^ 1] + values[i] & MASK
            acc[i] = acc[i] + (key & 0xFFFFFFFF) * (key >> 32) & MASK

    for stripe in range((n - 1) // 64):
        accumulate(64 * stripe, 8 * (stripe % 16))
        if stripe % 16 == 15 and (stripe + 1) * 64 < n:
            for i in range(8):
                acc[i] = (acc[i] ^ acc[i] >> 47 ^ u64(SECRET, 128 + 8 * i)) * P32_1 & MASK
    accumulate(n - 64, 121)
    result = n * P64_1
    for i in range(4):
        a, b = acc[2 * i] ^ u64(SECRET, 11 + 16 * i), acc[2 * i + 1] ^ u64(SECRET, 19 + 16 * i)
        result += fold(a, b)
    return avalanche(result & MASK)


class Refused(Exception):
    """The file is not loaded; the message says why."""


def check(condition, message):
    if not condition:
        raise Refused(message)


MAGIC = b"\x89KVG\r\n\x1a\n"
MANIFEST, TOKENS, POSITIONS, TEXT, IMAGE, PAGES = range(1, 7)
NAMES = {1: "manifest", 2: "tokens", 3: "positions", 4: "text", 5: "image", 6: "pages"}


def align64(x):
    return (x + 63) // 64 * 64


def read_sections(data):
    """Steps 1 to 10: returns {kind: (payload, parameter)} of the known kinds."""
    check(len(data) >= 64, "cut off: less than 64 bytes")
    check(data[:8] != MAGIC[::-1], "unsupported: big-endian")
    check(data[:8] == MAGIC, "not a .kvg artifact")
    version, header_bytes, refuse, _, reserved = struct.unpack_from("<HHIII", data, 8)
    file_bytes, table_at, count, table_sum, head_sum = struct.unpack_from("<5Q", data, 24)
    check(head_sum == xxh3(data[:56]), "header checksum")
    check(version == 1, f"unsupported: written in format version {version}, this reads 1 to 1")
    check(refuse == 0, f"unsupported: refuse bits {refuse:#x}")
    check(header_bytes == 64 and reserved == 0 and table_at == 64, "header fields")
    check(file_bytes == len(data) <= 1 << 46, "file size")
    check(1 <= count <= 4096 and 64 + 64 * count <= len(data), "section count")
    check(table_sum == xxh3(data[64 : 64 + 64 * count]), "section table checksum")
    entries, end = [], 64 + 64 * count
    for i in range(count):
        entry = struct.unpack_from("<IIQQQQI", data, 64 + 64 * i)
        kind, flags, offset, size, checksum, parameter, codec = entry
        check(kind != 0 and flags & ~1 == 0, f"section {i}: kind or flags")
        check(not any(data[64 + 64 * i + 44 : 128 + 64 * i]), f"section {i}: reserved bytes")
        check(offset == align64(end) and size <= len(data) - offset, f"section {i}: place")
        check(kind in NAMES or not flags & 1, f"unsupported: required section of kind {kind}")
        check(kind not in NAMES or codec == 0, f"unsupported: codec {codec}")
        entries.append((end, *entry))
        end = offset + size
    check(end == len(data), "the file does not end with its last section")
    sections = {}
    for previous_end, kind, _, offset, size, checksum, parameter, _ in entries:
        check(not any(data[previous_end:offset]), "padding")
        payload = data[offset : offset + size]
        check(checksum == (0 if kind == IMAGE else xxh3(payload)), f"checksum of kind {kind}")
        if kind in NAMES:
            check(kind not in sections, f"more than one {NAMES[kind]}")
            check(kind == PAGES or parameter == 0, f"parameter of {NAMES[kind]}")
            sections[kind] = (payload, parameter)
    for kind in (MANIFEST, TOKENS, IMAGE, PAGES):
        check(kind in sections, f"no {NAMES[kind]}")
    return sections


def unique(pairs):
    names = [name for name, _ in pairs]
    check(len(set(names)) == len(names), "manifest: a member twice")
    return dict(pairs)


def no_constant(name):
    raise Refused(f"manifest: {name} is not JSON")


def integer(text):
    return int(text) if text != "-0" else -0.0  # an integer has no sign


def depth(value):
    if isinstance(value, (dict, list)):
        return 1 + max(map(depth, value.values() if isinstance(value, dict) else value), default=0)
    return 0


def is_integer(limit):
    return lambda v: type(v) is int and 0 <= v < limit


def matches(pattern):
    return lambda v: type(v) is str and re.fullmatch(pattern, v) is not None


WORD = matches("[a-z-]{1,32}")
HASH = matches("[0-9a-f]{64}")
HASH_OR_EMPTY = matches("([0-9a-f]{64})?")
TIME = matches("([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z)?")
STRING = matches("(?s:.*)")
FIELD_NAME = matches("[a-z0-9_.]{1,64}")
OBJECT = lambda v: type(v) is dict
TOKEN, COUNT = is_integer(1 << 31), is_integer(1 << 32)


def is_suffix(v):
    return type(v) is list and len(v) <= 64 and all(map(TOKEN, v))


def is_tail_loss(v):
    return type(v) is list and len(v) <= 64 and all(map(is_integer(1 << 53), v))


def is_fields(v):
    return (
        OBJECT(v)
        and len(v) <= 1024
        and all(map(FIELD_NAME, v))
        and all(
            matches("[^\x00-\x1f\x7f]*")(value) and len(value.encode()) <= 4096
            for value in v.values()
        )
    )


# member: (rule, required)
MEMBERS = {
    "id": (HASH, True),
    "name": (STRING, False),
    "tier": (WORD, True),
    "identity": (OBJECT, True),
    "n_tokens": (is_integer((64 << 20) + 1), True),
    "n_image_tokens": (is_integer((64 << 20) + 1), True),
    "schedule": (OBJECT, True),
    "probe": (OBJECT, False),
    "parent": (HASH_OR_EMPTY, False),
    "model_name": (STRING, False),
    "created": (TIME, False),
    "producer": (STRING, False),
    "prompt_kind": (WORD, False),
    "prompt_suffix": (STRING, False),
    "prefill_us": (is_integer(1 << 53), False),
    "tail_loss": (is_tail_loss, False),
}
IDENTITY = {"compat": (is_fields, True), "build": (is_fields, True)}
SCHEDULE = {
    "kind": (WORD, True),
    "row_quantum": (COUNT, True),
    "attention": (WORD, True),
    "n_ubatch": (COUNT, True),
    "verified": (lambda v: type(v) is bool, True),
}
PROBE = {
    "suffix": (is_suffix, True),
    "padded_sha256": (HASH_OR_EMPTY, True),
    "single_token": (TOKEN, True),
    "single_sha256": (HASH_OR_EMPTY, True),
    "single_threads": (COUNT, True),
}


def check_members(value, members, where):
    for name, (rule, required) in members.items():
        check(name in value or not required, f"manifest: {where}{name} is missing")
        check(name not in value or rule(value[name]), f"manifest: {where}{name} is not valid")


def read_manifest(payload):
    check(len(payload) <= 4 << 20, "manifest: too large")
    try:
        text = bytes(payload).decode("utf-8")
        manifest = json.loads(
            text, object_pairs_hook=unique, parse_constant=no_constant, parse_int=integer
        )
        json.dumps(manifest, ensure_ascii=False).encode()  # half a surrogate pair fails here
    except (ValueError, RecursionError) as error:
        raise Refused(f"manifest: {error}") from error
    check(OBJECT(manifest) and depth(manifest) <= 8, "manifest: not an object, or nested too deep")
    check_members(manifest, MEMBERS, "")
    check_members(manifest["identity"], IDENTITY, "identity.")
    check_members(manifest["schedule"], SCHEDULE, "schedule.")
    if "probe" in manifest:
        check_members(manifest["probe"], PROBE, "probe.")
    check(manifest["n_image_tokens"] <= manifest["n_tokens"], "manifest: n_image_tokens")
    check(len(manifest.get("tail_loss", [])) <= manifest["n_tokens"], "manifest: tail_loss")
    return manifest


def read_i32(payload, name):
    check(len(payload) % 4 == 0 and len(payload) <= 4 * (64 << 20), f"{name}: size")
    values = struct.unpack(f"<{len(payload) // 4}i", payload)
    check(all(v >= 0 for v in values), f"{name}: a negative value")
    return values


def content_id(manifest, tokens, positions, image):
    """Section 6 of the page."""
    out = [b"kvgraft-state-1\n"]
    compat = sorted((k.encode(), v.encode()) for k, v in manifest["identity"]["compat"].items())
    out.append(struct.pack("<Q", len(compat)))
    for pair in compat:
        for part in pair:
            out += [struct.pack("<Q", len(part)), part]
    for values in (tokens, positions):
        out += [struct.pack("<Q", len(values)), struct.pack(f"<{len(values)}i", *values)]
    out += [struct.pack("<Q", len(image)), image]
    return hashlib.sha256(b"".join(out)).hexdigest()


def read(data):
    sections = read_sections(data)
    image, (pages, page) = sections[IMAGE][0], sections[PAGES]
    text = sections.get(TEXT, (b"", 0))[0]
    check(len(text) <= 1 << 30, "text: too large")
    check(4096 <= page <= 64 << 20 and page & (page - 1) == 0, "pages: page size")
    check(len(image) > 0 and len(pages) == 8 * -(-len(image) // page), "pages: count")
    manifest = read_manifest(sections[MANIFEST][0])
    tokens = read_i32(sections[TOKENS][0], "tokens")
    check(len(tokens) == manifest["n_tokens"], "tokens: count")
    positions = tuple(range(manifest["n_image_tokens"]))
    if POSITIONS in sections:
        positions = read_i32(sections[POSITIONS][0], "positions")
        check(len(positions) == manifest["n_image_tokens"], "positions: count")
    for i in range(len(pages) // 8):
        check(u64(pages, 8 * i) == xxh3(image[i * page : (i + 1) * page]), f"image: page {i}")
    check(content_id(manifest, tokens, positions, image) == manifest["id"], "content identity")
    return {
        "manifest": manifest,
        "tokens": list(tokens),
        "positions": list(positions),
        "text_sha256": hashlib.sha256(text).hexdigest(),
        "image_sha256": hashlib.sha256(image).hexdigest(),
        "image_bytes": len(image),
        "pages": len(pages) // 8,
        "page_bytes": page,
        "file_bytes": len(data),
    }


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        with open(sys.argv[1], "rb") as file:
            result = read(file.read())
    except OSError as error:
        print(f"read_artifact: {error}", file=sys.stderr)
        return 1
    except Refused as error:
        print(f"read_artifact: {sys.argv[1]}: {error}", file=sys.stderr)
        return 3
    print(json.dumps(result, sort_keys=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
