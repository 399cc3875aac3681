/** All errors of this module. */ export class PglatchError extends Error {
}
/** No answer came that says what happened: the request may have been carried out. */ export class OutcomeUnknown extends PglatchError {
}
/** No server took the request, or a request that only reads got no answer. Nothing was done. */ export class Unavailable extends PglatchError {
}
/** The lease can no longer be trusted. The cause says why. */ export class Lost extends PglatchError {
}
/** The server refused; nothing was done. `problem` is its answer, of RFC 9457. */
export class Problem extends PglatchError {
    /** @param {Record<string, any>} problem */
    constructor(problem: Record<string, any>);
    problem: Record<string, any>;
    /** Who holds the lock. @type {string} */
    owner: string;
    /** When to try again. @type {number} */
    retry: number;
}
/** Somebody else has the lock, or a delay keeps it. */ export class Held extends Problem {
}
/** The claim is not the current one. */ export class Stale extends Problem {
}
/** The lease expired. */ export class Expired extends Problem {
}
/** Nothing is known of the lock. */ export class NotFound extends Problem {
}
/** The request is not as it must be. */ export class Invalid extends Problem {
}
/** Try again. */ export class Busy extends Problem {
}
/** The server's store has to be set up. */ export class NotReady extends Problem {
}
/** The server wants another token, or does not allow the request. */ export class Denied extends Problem {
}
/**
 * @typedef {object} ClientOptions
 * @property {string} [token] bearer token; only over https or to this machine, unless allowInsecure
 * @property {string} [owner] of leases; by default the host's name, the process id and a random part
 * @property {number} [ttl] time to live of leases; 15 s
 * @property {number} [margin] kept free at the end of each lease; a tenth of it
 * @property {number} [timeout] of each sending, beside the time that it waits for a lock; 10 s
 * @property {number} [resends] how often a request is sent again when its answer was lost; 3
 * @property {boolean} [allowInsecure]
 */
/**
 * @typedef {object} AcquireOptions
 * @property {number} [wait] for the lock, also while no server can be reached; 30 s
 * @property {number} [ttl]
 * @property {string} [owner]
 * @property {string} [idempotencyKey] the same for what is to be one request; by default a new one
 * @property {number} [slots] asks for one of so many slots of the lock
 * @property {'shared' | 'exclusive'} [mode] shared: any number hold the lock; exclusive: one holds all of it
 * @property {Record<string, string>} [metadata]
 * @property {number} [lockDelay]
 * @property {number} [minHold]
 * @property {number} [maxLifetime]
 */
/** Asks lock servers for leases: one, or several before one store, of which another is asked when one fails. */
export class Client {
    /** @param {string | string[]} baseURLs @param {ClientOptions} [options] */
    constructor(baseURLs: string | string[], options?: ClientOptions);
    /** Leases whose heartbeats wait: when the next one is due, and how much earlier it may be. @type {Map<Lease, { due: Moment, early: number }>} */ _due: Map<Lease, {
        due: Moment;
        early: number;
    }>;
    bases: string[];
    options: {
        /**
         * bearer token; only over https or to this machine, unless allowInsecure
         */
        token?: string | undefined;
        /**
         * of leases; by default the host's name, the process id and a random part
         */
        owner: string;
        /**
         * time to live of leases; 15 s
         */
        ttl: number;
        /**
         * kept free at the end of each lease; a tenth of it
         */
        margin?: number | undefined;
        /**
         * of each sending, beside the time that it waits for a lock; 10 s
         */
        timeout: number;
        /**
         * how often a request is sent again when its answer was lost; 3
         */
        resends: number;
        allowInsecure?: boolean | undefined;
    };
    /** @type {Record<string, string>} */
    headers: Record<string, string>;
    /** Acquires a lease, and waits for it. Held, or why not, after that. Start its heartbeat, or use hold. @param {string} name @param {AcquireOptions} [o] @returns {Promise<Lease>} */
    acquire(name: string, o?: AcquireOptions): Promise<Lease>;
    /** Asks once. Held if somebody else has the lock. @param {string} name @param {AcquireOptions} [o] */
    tryAcquire(name: string, o?: AcquireOptions): Promise<Lease>;
    /**
     * Asks once for each of many locks, in as few requests as hold them. The result has, for each name in order, a Lease or the error that tryAcquire would throw.
     * The options are the same for all. Without an idempotencyKey, each gets its own. @param {Iterable<string>} names @param {Omit<AcquireOptions, 'wait'>} [o]
     * @returns {Promise<(Lease | PglatchError)[]>}
     */
    acquireAll(names: Iterable<string>, o?: Omit<AcquireOptions, "wait">): Promise<(Lease | PglatchError)[]>;
    /**
     * Takes over a lease that this program had before a restart, by the name, owner and id of its Lease. Stale, Expired or NotFound if it is over. This does not
     * prolong the lease: renew it, or start its heartbeat. The earlier process must have ended.
     * @param {string} name @param {string} owner @param {string} id @param {{ ttl?: number }} [o]
     */
    adopt(name: string, owner: string, id: string, o?: {
        ttl?: number;
    }): Promise<Lease>;
    /** A lease with a heartbeat, for `await using`. @param {string} name @param {AcquireOptions} [o] */
    hold(name: string, o?: AcquireOptions): Promise<Lease>;
    /** Runs work under a lease, and releases it. Rejects with Lost if it was lost meanwhile. @template T @param {string} name @param {(lease: Lease) => Promise<T>} work @param {AcquireOptions} [o] */
    do<T>(name: string, work: (lease: Lease) => Promise<T>, o?: AcquireOptions): Promise<T>;
    /** Prolongs a lease to ttl from now; never shortens it. @param {Lease} lease @param {number} [ttl] @param {Moment} [limit] */
    renew(lease: Lease, ttl?: number, limit?: Moment): Promise<void>;
    /** Renews many leases, in as few requests as hold them. The result has, for each in order, the Lease or the error that renew would throw. @param {Iterable<Lease>} leases @param {number} [ttl] @returns {Promise<(Lease | PglatchError)[]>} */
    renewAll(leases: Iterable<Lease>, ttl?: number): Promise<(Lease | PglatchError)[]>;
    /** Releases many leases, in as few requests as hold them. The result has, for each in order, the Lease or the error that release would throw. @param {Iterable<Lease>} leases @returns {Promise<(Lease | PglatchError)[]>} */
    releaseAll(leases: Iterable<Lease>): Promise<(Lease | PglatchError)[]>;
    /** What is known of a lock, as the API answers it; fencing_token is a bigint. @param {string} name @returns {Promise<Record<string, any>>} */
    get(name: string): Promise<Record<string, any>>;
    /**
     * Until when a lease is trusted: counted from before the request was sent, because the store cannot have counted from an earlier moment.
     * @param {Record<string, any>} answer @param {Moment} sent @returns {Moment}
     */
    _deadline(answer: Record<string, any>, sent: Moment): Moment;
    /** Sends a request, again if its answer was lost. @param {string} verb @param {string} name @param {Record<string, any>} [body] @param {number} [wait] @param {Moment} [limit] */
    _call(verb: string, name: string, body?: Record<string, any>, wait?: number, limit?: Moment): Promise<Done>;
    /** Renews a lease whose heartbeat is due, in one batch with those that are due soon and trusted for about as long. @param {Lease} lease */
    _beat(lease: Lease): Promise<void>;
    /** Sends a call in requests of its own until it has a result. @param {Call} call */
    _alone(call: Call): Promise<void>;
    /**
     * Sends calls in a batch, and sends it again if its answer was lost. Calls that have no result then are sent alone, because one of them may be the reason. So a
     * batch may take half of the time that is left. @param {Call[]} group
     */
    _together(group: Call[]): Promise<void>;
    /** Sends a request once. @param {string} url @param {string | undefined} body @param {number} timeout */
    _exchange(url: string, body: string | undefined, timeout: number): Promise<{
        status: number;
        media: string;
        text: string;
    }>;
    #private;
}
/** A lease that this process acquired. Give `token` to what the lease protects, which refuses a token below the greatest it has seen. */
export class Lease {
    /** @param {Client} client @param {Record<string, any>} answer @param {number} ttl @param {Moment} deadline */
    constructor(client: Client, answer: Record<string, any>, ttl: number, deadline: Moment);
    /** The result of release. @type {Promise<void> | undefined} */ released: Promise<void> | undefined;
    /** @type {string} */ name: string;
    /** @type {bigint} */ token: bigint;
    /** @type {string} */ owner: string;
    /** @type {string} */ id: string;
    /** The lock of which this is a share. @type {string | undefined} */ shareOf: string | undefined;
    /** Of a share; 0 = the whole lock, or no share. @type {number} */ slot: number;
    /** Rises over all shares of the lock; adopt does not return it. @type {bigint | undefined} */ fence: bigint | undefined;
    claim: {
        owner_id: any;
        lease_id: any;
        fencing_token: bigint;
    };
    ttl: number;
    /** Aborted when the lease is released or lost; its reason is a Lost then. @returns {AbortSignal} */
    get signal(): AbortSignal;
    /** For how long the lease can be trusted without another renewal; 0 = no longer. */
    remaining(): number;
    /** Throws Lost unless the lease can be trusted. It looks at the clock: call it before each act. */
    check(): void;
    /** Renews every interval (a third of the TTL) until the lease is released or lost: then `signal` is aborted, in time before the server can give it to another. Leases of a client that are due at about the same time share a request. @param {number} [interval] */
    heartbeat(interval?: number): void;
    /** Ends the heartbeat and the lease; further calls return the promise of the first. @returns {Promise<void>} */
    release(): Promise<void>;
    /** @param {Promise<void>} released */
    _release(released: Promise<void>): void;
    /** The call of a heartbeat, for which no timer waits any more. */
    _renewal(): Call;
    /** @param {Moment} deadline */
    _renewed(deadline: Moment): void;
    /** Releases, for `await using`. */
    [Symbol.asyncDispose](): Promise<void>;
    #private;
}
export type Moment = ReturnType<typeof now>;
export type ClientOptions = {
    /**
     * bearer token; only over https or to this machine, unless allowInsecure
     */
    token?: string | undefined;
    /**
     * of leases; by default the host's name, the process id and a random part
     */
    owner?: string | undefined;
    /**
     * time to live of leases; 15 s
     */
    ttl?: number | undefined;
    /**
     * kept free at the end of each lease; a tenth of it
     */
    margin?: number | undefined;
    /**
     * of each sending, beside the time that it waits for a lock; 10 s
     */
    timeout?: number | undefined;
    /**
     * how often a request is sent again when its answer was lost; 3
     */
    resends?: number | undefined;
    allowInsecure?: boolean | undefined;
};
export type AcquireOptions = {
    /**
     * for the lock, also while no server can be reached; 30 s
     */
    wait?: number | undefined;
    ttl?: number | undefined;
    owner?: string | undefined;
    /**
     * the same for what is to be one request; by default a new one
     */
    idempotencyKey?: string | undefined;
    /**
     * asks for one of so many slots of the lock
     */
    slots?: number | undefined;
    /**
     * shared: any number hold the lock; exclusive: one holds all of it
     */
    mode?: "shared" | "exclusive" | undefined;
    metadata?: Record<string, string> | undefined;
    lockDelay?: number | undefined;
    minHold?: number | undefined;
    maxLifetime?: number | undefined;
};
/**
 * the answer, and the moment before its sending
 */
export type Done = {
    answer: Record<string, any>;
    sent: Moment;
};
export type Reply = {
    status: number;
    media: string;
    text: string;
};
/** @typedef {{ answer: Record<string, any>, sent: Moment }} Done the answer, and the moment before its sending */
/** @typedef {{ status: number, media: string, text: string }} Reply */
/** One request, however often it is sent. */
declare class Call {
    /** @param {string} verb @param {string} name @param {Record<string, any>} [body] @param {number} [wait] @param {Moment} [limit] */
    constructor(verb: string, name: string, body?: Record<string, any>, wait?: number, limit?: Moment);
    sendings: number;
    /** No sending so far can have been carried out. */ known: boolean;
    /** @type {unknown} */ error: unknown;
    /** @type {Done | PglatchError | undefined} */ result: Done | PglatchError | undefined;
    /** Called with the result, before those of other calls of the batch are there. */ done: () => void;
    verb: string;
    name: string;
    body: Record<string, any> | undefined;
    end: {
        run: number;
        up: number;
    };
    limit: {
        run: number;
        up: number;
    } | undefined;
    share: boolean;
    data: string | undefined;
    operation: string;
    path: string;
    /** Waits before a sending that is not the first. */
    pause(): Promise<void>;
    /** Takes the result from an answer, if it says what happened. @param {number} status @param {boolean} good @param {Record<string, any>} answer @param {Moment} sent */
    settle(status: number, good: boolean, answer: Record<string, any>, sent: Moment): void;
    /** Notes a sending without an answer that says what happened. @param {unknown} error */
    lose(error: unknown): void;
    /** Throws for the answer to another request: something between client and server mixes them up. @param {Record<string, any>} answer */
    check(answer: Record<string, any>): void;
    /** The error of a call without a result. @param {string[]} servers */
    unanswered(servers: string[]): OutcomeUnknown | Unavailable;
}
/** A moment on two clocks that nobody sets: the first stands still while a machine is suspended, the second goes on (on Linux), in steps of 10 ms. */
declare function now(): {
    run: number;
    up: number;
};
export {};
