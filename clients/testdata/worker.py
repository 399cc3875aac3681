"""Does with pglatch.py what a test says, line by line, or works on locks and writes down each call."""

import json
import pathlib
import random
import re
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

    def _alone(self, call):
        self.local.sendings = call.sendings
        return super()._alone(call)

    def _together(self, group):
        self.local.sendings = 0
        return super()._together(group)

    def _exchange(self, base, target, data, timeout):
        self.local.sendings += 1
        if config["control"] == "another key" and self.local.sendings > 1:
            data = re.sub(rb'"idempotency_key": "', b'"idempotency_key": "%d-' % self.local.sendings, data)
        return super()._exchange(base, target, data, timeout)


class Recorded(Spoilt):
    """Writes each call down before it is sent and when it is answered."""

    calls, number = 0, threading.Lock()

    def _alone(self, call):
        self.record([call], super()._alone, call)

    def _together(self, group):
        self.record(group, super()._together, group)

    def record(self, calls, send, argument):
        calls = [call for call in calls if not hasattr(call, "op")]  # others are those of a batch
        for call in calls:
            with self.number:
                Recorded.calls += 1
                call.op = {
                    "call": self.calls, "op": call.verb, "lock": call.name, "owner_id": call.body["owner_id"], "lease_id": call.body.get("lease_id", ""),
                    "fencing_token": call.body.get("fencing_token", 0), "idempotency_key": call.body.get("idempotency_key", "") if call.verb == "acquire" else "",
                    "began_ns": time.monotonic_ns(),
                }
            emit(call.op)
        try:
            send(argument)
        finally:
            for call in calls:
                self.answered(call, call.result)

    def answered(self, call, result):
        op = call.op
        if isinstance(result, tuple):
            op |= {key: result[0][key] for key in ("lease_id", "fencing_token", "acquired_at", "expires_at", "ttl_remaining_ms") if key in result[0]}
            left = self._deadline(*result) - pglatch.now()
            op |= {"outcome": "ok", "trusted_until_ns": time.monotonic_ns() + int(left * 1e9) if call.verb != "release" else 0}
        elif isinstance(result, pglatch.Problem):
            op |= {"outcome": result.problem.get("type", "").removeprefix(pglatch.TYPES), "held_by": result.owner}
        emit(op | {"ended_ns": time.monotonic_ns(), "sendings": call.sendings})


def client(kind):
    return kind(config["bases"], token=config["token"], timeout=config["timeout"] / 1000, ttl=config["ttl"] / 1000,
                margin=None if config["margin"] == 0 else config["margin"] / 1000)


def turn(c, owner):
    names, ttl = [f"job-{int(time.monotonic() * 2)}-{i}" for i in range(2)], random.uniform(0.3, 0.6)
    if random.randrange(2):
        return together(c, owner, names, ttl)
    lease = c.acquire(random.choice(names), wait=random.choice((0, 1)), ttl=ttl, owner=owner)
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


def together(c, owner, names, ttl):
    leases = [r for r in c.acquire_all(names, ttl=ttl, owner=owner) if isinstance(r, pglatch.Lease)]
    if random.randrange(2):
        c.renew_all(leases)
    if random.randrange(4):
        c.release_all(leases)
    if not leases:
        time.sleep(0.01)


def load(c, owner):
    while True:
        try:
            turn(c, owner)
        except pglatch.Error:
            time.sleep(0.01)


def share(c, owner):
    """Has shares of a lock again and again, and writes down what it may rely on."""
    while True:
        mode = config["share"]["mode"] or random.choice(("shared", "shared", "exclusive"))
        terms = {"slots": config["share"]["slots"]} if config["share"]["slots"] else {"mode": mode}
        asked = time.monotonic_ns()
        try:
            lease = c.acquire("shared", wait=10, ttl=0.4, owner=owner, **terms)
        except pglatch.Error:
            time.sleep(0.01)
            continue
        hold = {"owner": lease.owner, "id": lease.id, "slot": lease.slot, "fence": lease.fence, "asked_ns": asked, "got_ns": time.monotonic_ns(),
                "end_ns": time.monotonic_ns() + int(lease.remaining() * 1e9)}
        emit(hold)
        time.sleep(random.uniform(0, 0.02))
        if random.randrange(8):
            emit(hold | {"end_ns": min(hold["end_ns"], time.monotonic_ns())})
            try:
                lease.release()
            except pglatch.Error:
                pass


def told(result):
    if isinstance(result, pglatch.Error):
        return {"error": type(result).__name__, "owner": getattr(result, "owner", "")}
    return {"token": str(result.token), "id": result.id, "remaining": int(result.remaining() * 1000), "name": result.name, "owner": result.owner,
            "share_of": result.share_of or "", "slot": result.slot, "fence": str(result.fence or 0)}


def obey():
    c, leases = client(Spoilt), {}
    for line in sys.stdin:
        k = json.loads(line)
        lease, results = leases.get(k["as"]), None
        many = [leases[name] for name in k["names"] or [] if name in leases]
        try:
            match k["do"]:
                case "acquire":
                    lease = leases[k["as"]] = c.acquire(k["name"], wait=k["wait"] / 1000, owner=k["as"], slots=k.get("slots"), mode=k.get("mode"))
                case "adopt":
                    lease = leases[k["as"]] = c.adopt(k["name"], k["owner"], k.get("id", ""))
                case "renew":
                    c.renew(lease)
                case "heartbeat":
                    lease.heartbeat(k["wait"] / 1000 or None)
                case "lost":
                    lease.lost.wait()
                case "check":
                    lease.check()
                case "release":
                    lease.release()
                case "acquire all":
                    results = c.acquire_all(k["names"], owner=k["as"], slots=k.get("slots"), mode=k.get("mode"))
                    leases |= {name: r for name, r in zip(k["names"], results) if isinstance(r, pglatch.Lease)}
                case "renew all":
                    results = c.renew_all(many)
                case "release all":
                    results = c.release_all(many)
                case "heartbeat all":
                    for one in many:
                        one.heartbeat(k["wait"] / 1000 or None)
                    results = many
                case "tell all":
                    results = many
            emit(told(lease) if results is None else {"results": [told(r) for r in results]})
        except (pglatch.Error, ValueError, TypeError) as e:
            emit(told(e) if isinstance(e, pglatch.Error) else {"error": type(e).__name__})


if config["load"]:
    work = share if config["share"] else load
    shared = client(Spoilt if config["share"] else Recorded)
    for i in range(3):
        threading.Thread(target=work, args=(shared, f"{config['load']}-{i}"), daemon=True).start()
    sys.stdin.read()
else:
    try:
        obey()
    except ValueError as e:
        emit({"error": type(e).__name__})
