"""Does with pglatch.py what a test says, line by line, or works on locks and writes down each call."""

import json
import pathlib
import random
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
sys.dont_write_bytecode = True
import pglatch

config = json.loads(sys.argv[1])
output = threading.Lock()


def emit(value):
    with output:
        sys.stdout.write(json.dumps(value) + "\n")
        sys.stdout.flush()


class Spoilt(pglatch.Client):
    """Does wrong what the test says."""

    local = threading.local()  # sendings of the call

    def _deadline(self, answer, sent):
        return super()._deadline(answer, sent) + (3600 if config["control"] == "no deadline" else 0)

    def _call(self, *args, **options):
        self.local.sendings = 0
        return super()._call(*args, **options)

    def _exchange(self, base, target, data, timeout):
        self.local.sendings += 1
        if config["control"] == "another key" and self.local.sendings > 1 and b"idempotency_key" in data:
            body = json.loads(data)
            data = json.dumps(body | {"idempotency_key": body["idempotency_key"] + str(self.local.sendings)}).encode()
        return super()._exchange(base, target, data, timeout)


class Recorded(Spoilt):
    """Writes each call down before it is sent and when it is answered."""

    calls, number = 0, threading.Lock()

    def _call(self, verb, name, body, wait=0.0, until=None):
        with self.number:
            Recorded.calls += 1
            op = {"call": self.calls, "op": verb, "lock": name, "owner_id": body["owner_id"], "lease_id": body.get("lease_id", ""),
                  "fencing_token": body.get("fencing_token", 0), "idempotency_key": body.get("idempotency_key", "") if verb == "acquire" else ""}
        op["began_ns"] = time.monotonic_ns()
        emit(op)
        try:
            answer, sent = super()._call(verb, name, body, wait, until)
            op |= {key: answer[key] for key in ("lease_id", "fencing_token", "acquired_at", "expires_at", "ttl_remaining_ms") if key in answer}
            left = self._deadline(answer, sent) - pglatch.now()
            op |= {"outcome": "ok", "trusted_until_ns": time.monotonic_ns() + int(left * 1e9) if verb != "release" else 0}
            return answer, sent
        except pglatch.Problem as e:
            op |= {"outcome": e.problem["type"].removeprefix(pglatch.TYPES), "held_by": e.owner}
            raise
        finally:
            emit(op | {"ended_ns": time.monotonic_ns(), "sendings": self.local.sendings})


def client(kind):
    return kind(config["bases"], token=config["token"], timeout=config["timeout"] / 1000, ttl=config["ttl"] / 1000,
                margin=None if config["margin"] == 0 else config["margin"] / 1000)


def turn(c, owner):
    name, ttl = f"job-{int(time.monotonic() * 2)}-{random.randrange(2)}", random.uniform(0.3, 0.6)
    lease = c.acquire(name, wait=random.choice((0, 1)), ttl=ttl, owner=owner)
    match random.randrange(4):
        case 0:
            lease.heartbeat()
            lease.lost.wait(1.5 * ttl)
            lease.check()
        case 1:
            c.renew(lease)
        case 2:
            return  # leaves it to expire
    lease.release()
    lease.release()


def load(c, owner):
    while True:
        try:
            turn(c, owner)
        except pglatch.Error:
            time.sleep(0.01)


def told(lease):
    return {"token": str(lease.token), "id": lease.id, "remaining": int(lease.remaining() * 1000)}


def obey():
    c, leases = client(Spoilt), {}
    for line in sys.stdin:
        k = json.loads(line)
        lease = leases.get(k.get("as"))
        try:
            match k["do"]:
                case "acquire":
                    lease = leases[k["as"]] = c.acquire(k["name"], wait=k["wait"] / 1000, owner=k["as"])
                case "renew":
                    c.renew(lease)
                case "heartbeat":
                    lease.heartbeat(k["wait"] / 1000)
                case "lost":
                    lease.lost.wait()
                case "check":
                    lease.check()
                case "release":
                    lease.release()
            emit(told(lease))
        except (pglatch.Error, ValueError) as e:
            emit({"error": type(e).__name__, "owner": getattr(e, "owner", "")})


if config["load"]:
    shared = client(Recorded)
    for i in range(3):
        threading.Thread(target=load, args=(shared, f"{config['load']}-{i}"), daemon=True).start()
    sys.stdin.read()
else:
    try:
        obey()
    except ValueError as e:
        emit({"error": type(e).__name__})
