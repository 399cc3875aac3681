"""Computes elections.json, the frozen test vectors of election keys, without any
of this package's code: python3 elections.py > elections.json. The file may gain
vectors; a vector that is there never changes, because two versions would then
elect two leaders whose guards do not know of each other."""
import hashlib
import json

INT8 = 1 << 64


def vector(classid, objid, objsubid):
    b = b"pglatch election" + b"".join(n.to_bytes(4, "big") for n in (classid, objid, objsubid))
    digest = int.from_bytes(hashlib.sha256(b).digest(), "big")
    guard = digest >> (256 - 64) & (1 << 32) - 1
    return dict(classid=classid, objid=objid, objsubid=objsubid, election=1 << 31 | digest >> (256 - 31), guard=max(guard, 1))


def pair(k1, k2):
    return vector(k1 % (1 << 32), k2 % (1 << 32), 2)


def single(k):
    return vector(k % INT8 >> 32, k % (1 << 32), 1)


VECTORS = [pair(*p) for p in ((1, 100), (100, 1), (1, 42), (0, 0), (-1, -1), (32767, 2147483647), (-2147483648, 7), (1, 29674), (1, 32989))]
VECTORS += [single(k) for k in (0, 1, 100, 1 << 32 | 100, 12345, (1 << 63) - 1, -1, -(1 << 63), 281479271677952)]
print("[\n" + ",\n".join(json.dumps(v) for v in VECTORS) + "\n]")
