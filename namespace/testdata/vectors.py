"""Computes vectors.json, the frozen test vectors, without any of this package's
code: python3 vectors.py > vectors.json. The file may gain vectors; a vector that
is there never changes, because programs of different versions would then stop
excluding each other."""
import hashlib
import json
import re

INT4, INT8 = 1 << 31, 1 << 63
UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
DECIMAL = re.compile(r"0|-?[1-9][0-9]*")


def hashed(number, name, entity, role=""):
    n, e = name.encode(), entity.encode()
    if role:
        e += b"\x00" + role.encode()
    return number << 48 | int.from_bytes(hashlib.sha256(len(n).to_bytes(4, "big") + n + e).digest()[:6], "big")


def key(number, name, entity):
    """The pg_locks columns, and the entity as it is hashed and printed."""
    if DECIMAL.fullmatch(entity) and -INT8 <= int(entity) < INT8:
        if -INT4 <= int(entity) < INT4:
            return (number, int(entity) % (1 << 32), 2), entity
    elif UUID.fullmatch(entity):
        entity = entity.lower()
    return single(hashed(number, name, entity)), entity


def single(k):
    return k >> 32, k & 0xFFFFFFFF, 1


def vector(number, name, entity, role=""):
    columns, shown = key(number, name, entity)
    if role:
        columns = single(hashed(number, name, shown, role))
    v = dict(number=number, name=name, entity=entity, shown=shown)
    if role:
        v["role"] = role
    return v | dict(zip(("classid", "objid", "objsubid"), columns))


AGENT = (1, "agent")
ENTITIES = [
    "0", "1", "-1", "42", "-42",
    str(INT4 - 1), str(INT4), str(-INT4), str(-INT4 - 1), str(2 * INT4 - 1), str(2 * INT4),
    str(INT8 - 1), str(-INT8), str(INT8), str(-INT8 - 1),
    "007", "-0", "+1", "1.0", " 1", "1 ", "1e3", "٤٢",
    "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "6BA7B810-9DAD-11D1-80B4-00C04FD430C8",
    "6ba7b8109dad11d180b400c04fd430c8", "{6ba7b810-9dad-11d1-80b4-00c04fd430c8}",
    "00000000-0000-0000-0000-000000000000", "6ba7b810-9dad-11d1-80b4-00c04fd430cg",
    "acme/eu", "Acme/EU", "a", "/", "@5", "1:2", "agent/42", "42#slot0", "tab\tline\n",
    "café", "cafe\u0301", "日本語", "🔒", "x" * 1000,
]
VECTORS = [vector(*AGENT, e) for e in ENTITIES]
VECTORS += [
    vector(number, name, entity)
    for number, name in [(2, "agent"), (1, "agents"), (32767, "z"), (300, "Order_item-2.x"), (7, "n" * 63)]
    for entity in ("42", str(INT4), "acme/eu")
]
VECTORS += [
    vector(*AGENT, entity, role)
    for entity in ("42", str(INT4), "acme/eu", "6BA7B810-9DAD-11D1-80B4-00C04FD430C8")
    for role in ("slot0", "slot1", "slot10", "slot999", "turnstile")
]
print("[\n" + ",\n".join(json.dumps(v, ensure_ascii=False) for v in VECTORS) + "\n]")
