"""Client of a pglatch lock server: fenced leases over HTTP. README.md says what it guarantees.

Python 3.11 or later, and nothing but its standard library. Times are in seconds. All methods are safe for threads.
"""

import collections
import contextlib
import http.client
import ipaddress
import json
import logging
import os
import random
import secrets
import socket
import ssl
import threading
import time
from urllib.parse import quote, urlsplit

TYPES = "https://github.com/pglatch/pglatch/problems/"
MAX_ANSWER = 32 << 20
LONG_POLL = 20.0
MAX_BATCH, MAX_BATCH_BODY = 1000, 192 << 10  # operations and bytes of a batch; a server takes 256 KiB by default
PLAIN_FOR = 60.0  # for how long a server that took no batch gets plain requests
log = logging.getLogger("pglatch")

# The clock of deadlines. CLOCK_MONOTONIC stands still while a machine is suspended; the store's clock goes on.
if hasattr(time, "CLOCK_BOOTTIME"):
    def now():
        return time.clock_gettime(time.CLOCK_BOOTTIME)
else:
    now = time.monotonic


class Error(Exception): """All errors of this module."""
class OutcomeUnknown(Error): """No answer came that says what happened: the request may have been carried out."""
class Unavailable(Error): """No server took the request, or a request that only reads got no answer. Nothing was done."""
class Lost(Error): """The lease can no longer be trusted. The cause says why."""


class Problem(Error):
    """The server refused; nothing was done. `problem` is its answer, of RFC 9457."""

    def __init__(self, problem):
        super().__init__(problem.get("detail") or problem.get("title") or "refused")
        self.problem = problem
        self.owner = problem.get("owner_id", "")  # who holds the lock
        self.retry = problem.get("recommended_retry_ms", 100) / 1000


class Held(Problem): """Somebody else has the lock, or a delay keeps it."""
class Stale(Problem): """The claim is not the current one."""
class Expired(Problem): """The lease expired."""
class NotFound(Problem): """Nothing is known of the lock."""
class Invalid(Problem): """The request is not as it must be."""
class Busy(Problem): """Try again."""
class NotReady(Problem): """The server's store has to be set up."""
class Denied(Problem): """The server wants another token, or does not allow the request."""


KINDS = {
    "lock-held": Held, "lease-stale": Stale, "lease-expired": Expired, "lock-not-found": NotFound, "lock-busy-retry": Busy, "rate-limited": Busy,
    "store-not-ready": NotReady, "unauthorized": Denied, "forbidden": Denied, "invalid-request": Invalid, "out-of-range": Invalid,
    "body-too-large": Invalid, "unsupported-media-type": Invalid, "no-such-route": Invalid, "method-not-allowed": Invalid,
}
UNTRIED = (401, 403, 429, 503)  # another server may answer otherwise
OF_LEASE = (Held, Stale, Expired, NotFound)  # any other answer says nothing of an earlier sending


class Client:
    """Asks lock servers for leases: `base_urls` is one URL, or several of servers before one store, of which another is asked when one fails."""

    def __init__(self, base_urls, *, token=None, owner=None, ttl=15.0, margin=None, timeout=10.0, resends=3, ssl_context=None, allow_insecure=False):
        self._bases = [urlsplit(u.rstrip("/")) for u in ([base_urls] if isinstance(base_urls, str) else base_urls)]
        if not self._bases or any(b.scheme not in ("http", "https") or not b.hostname or b.query or b.username for b in self._bases):
            raise ValueError("base_urls: use one or more such as http://127.0.0.1:8080")
        if token and not allow_insecure and any(b.scheme == "http" and not _is_loopback(b.hostname) for b in self._bases):
            raise ValueError("token would be sent in the clear: use https, or set allow_insecure")
        self.owner = owner or f"{socket.gethostname()[:64]}-{os.getpid()}-{secrets.token_hex(4)}"
        self.ttl, self.timeout, self.resends = ttl, timeout, resends
        self.margin = margin  # kept free at the end of each lease; None = a tenth of it
        self._ssl = ssl_context or ssl.create_default_context()
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": "Bearer " + token} if token else {})
        self._current = 0  # index of the base that is asked
        self._plain = {}  # until when a base gets no batches
        self._idle, self._mutex = [], threading.Lock()  # connections to bases, by index
        self._due = {}  # of leases whose heartbeats wait: when, and how much earlier they may be renewed

    def acquire(self, name, *, wait=30.0, ttl=None, owner=None, idempotency_key=None, slots=None, mode=None, **options):
        """Acquires a lease, and waits for it for `wait` at most, also while no server can be reached. Held, or why not, after that.

        With `slots`, it is one of that many slots of the lock. With mode "shared", any number hold the lock; with "exclusive", one holds all of it.
        `options` are metadata, lock_delay_ms, min_hold_ms and max_lifetime_ms of the API. `with` renews and releases the lease.
        """
        body = self._terms(ttl, owner, idempotency_key, options | {"slots": slots, "mode": mode})
        end, attempt, unknown = now() + wait, 0, None  # the last: of an earlier request, which can have been granted
        while True:
            poll, asked = min(max(end - now(), 0), LONG_POLL), now()
            try:
                answer, sent = self._call("acquire", name, body, wait=poll, until=end + self.timeout)
                return Lease(self, answer, ttl or self.ttl, self._deadline(answer, sent))
            except Held as e:
                error, pause, unknown = e, max(e.retry - (now() - asked), 0) if poll else e.retry, None  # unless the server cut the wait short
            except (Invalid, Denied) as e:
                raise unknown or e
            except Problem as e:
                error, pause = unknown or e, e.retry
            except (OutcomeUnknown, Unavailable) as e:
                if isinstance(e, Unavailable) and not attempt:
                    log.warning("%s: trying again for %.0f s", e, max(end - now(), 0))
                error = unknown = e if isinstance(e, OutcomeUnknown) else unknown
                error = error or e
                pause = min(0.1 * 2 ** min(attempt, 4), 1) * random.uniform(0.5, 1.5)
            attempt += 1
            if now() + pause >= end:
                raise error
            time.sleep(pause)

    def try_acquire(self, name, **options):
        """Asks once. Held if somebody else has the lock."""
        return self.acquire(name, wait=0.0, **options)

    def acquire_all(self, names, *, ttl=None, owner=None, idempotency_key=None, **options):
        """Asks once for each of many locks, in as few requests as hold them. Returns, for each name in order, a Lease or the Error that
        try_acquire would raise. The options are those of acquire, and the same for all. Without an idempotency_key, each gets its own."""
        if isinstance(names, str):
            raise TypeError("names: give a list of names; for one lock, use try_acquire")
        until = now() + self.timeout
        calls = [_Call("acquire", name, self._terms(ttl, owner, idempotency_key, options), until=until) for name in names]
        return [r if isinstance(r, Error) else Lease(self, r[0], ttl or self.ttl, self._deadline(*r)) for r in self._call_all(calls)]

    def adopt(self, name, owner, id, *, ttl=None):
        """Takes over a lease that this program had before a restart, by the name, owner and id of its Lease. Stale, Expired or NotFound if
        it is over. This does not prolong the lease: renew it, or start its heartbeat. The earlier process must have ended."""
        answer, sent = self._call("adopt", name, {"owner_id": owner, "lease_id": id})
        return Lease(self, answer, ttl or self.ttl, self._deadline(answer, sent))

    def renew(self, lease, ttl=None, until=None):
        """Prolongs a lease to `ttl` from now; never shortens it."""
        answer, sent = self._call("renew", lease.name, lease.claim | {"ttl_ms": int((ttl or lease.ttl) * 1000)}, until=until)
        lease._renewed(self._deadline(answer, sent))

    def renew_all(self, leases, ttl=None):
        """Renews many leases, in as few requests as hold them. Returns, for each in order, the Lease or the Error that renew would raise."""
        leases, calls = _leases(leases), []
        for lease in leases:
            until = now() + min(lease.remaining() or self.timeout, self.timeout)
            calls.append(_Call("renew", lease.name, lease.claim | {"ttl_ms": int((ttl or lease.ttl) * 1000)}, until=until))
        results = self._call_all(calls)
        for i, result in enumerate(results):
            if not isinstance(result, Error):
                leases[i]._renewed(self._deadline(*result))
                results[i] = leases[i]
        return results

    def release_all(self, leases):
        """Releases many leases, in as few requests as hold them. Returns, for each in order, the Lease or the Error that release would raise."""
        leases, until = _leases(leases), now() + self.timeout
        first = [lease for lease in leases if lease._begin_release()]  # others are released already, or by another thread
        calls = [_Call("release", lease.name, lease.claim | {"idempotency_key": secrets.token_hex(16)}, until=until) for lease in first]
        try:
            self._call_all(calls)
        finally:
            for lease, call in zip(first, calls):
                lease._end_release(call.result or OutcomeUnknown(f"release {lease.name}: outcome unknown: it was interrupted"))
        return [lease._released() or lease for lease in leases]

    def get(self, name):
        """What is known of a lock, as the API answers it."""
        return self._call("", name, None)[0]

    def _terms(self, ttl, owner, key, options):
        """The body of an acquire."""
        terms = {"owner_id": owner or self.owner, "ttl_ms": int((ttl or self.ttl) * 1000), "idempotency_key": key or secrets.token_hex(16)}
        return terms | {key: value for key, value in options.items() if value is not None}

    def _deadline(self, answer, sent):
        """Until when a lease is trusted: counted from before the request was sent, because the store cannot have counted from an earlier moment."""
        remaining = answer.get("ttl_remaining_ms", 0) / 1000
        start = min(sent + max(answer.get("waited_ms", 0), 0) / 1000, now())
        return start + remaining - (remaining / 10 if self.margin is None else self.margin)

    def _call(self, verb, name, body, wait=0.0, until=None):
        """Sends a request, again if its answer was lost, and returns the answer and the moment before the sending that was answered."""
        call = _Call(verb, name, body, wait, until)
        self._alone(call)
        if isinstance(call.result, Error):
            raise call.result
        return call.result

    def _call_all(self, calls):
        """Carries out many calls, and returns their results in order. A batch has one call of a lock; the lock's next call follows the answer."""
        rest = [call for call in calls if not call.result]
        while rest:
            first = {}
            later = [call for call in rest if first.setdefault(call.name, call) is not call]
            _each(self._together, list(_groups(first.values())))
            rest = later
        return [call.result for call in calls]

    def _await(self, lease, pause, early):
        """Notes when a heartbeat is due, and how much earlier others may renew its lease with theirs; 0 = they may not."""
        with self._mutex:
            lease._beat = None
            self._due.pop(lease, None)
            if early:
                self._due[lease] = now() + pause, early

    def _beat(self, lease):
        """Renews a lease whose heartbeat is due, in one batch with those that are due soon and trusted for about as long. Returns the result."""
        with self._mutex:
            calls = []
            if not lease._beat:  # else another heartbeat renews it
                left, all = lease.remaining(), [lease]
                if self._due.pop(lease, None):
                    all += [o for o, (due, early) in self._due.items() if due - now() <= early and 4 * min(left, o.remaining()) >= 3 * max(left, o.remaining())]
                for other in all:
                    self._due.pop(other, None)
                    other._beat = _Call("renew", other.name, other.claim | {"ttl_ms": int(other.ttl * 1000)}, until=other._until, lease=other)
                    calls.append(other._beat)
        if calls:
            self._call_all(calls)
        lease._beat.settled.wait(lease.remaining())
        return lease._beat.result

    def _end(self, call):
        """Tells the lease of a heartbeat's call its result at once: other calls of the batch can last longer."""
        if call.lease:
            if isinstance(call.result, tuple):
                call.lease._renewed(self._deadline(*call.result))
            call.settled.set()

    def _alone(self, call):
        """Sends a call in requests of its own until it has a result."""
        while call.result is None and call.sendings <= self.resends:
            call.pause()
            left = max(call.end - now(), 0)
            bound = self.timeout + left if call.until is None else min(self.timeout + left, call.until - now())
            if bound <= 0:
                break
            call.sendings += 1
            base, sent, status = self._current, now(), 0
            try:
                status, media, text = self._exchange(base, call.path + (f"?wait={int(left * 1000)}ms" if left >= 0.001 else ""), call.data, bound)
                call.settle(status, *_decode(status, media, text), sent)
            except (OSError, http.client.HTTPException, ValueError) as e:
                call.lose(e)
            if call.result is None or status in UNTRIED:
                self._fail(base)
        if call.result is None:
            call.result = call.unanswered([b.geturl() for b in self._bases])
        self._end(call)

    def _together(self, group):
        """Sends calls in a batch, and sends it again if its answer was lost. Calls that have no result then are sent alone, because one of
        them may be the reason. So a batch may take half of the time that is left."""
        rest = group
        for _ in range(min(self.resends + 1, 2)):
            base = self._current
            if len(rest) < 2 or self._plain.get(base, 0) > now():
                break
            rest[0].pause()
            bound = min(self.timeout, min(call.until for call in rest) - now()) / 2
            if bound <= 0:
                break
            for call in rest:
                call.sendings += 1
            sent, status, busy = now(), 0, []
            try:
                status, media, text = self._exchange(base, "/v1/batch", b'{"operations":[' + b",".join(call.operation for call in rest) + b"]}", bound)
                good, answer = _decode(status, media, text)
                if good:
                    busy = _settle_all(rest, answer["results"], sent)
                elif self._refused(base, status, answer, rest):
                    break
                else:
                    for call in rest:
                        call.settle(status, False, {} if _kind(answer) in OF_LEASE else answer, sent)
            except (OSError, http.client.HTTPException, ValueError, AttributeError, KeyError, TypeError) as e:
                for call in rest:
                    call.lose(e)
            for call in rest:
                if call.result is not None:
                    self._end(call)
            rest = [call for call in rest if call.result is None and call not in busy]
            if rest or status in UNTRIED:
                self._fail(base)
        _each(self._alone, [call for call in group if call.result is None])

    def _refused(self, base, status, answer, calls):
        """Reports whether a server does not take the batch, so that its calls are sent alone."""
        kind = _kind(answer)
        if status == 401 or kind not in (Invalid, Denied) and (kind or status >= 500):
            return False
        if status not in (400, 422):  # which are about this batch
            self._plain[base] = now() + PLAIN_FOR
        for call in calls:
            if kind:
                call.sendings -= 1
            else:
                call.lose(f"{status} {answer.get('title', '')}")
        return True

    def _fail(self, base):
        """Goes on with the next server; idle connections to this one lead nowhere."""
        with self._mutex:
            if self._current == base:
                self._current = (base + 1) % len(self._bases)
            stale = [c for at, c in self._idle if at == base]
            self._idle = [(at, c) for at, c in self._idle if at != base]
        for connection in stale:
            connection.close()

    def _connection(self, base):
        with self._mutex:
            for i, (at, connection) in enumerate(self._idle):
                if at == base:
                    del self._idle[i]
                    return connection
        url = self._bases[base]
        if url.scheme == "https":
            return http.client.HTTPSConnection(url.hostname, url.port, context=self._ssl)
        return http.client.HTTPConnection(url.hostname, url.port)

    def _exchange(self, base, target, data, timeout):
        """Sends a request once. `timeout` bounds each silence."""
        connection, id = self._connection(base), secrets.token_hex(8)
        try:
            connection.timeout = timeout
            if connection.sock:
                connection.sock.settimeout(timeout)
            else:
                try:
                    connection.connect()
                except OSError as e:
                    raise _NotSent(str(e)) from None
            connection.request("GET" if data is None else "POST", self._bases[base].path + target, data, self._headers | {"Pglatch-Request-Id": id})
            response = connection.getresponse()
            text = response.read(MAX_ANSWER + 1)
            if response.headers.get("Pglatch-Request-Id", id) != id or len(text) > MAX_ANSWER:
                raise ValueError("the answer is of another request, or too long")
        except BaseException:
            connection.close()
            raise
        with self._mutex:
            self._idle.append((base, connection))
        return response.status, response.headers.get_content_type(), text


class _Call:
    """One request, however often it is sent. The result is the answer with the moment before its sending, or an Error."""

    def __init__(self, verb, name, body=None, wait=0.0, until=None, lease=None):
        self.verb, self.name, self.body, self.end, self.until = verb, name, body, now() + wait, until
        self.reads, self.share = verb in ("", "adopt"), bool(body) and ("slots" in body or "mode" in body)
        self.lease, self.settled = lease, threading.Event()  # of a heartbeat, and that its result is there
        self.sendings, self.known, self.error, self.result = 0, True, None, None  # known: no sending so far can have been carried out
        self.data = None if body is None else json.dumps(body).encode()
        self.operation = json.dumps({verb: {"lock": name} | (body or {})}).encode()  # in a batch
        try:
            self.path = "/v1/locks/" + quote(name, safe="") + (verb and "/" + verb)
        except UnicodeEncodeError:
            self.result = Invalid({"detail": f"a lock cannot be called {name!r}"})

    def pause(self):
        """Waits before a sending that is not the first."""
        if self.sendings:
            time.sleep(0.025 * 2 ** self.sendings * random.uniform(0.5, 1.5))

    def settle(self, status, good, answer, sent):
        """Takes the result from an answer, if it says what happened."""
        try:
            if good:
                self.check(answer)
                self.result = answer, sent
                return
            kind = _kind(answer)
            if kind and (self.known or kind in OF_LEASE):
                self.result = kind(answer)
                return
            error = f"{status} {answer.get('title', '')}"
        except (AttributeError, KeyError, TypeError, ValueError) as e:
            error = e
        self.lose(error)

    def lose(self, error):
        """Notes a sending without an answer that says what happened."""
        self.error, self.known = error, self.known and (self.reads or isinstance(error, _NotSent))

    def check(self, answer):
        """Raises ValueError for the answer to another request: something between client and server mixes them up."""
        lock, claim = self.name, {key: self.body[key] for key in ("owner_id", "lease_id", "fencing_token") if key in self.body} if self.body else {}
        if self.share:
            slot = answer.get("slot", 0)
            lock, claim["share_of"] = f"{lock}::slot::{slot:04d}", lock
            if (slot == 0) != (self.body.get("mode") == "exclusive") or answer["fence"] < 1:
                raise ValueError("the answer is of another request")
        if any(answer.get(key) != value for key, value in (claim | {"lock": lock}).items()):
            raise ValueError("the answer is of another request")
        if self.body:
            _ = answer["lease_id"], answer["fencing_token"]

    def unanswered(self, servers):
        """The error of a call without a result."""
        request = f"{self.verb or 'get'} {self.name}"
        if not self.known:
            return OutcomeUnknown(f"{request}: outcome unknown: {self.error}")
        hint = "; start one: pglatch serve locks" if isinstance(self.error, _NotSent) else ""
        return Unavailable(f"{request}: no lock server answers at {', '.join(servers)}: {self.error or 'its time is over'}; nothing was done{hint}")


def _decode(status, media, text):
    """Whether an answer is good, and the answer."""
    if media not in ("application/json", "application/problem+json"):
        return False, {"title": "without an answer"}
    return status == 200 and media == "application/json", json.loads(text)


def _kind(answer):
    return KINDS.get(str(answer.get("type", "")).removeprefix(TYPES))


def _groups(calls):
    """Divides calls into batches. A call for a share is alone: it can wait behind others, and a batch does not wait."""
    group, size = [], 20
    for call in calls:
        if call.share or len(call.operation) + 20 > MAX_BATCH_BODY:
            yield [call]
            continue
        size += len(call.operation) + 1
        if len(group) == MAX_BATCH or size > MAX_BATCH_BODY:
            yield group
            group, size = [], 20 + len(call.operation) + 1
        group.append(call)
    if group:
        yield group


def _settle_all(calls, results, sent):
    """Takes the results of a batch. Returns the calls to send alone: the store was busy, or others wait for the lock."""
    if len(results) != len(calls):
        raise ValueError("the answer is of another request")
    busy = []
    for call, result in zip(calls, results):
        status = result.get("status") if isinstance(result, dict) else None
        answer = result.get(("released" if call.verb == "release" else "lease") if status == 200 else "problem") if status else None
        call.settle(status, status == 200, answer, sent)
        if isinstance(call.result, Busy) and status == 503:
            call.result, call.sendings = None, call.sendings - 1  # nothing was done
            busy.append(call)
    return busy


def _leases(leases):
    leases = list(leases)
    if not all(isinstance(lease, Lease) for lease in leases):
        raise TypeError("leases: give only leases; results can be errors")
    return leases


def _each(work, items):
    """Calls a function with each item, in this thread and a few others. At the end of the program no thread can start: then this one does all."""
    rest, threads = collections.deque(items), []

    def run():
        while True:
            try:
                item = rest.popleft()
            except IndexError:
                return
            work(item)

    try:
        with contextlib.suppress(RuntimeError):
            for _ in range(min(len(items), 8) - 1):
                threads.append(threading.Thread(target=run, daemon=True, name="pglatch batch"))
                threads[-1].start()
        run()
    finally:
        rest.clear()
    for thread in threads:
        if thread.ident:
            thread.join()


class _NotSent(OSError): """There was no connection to send the request on."""


def _is_loopback(host):
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


class Lease:
    """A lease that this process acquired. Give `token` to what the lease protects, which refuses a token below the greatest it has seen."""

    def __init__(self, client, answer, ttl, deadline):
        self.name, self.owner, self.id, self.token = answer["lock"], answer["owner_id"], answer["lease_id"], answer["fencing_token"]
        self.share_of, self.slot, self.fence = answer.get("share_of"), answer.get("slot", 0), answer.get("fence")  # None, 0 and None, if it is no share
        self.claim = {"owner_id": self.owner, "lease_id": self.id, "fencing_token": self.token}
        self.ttl, self.lost = ttl, threading.Event()  # lost is set when the lease is
        self._client, self._until, self._cause, self._on_lost = client, deadline, None, None
        self._mutex, self._stop = threading.Lock(), threading.Event()
        self._releasing, self._release_error, self._release_done = False, None, threading.Event()
        self._beat = None  # the call that renews it; guarded by the client's mutex

    def remaining(self):
        """For how long the lease can be trusted without another renewal; 0 = no longer."""
        return 0.0 if self._stop.is_set() else max(self._until - now(), 0.0)

    def check(self):
        """Raises Lost unless the lease can be trusted. It looks at the clock: call it before each act."""
        if self.remaining() <= 0:
            raise Lost(f"lease on {self.name}: {self._cause or 'it was released, or not renewed in time'}") from self._cause

    def heartbeat(self, interval=None, on_lost=None):
        """Renews every `interval` (a third of the TTL) until the lease is released or lost. Then, in time before the server can give it
        to another, `lost` is set and on_lost(lease) called, in a thread of its own. Leases of a client that are due at about the same time share a request."""
        self._on_lost = on_lost
        for run in (lambda: self._renew_on(interval or self.ttl / 3), self._guard):
            threading.Thread(target=run, daemon=True, name=f"pglatch {self.name}").start()

    def release(self):
        """Ends the heartbeat and the lease. Further calls do nothing but raise the error of the first."""
        result, = self._client.release_all([self])
        if isinstance(result, Error):
            raise result

    def __enter__(self):
        self.heartbeat()
        return self

    def __exit__(self, kind, error, trace):
        lost = self.remaining() <= 0 and not self._releasing
        with contextlib.suppress(Error):  # if it fails, the lease expires
            self.release()
        if lost and kind is None:
            raise Lost(f"lease on {self.name}: {self._cause or 'it was not renewed in time'}") from self._cause

    def _begin_release(self):
        """Reports whether the caller is the first, who sends the release."""
        with self._mutex:
            first, self._releasing = not self._releasing, True
        self._stop.set()
        return first

    def _end_release(self, result):
        self._release_error = result if isinstance(result, Error) else None
        self._release_done.set()

    def _released(self):
        """The error of the release, or None. It waits for the answer that another thread gets."""
        self._release_done.wait()
        return self._release_error

    def _renewed(self, deadline):
        with self._mutex:
            self._until = max(self._until, deadline)

    def _renew_on(self, interval):
        failures, first = 0, self.remaining() / 3  # an adopted lease can be near its end
        while True:
            pause, first = min(interval * random.uniform(0.9, 1.1), first), interval * 2
            if failures:
                pause = min(pause, interval / 8 * 2 ** min(failures - 1, 3) * random.uniform(0.5, 1.5))
            self._client._await(self, pause, 0 if failures else interval / 4)  # after a failure it is renewed alone
            if self._stop.wait(min(pause, self.remaining())) or self.remaining() <= 0:
                return self._client._await(self, 0, 0)
            result = self._client._beat(self)
            if isinstance(result, (Stale, Expired, NotFound)):
                return self._lose(result)
            failures = 0 if isinstance(result, tuple) else failures + 1

    def _guard(self):
        while not self._stop.wait(self.remaining()):
            if self._until <= now():
                return self._lose(Lost("it was not renewed in time"))

    def _lose(self, cause):
        with self._mutex:
            if self._stop.is_set():
                return
            self._cause = cause
            self._stop.set()
        self.lost.set()
        if self._on_lost:
            self._on_lost(self)
