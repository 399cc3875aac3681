package postgres

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/pgtable"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/once"
)

// The states in the table.
const (
	running = "running"
	ran     = "ran"
	broken  = "failed"
	givenUp = "open"
)

// claimSQL claims a tick for the state $6, if it is open and in the window, and returns the row it
// found after the mark $1. The tick's lock is held, so no claim of another transaction is in
// progress. A claim that the transaction's snapshot does not show is a serialization failure
// (PostgreSQL manual, section 13.2.2).
const claimSQL = `WITH now AS (SELECT pg_catalog.clock_timestamp() AS t),
	claimed AS (
		INSERT INTO %[1]s AS o (job, tick, state, node, id, token, began, expires_at, ended)
		SELECT $2::pg_catalog.text, $3::pg_catalog.timestamptz, $6::pg_catalog.text, $4::pg_catalog.text, $5::pg_catalog.text, 1, t,
			CASE WHEN $6::pg_catalog.text OPERATOR(pg_catalog.=) 'running' THEN t OPERATOR(pg_catalog.+) ($7::bigint OPERATOR(pg_catalog.*) interval '1 microsecond') END,
			CASE WHEN $6::pg_catalog.text OPERATOR(pg_catalog.<>) 'running' THEN t END
		FROM now
		WHERE $3::pg_catalog.timestamptz OPERATOR(pg_catalog.>=) (t OPERATOR(pg_catalog.-) ($8::bigint OPERATOR(pg_catalog.*) interval '1 microsecond'))
			AND $3::pg_catalog.timestamptz OPERATOR(pg_catalog.<=) (t OPERATOR(pg_catalog.+) ($9::bigint OPERATOR(pg_catalog.*) interval '1 microsecond'))
		ON CONFLICT (job, tick) DO UPDATE SET (state, node, id, token, began, expires_at, ended) =
			(excluded.state, excluded.node, excluded.id, o.token OPERATOR(pg_catalog.+) 1, excluded.began, excluded.expires_at, excluded.ended)
		WHERE o.state OPERATOR(pg_catalog.=) 'open' OR o.state OPERATOR(pg_catalog.=) 'running' AND o.expires_at OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp()
		RETURNING o.token)
	SELECT pg_catalog.set_config('pglatch.outcome', pg_catalog.concat($1::pg_catalog.text, pg_catalog.json_build_object('now', ` + microsSQL + `, 'token', (SELECT token FROM claimed),
		'row', (SELECT pg_catalog.to_json(r) FROM (%[2]s WHERE job OPERATOR(pg_catalog.=) $2::pg_catalog.text AND tick OPERATOR(pg_catalog.=) $3::pg_catalog.timestamptz) AS r))), true) FROM now`

// microsSQL is a time t in microseconds since 1970.
const microsSQL = `(extract(epoch FROM t) OPERATOR(pg_catalog.*) 1000000)::bigint`

// rowSQL reads rows as a rowJSON.
const rowSQL = `SELECT job, (extract(epoch FROM tick) OPERATOR(pg_catalog.*) 1000000)::bigint AS tick, token, node,
	CASE WHEN state OPERATOR(pg_catalog.=) 'running' AND expires_at OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp() THEN 'open' ELSE state END AS state,
	(extract(epoch FROM began) OPERATOR(pg_catalog.*) 1000000)::bigint AS began,
	coalesce((extract(epoch FROM ended) OPERATOR(pg_catalog.*) 1000000)::bigint, 0) AS ended FROM %s`

type rowJSON struct {
	Job   string `json:"job"`
	Tick  int64  `json:"tick"` // microseconds since 1970, as the other times
	Token uint64 `json:"token"`
	Node  string `json:"node"`
	State string `json:"state"`
	Began int64  `json:"began"`
	Ended int64  `json:"ended"`
}

func (r rowJSON) record() once.Record {
	record := once.Record{Job: r.Job, Tick: at(r.Tick), Node: r.Node, Token: r.Token, Began: at(r.Began)}
	switch r.State {
	case running:
		record.State = once.Running
	case ran:
		record.State = once.Ran
	case broken:
		record.State = once.Failed
	}
	if r.Ended != 0 {
		record.Ended = at(r.Ended)
	}
	return record
}

func at(us int64) time.Time { return time.UnixMicro(us).UTC() }

// othersClaim is how long a claim waits for the claims of others. These are short, except those of
// DoTx.
const othersClaim = 100 * time.Millisecond

// lock excludes other claims of a tick until the end of the transaction. If an uncommitted
// transaction has claimed the tick, the tick is Running.
func lock(ctx context.Context, tx pgsession.Tx, table string, r once.Request) error {
	tag := lockOf(table, r).Tag()
	n, err := pgsession.TxTry(ctx, tx, []namespace.Tag{tag}, session.Exclusive, true)
	locked := n == 1
	if err == nil && !locked {
		var end pgsession.TxWaited
		end, err = pgsession.TxWait(ctx, tx, tag, session.Exclusive, othersClaim, 0) // too short for deadlock detection
		locked = end.Granted
	}
	if err == nil && !locked {
		return &once.TakenError{Record: once.Record{Job: r.Job, Tick: r.Tick, State: once.Running}}
	}
	return failed(table, err)
}

// claim claims a locked tick: as running, or as ran, which others see when it commits.
func claim(ctx context.Context, tx pgsession.Tx, table, state string, r once.Request) (once.Claim, error) {
	id := rand.Text()
	sql := fmt.Sprintf(claimSQL, pgtable.Quote(table), fmt.Sprintf(rowSQL, pgtable.Quote(table)))
	text, err := pgsession.TxAsk(ctx, tx, sql, r.Job, text8601(r.Tick), r.Node, id, state, micros(r.TTL), micros(r.Window), micros(r.Early))
	if err != nil {
		return once.Claim{}, failed(table, err)
	}
	var found struct {
		Now   int64    `json:"now"`
		Token *uint64  `json:"token"`
		Row   *rowJSON `json:"row"` // before the claim
	}
	if err := json.Unmarshal([]byte(text), &found); err != nil {
		return once.Claim{}, fmt.Errorf("once/postgres: answer of the server: %w", err)
	}
	if found.Token != nil {
		return once.Claim{Job: r.Job, Tick: r.Tick, Node: r.Node, ID: id, Token: *found.Token, Began: at(found.Now), Remaining: r.TTL}, nil
	}
	taken := &once.TakenError{Record: once.Record{Job: r.Job, Tick: r.Tick, State: once.Running}}
	if found.Row != nil && found.Row.State != givenUp {
		taken.Record = found.Row.record()
		return once.Claim{}, taken
	}
	if err := r.Check(at(found.Now)); err != nil {
		return once.Claim{}, err
	}
	return once.Claim{}, taken // since the statement began
}

// lockOf returns the lock that excludes claims of a tick until another is committed. It is in the
// half of the bigint keys that no namespace uses. If two ticks share a lock, the worst case is that
// one counts as running.
func lockOf(table string, r once.Request) namespace.Key {
	schema, name := pgtable.Split(table)
	sum := sha256.Sum256(fmt.Appendf(nil, "pglatch once\x00%s\x00%s\x00%s\x00%d", schema, name, r.Job, r.Tick.UnixMicro()))
	return namespace.SingleRaw(int64(binary.BigEndian.Uint64(sum[:])) | math.MinInt64)
}

// Lock returns the lock that a claim of a tick holds until it is committed, and DoTx until its transaction ends. It
// is for tools that see only the numbers of locks. It does not connect.
func (s *Store) Lock(job string, tick time.Time) namespace.Tag {
	return lockOf(s.table, once.Request{Job: job, Tick: tick}).Tag()
}

// text8601 formats a time as all modes of the protocol and all drivers accept it.
func text8601(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.999999Z") }

func micros(d time.Duration) string { return fmt.Sprint(d.Microseconds()) }
