package bench

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"cirello.io/pglock"
	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// peerPglock measures cirello.io/pglock with a lease of one second, from Release to the
// waiting client's Acquire.
func peerPglock(b *testing.B) {
	dsn := pgtest.DSN(b)
	client := func() *pglock.Client {
		db, err := sql.Open("pgx", dsn)
		require.NoError(b, err)
		b.Cleanup(func() { _ = db.Close() })
		c, err := pglock.UnsafeNew(db, pglock.WithLeaseDuration(time.Second), pglock.WithHeartbeatFrequency(300*time.Millisecond))
		require.NoError(b, err)
		return c
	}
	a, c := client(), client()
	require.NoError(b, a.TryCreateTable())
	old, err := a.Acquire("bench")
	require.NoError(b, err)
	var g gauge
	for b.Loop() {
		acquired := make(chan time.Time)
		var next *pglock.Lock
		go func() {
			var err error
			next, err = c.Acquire("bench")
			if err != nil {
				panic(err)
			}
			acquired <- time.Now()
		}()
		<-time.After(100 * time.Millisecond) // its waiting is not visible anywhere
		began := time.Now()
		require.NoError(b, a.Release(old))
		g.add((<-acquired).Sub(began))
		old, a, c = next, c, a
	}
	require.NoError(b, a.Release(old))
	g.report(b)
}

// peerPoll measures the usual loop: pg_try_advisory_lock every two seconds.
func peerPoll(b *testing.B) {
	dsn := pgtest.DSN(b)
	a, c := pgtest.Connect(b, dsn), pgtest.Connect(b, dsn)
	try := func(conn *pgx.Conn) (ok bool) {
		require.NoError(b, conn.QueryRow(context.Background(), "SELECT pg_try_advisory_lock(1)").Scan(&ok))
		return ok
	}
	require.True(b, try(a))
	var g gauge
	phase := time.Duration(0)
	for b.Loop() {
		acquired := make(chan time.Time)
		go func() {
			for !try(c) {
				<-time.After(2 * time.Second)
			}
			acquired <- time.Now()
		}()
		phase = (phase + 370*time.Millisecond) % (2 * time.Second) // spreads the releases over the time between two polls
		<-time.After(50*time.Millisecond + phase)
		began := time.Now()
		_, err := a.Exec(context.Background(), "SELECT pg_advisory_unlock(1)")
		require.NoError(b, err)
		g.add((<-acquired).Sub(began))
		a, c = c, a
	}
	g.report(b)
}
