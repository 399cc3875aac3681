"""Computes vectors.json, the frozen test vectors, without any Go code: python3 vectors.py > vectors.json.
Each formula is written here a second time, from the tool's source that docs/reference/keys-of-other-tools.md names. The file may gain
vectors; a vector that is there never changes, because old and new versions would then stop excluding each other."""
import hashlib
import json
import zlib


def crc(text):
    return zlib.crc32(text.encode())


def signed(n, bits):
    n &= (1 << bits) - 1
    return n - (1 << bits) if n >> (bits - 1) else n


def java_hash(text):
    h = 0
    units = text.encode("utf-16-be")
    for i in range(0, len(units), 2):
        h = 31 * h + int.from_bytes(units[i:i + 2], "big")
    return signed(h, 32)


def flyway(schema, table):
    quoted = ".".join('"' + s.replace('"', '""') + '"' for s in (schema, table))
    return (0x46 << 40) + (0x6C << 32) + (0x79 << 24) + (0x77 << 16) + (0x61 << 8) + 0x79 + java_hash(quoted)


def distributed_lock(name):
    if len(name) <= 9 and name.isascii():
        bits = "".join(format(ord(c), "07b") for c in name) + "0" + "1" * (7 * (9 - len(name)))
        n = int(bits, 2)
        return [signed(n >> 32, 32), signed(n, 32)]
    digits = set("0123456789abcdefABCDEF")
    if len(name) == 16 and set(name) <= digits:
        return [signed(int(name, 16), 64)]
    if len(name) == 17 and name[8] == "," and set(name[:8] + name[9:]) <= digits:
        return [signed(int(name[:8], 16), 32), signed(int(name[9:], 16), 32)]
    return [int.from_bytes(hashlib.sha1(name.encode()).digest()[:8], "little", signed=True)]


names = ["shop", "shop_production", "Süßwaren", "", "a" * 63]
vectors = {
    "Goose": [[[], [4097083626]]],
    "Prisma": [[[], [72707369]]],
    "NodePgMigrate": [[[], [7241865325823964]]],
    "PostgresMigrations": [[[], [-8525285245963000605]]],
    "Tern": [[[], [9628173550095224]]],
    "Sqitch": [[[], [75474063]]],
    "GolangMigrate": [[[n], [crc(n) * 1486364155 % (1 << 32)]] for n in names]
    + [[[n, "public", "schema_migrations"], [crc("\0".join(["public", "schema_migrations", n])) * 1486364155 % (1 << 32)]] for n in names + ["/shop"]],
    "Rails": [[[n], [crc(n) * 2053462845]] for n in names],
    "SQLx": [[[n], [crc(n) * 0x3D32AD9E]] for n in names],
    "Flyway": [[[s, t], [flyway(s, t)]] for s, t in
               [("public", "flyway_schema_history"), ("app", "versions"), ('say "x"', "größe😀")]],
    "PgBoss": [[[n, s], [int.from_bytes(hashlib.sha224((n + ".pgboss." + s).encode()).digest()[:8], "big", signed=True)]]
               for n in names for s in ("pgboss", "jobs")],
    "WithAdvisoryLock": [[[n, str(p)], [crc(n) & 0x7FFFFFFF, p & 0x7FFFFFFF]] for n in names for p in (0, 7, -1)],
    "GoodJob": [[[n], [int.from_bytes(hashlib.md5(n.encode()).digest()[:8], "big", signed=True)]]
                for n in names + ["good_jobs-9c2f3a1e-0000-4000-8000-000000000001"]],
    "Symfony": [[[n], [crc(n)]] for n in names],
    "DjangoPglock": [[[n], [int.from_bytes(hashlib.sha256(n.encode()).digest()[:8], "little", signed=True)]] for n in names],
    "DistributedLock": [[[n], distributed_lock(n)] for n in
                        names + ["Hello", "ninechars", "tencharsss", "0123456789abcdef", "ffffffffFFFFFFFF", "00000001,ffffffff", "0000000g,ffffffff", "é"]],
}
print(json.dumps(vectors, ensure_ascii=True, indent=1))
