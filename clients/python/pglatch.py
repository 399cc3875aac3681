"""Client of a pglatch lock server: fenced leases over HTTP. README.md says what it guarantees.

Python 3.11 or later, and nothing but its standard library. Times are in seconds. All methods are safe for threads.
"""

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
MAX_ANSWER = 1 << 20
LONG_POLL = 20.0
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
        self._idle, self._mutex = [], threading.Lock()  # connections to bases, by index

    def acquire(self, name, *, wait=30.0, ttl=None, owner=None, idempotency_key=None, **options):
        """Acquires a lease, and waits for it for `wait` at most, also while no server can be reached. Held, or why not, after that.

        `options` are metadata, lock_delay_ms, min_hold_ms and max_lifetime_ms of the API. `with` renews and releases it.
        """
        ttl = ttl or self.ttl
        body = {"owner_id": owner or self.owner, "ttl_ms": int(ttl * 1000), "idempotency_key": idempotency_key or secrets.token_hex(16)} | options
        end, attempt, unknown = now() + wait, 0, None  # the last: of an earlier request, which can have been granted
        while True:
            poll, asked = min(max(end - now(), 0), LONG_POLL), now()
            try:
                answer, sent = self._call("acquire", name, body, wait=poll, until=end + self.timeout)
                return Lease(self, answer, ttl, self._deadline(answer, sent))
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

    def renew(self, lease, ttl=None, until=None):
        """Prolongs a lease to `ttl` from now; never shortens it."""
        answer, sent = self._call("renew", lease.name, lease.claim | {"ttl_ms": int((ttl or lease.ttl) * 1000)}, until=until)
        lease._renewed(self._deadline(answer, sent))

    def get(self, name):
        """What is known of a lock, as the API answers it."""
        return self._call("", name, None)[0]

    def _deadline(self, answer, sent):
        """Until when a lease is trusted: counted from before the request was sent, because the store cannot have counted from an earlier moment."""
        remaining = answer.get("ttl_remaining_ms", 0) / 1000
        start = min(sent + max(answer.get("waited_ms", 0), 0) / 1000, now())
        return start + remaining - (remaining / 10 if self.margin is None else self.margin)

    def _call(self, verb, name, body, wait=0.0, until=None):
        """Sends a request, again if its answer was lost, and returns the answer and the moment before the sending that was answered."""
        path = "/v1/locks/" + quote(name, safe="") + ("/" + verb if verb else "")
        data = None if body is None else json.dumps(body).encode()
        end, error, known = now() + wait, None, True
        for resend in range(self.resends + 1):
            if resend:
                time.sleep(0.025 * 2 ** resend * random.uniform(0.5, 1.5))
            left = max(end - now(), 0)
            bound = self.timeout + left if until is None else min(self.timeout + left, until - now())
            if bound <= 0:
                break
            base, sent = self._current, now()
            try:
                status, media, text = self._exchange(base, path + (f"?wait={int(left * 1000)}ms" if left >= 0.001 else ""), data, bound)
                answer = json.loads(text) if media in ("application/json", "application/problem+json") else {"title": f"{status} without an answer"}
                if status == 200 and media == "application/json":
                    self._check(name, body, answer)
                    return answer, sent
                kind = KINDS.get(str(answer.get("type", "")).removeprefix(TYPES))
                if kind and (known or kind in OF_LEASE):
                    if status in UNTRIED:
                        self._fail(base)
                    raise kind(answer)
                error = f"{status} {answer.get('title', '')}"
            except (OSError, http.client.HTTPException, ValueError, AttributeError, KeyError, TypeError) as e:
                error = e
            known = known and (body is None or isinstance(error, _NotSent))
            self._fail(base)
        if known and error:
            hint = "; start one: pglatch serve locks" if isinstance(error, _NotSent) else ""
            raise Unavailable(f"{verb or 'get'} {name}: no lock server answers at {', '.join(b.geturl() for b in self._bases)}: {error}; nothing was done{hint}") from None
        raise OutcomeUnknown(f"{verb or 'get'} {name}: outcome unknown: {error}") from None

    def _check(self, name, body, answer):
        """Notices what stands between client and server and mixes up answers."""
        claim = {key: body[key] for key in ("owner_id", "lease_id", "fencing_token") if key in body} if body else {}
        if any(answer.get(key) != value for key, value in (claim | {"lock": name}).items()):
            raise ValueError("the answer is of another request")
        if body:
            _ = answer["lease_id"], answer["fencing_token"]

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


class _NotSent(OSError): """There was no connection to send the request on."""


def _is_loopback(host):
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


class Lease:
    """A lease that this process acquired. Give `token` to what the lease protects, which refuses a token below the greatest it has seen."""

    def __init__(self, client, answer, ttl, deadline):
        self.name, self.owner, self.id, self.token = answer["lock"], answer["owner_id"], answer["lease_id"], answer["fencing_token"]
        self.claim = {"owner_id": self.owner, "lease_id": self.id, "fencing_token": self.token}
        self.ttl, self.lost = ttl, threading.Event()  # lost is set when the lease is
        self._client, self._until, self._cause, self._on_lost = client, deadline, None, None
        self._mutex, self._stop = threading.Lock(), threading.Event()
        self._releasing, self._release_error = threading.Lock(), None

    def remaining(self):
        """For how long the lease can be trusted without another renewal; 0 = no longer."""
        return 0.0 if self._stop.is_set() else max(self._until - now(), 0.0)

    def check(self):
        """Raises Lost unless the lease can be trusted. It looks at the clock: call it before each act."""
        if self.remaining() <= 0:
            raise Lost(f"lease on {self.name}: {self._cause or 'it was released, or not renewed in time'}") from self._cause

    def heartbeat(self, interval=None, on_lost=None):
        """Renews every `interval` (a third of the TTL) until the lease is released or lost. Then, in time before the server can give it
        to another, `lost` is set and on_lost(lease) called, in a thread of its own."""
        self._on_lost = on_lost
        for run in (lambda: self._renew_on(interval or self.ttl / 3), self._guard):
            threading.Thread(target=run, daemon=True, name=f"pglatch {self.name}").start()

    def release(self):
        """Ends the heartbeat and the lease. Further calls do nothing but raise the error of the first."""
        with self._releasing:
            if self._release_error is None:
                self._stop.set()
                self._release_error = False
                try:
                    self._client._call("release", self.name, self.claim | {"idempotency_key": secrets.token_hex(16)}, until=now() + self._client.timeout)
                except Error as e:
                    self._release_error = e
        if self._release_error:
            raise self._release_error

    def __enter__(self):
        self.heartbeat()
        return self

    def __exit__(self, kind, error, trace):
        lost = self.remaining() <= 0 and self._release_error is None
        with contextlib.suppress(Error):  # if it fails, the lease expires
            self.release()
        if lost and kind is None:
            raise Lost(f"lease on {self.name}: {self._cause or 'it was not renewed in time'}") from self._cause

    def _renewed(self, deadline):
        with self._mutex:
            self._until = max(self._until, deadline)

    def _renew_on(self, interval):
        failures = 0
        while True:
            pause = interval * random.uniform(0.9, 1.1)
            if failures:
                pause = min(pause, interval / 8 * 2 ** min(failures - 1, 3) * random.uniform(0.5, 1.5))
            if self._stop.wait(min(pause, self.remaining())) or self.remaining() <= 0:
                return
            try:
                self._client.renew(self, until=self._until)
                failures = 0
            except (Stale, Expired, NotFound) as e:
                return self._lose(e)
            except Error:
                failures += 1

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
