//go:build integration

package seams

import (
	"context"
	"database/sql"
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	leasepg "github.com/pglatch/pglatch/lease/postgres"
	"github.com/pglatch/pglatch/lease/shared"
	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/turns"
)

// withStore gives use a store of leases. A store of another version, and one without tables, is left as it is.
func withStore(use func(ctx context.Context, t *testing.T, pool *pgxpool.Pool, store *leasepg.Store) error) useFunc {
	return func(ctx context.Context, t *testing.T, s site) error {
		t.Helper()
		pool, err := pgxpool.New(ctx, s.dsn+"&default_query_exec_mode=exec") // without prepared statements
		if err != nil {
			return err
		}
		defer pool.Close()
		store, err := leasepg.New(leasepg.Config{Pool: pool})
		if err != nil {
			return err
		}
		defer store.Close()
		return use(ctx, t, pool, store)
	}
}

func useLease(ctx context.Context, t *testing.T, _ *pgxpool.Pool, store *leasepg.Store) error {
	t.Helper()
	l, err := store.Acquire(ctx, lease.AcquireRequest{Name: t.Name(), Holder: "seams", TTL: time.Minute})
	if err != nil {
		return err
	}
	renewal := lease.RenewRequest{Claim: l.Claim, TTL: time.Minute}
	if _, err := store.Renew(ctx, renewal); err != nil {
		return err
	}
	results, err := store.RenewAll(ctx, []lease.RenewRequest{renewal})
	if err != nil {
		return err
	}
	next, ofRelease, ofAcquire := store.HandOver(ctx, lease.ReleaseRequest{Claim: results[0].Lease.Claim}, lease.AcquireRequest{Name: t.Name(), Holder: "next", TTL: time.Minute})
	if err := errors.Join(results[0].Err, ofRelease, ofAcquire); err != nil {
		return err
	}
	_, err = lease.Adopt(ctx, store, t.Name(), "next", next.ID)
	keyed := store.ReleaseKeyed(ctx, lease.ReleaseRequest{Claim: next.Claim, IdempotencyKey: "seams"})
	return errors.Join(err, keyed, store.Release(ctx, next.Claim), store.Send(ctx, []string{"seams"}))
}

func useLeaseLook(ctx context.Context, t *testing.T, _ *pgxpool.Pool, store *leasepg.Store) error {
	t.Helper()
	_, err := store.Get(ctx, t.Name())
	if errors.Is(err, lease.ErrNotFound) {
		err = nil
	}
	for _, failed := range store.List(ctx, lease.ListRequest{}) {
		err = errors.Join(err, failed)
	}
	return errors.Join(err, store.Health(ctx))
}

func useLeaseGuard(ctx context.Context, t *testing.T, pool *pgxpool.Pool, store *leasepg.Store) error {
	t.Helper()
	l, err := store.Acquire(ctx, lease.AcquireRequest{Name: t.Name(), Holder: "seams", TTL: time.Minute})
	if err != nil {
		return err
	}
	guarded := func(ctx context.Context, tx pgx.Tx) error { return leasepg.Guard(ctx, tx, l.Claim) }
	inSQL := func(ctx context.Context, tx *sql.Tx) error { return leasepg.GuardSQL(ctx, tx, l.Claim) }
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	return errors.Join(leasepg.InTx(ctx, pool, l.Claim, guarded), leasepg.InTxOptions(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, l.Claim, guarded),
		leasepg.InSQLTx(ctx, db, l.Claim, inSQL), leasepg.InSQLTxOptions(ctx, db, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, l.Claim, inSQL),
		store.Release(ctx, l.Claim))
}

// adminToken is the client's.
const adminToken = "seams-seams-seams-seams-seams-seams"

// withServer gives use a client of a lock server.
func withServer(store *leasepg.Store, use func(client *leasehttp.Client) error) error {
	server, err := leaseserver.New(leaseserver.Config{Store: store, Tokens: []leaseserver.Token{{Secret: adminToken, Right: leaseserver.Admin}}})
	if err != nil {
		return err
	}
	front := httptest.NewServer(server.Handler())
	defer front.Close()
	client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{front.URL}, Token: adminToken})
	if err != nil {
		return err
	}
	defer client.Close()
	return use(client)
}

func useLockServer(ctx context.Context, t *testing.T, _ *pgxpool.Pool, store *leasepg.Store) error {
	t.Helper()
	return withServer(store, func(client *leasehttp.Client) error {
		request := lease.AcquireRequest{Name: "seams-http", Holder: "seams", TTL: time.Minute}
		l, err := client.Acquire(ctx, request)
		if err != nil {
			return err
		}
		renewal := lease.RenewRequest{Claim: l.Claim, TTL: time.Minute}
		_, err = client.Renew(ctx, renewal)
		if err != nil {
			return err
		}
		results, err := client.RenewAll(ctx, []lease.RenewRequest{renewal})
		if err != nil {
			return err
		}
		_, err = client.Adopt(ctx, l.Name, l.Holder, l.ID)
		if err := errors.Join(results[0].Err, err, client.Release(ctx, l.Claim)); err != nil {
			return err
		}
		if _, err = client.AcquireWait(ctx, request, time.Second); err != nil {
			return err
		}
		_, _, err = client.ForceRelease(ctx, leasehttp.ForceReleaseRequest{Name: l.Name, Reason: "seams"})
		return err
	})
}

func useLockServerLook(ctx context.Context, _ *testing.T, _ *pgxpool.Pool, store *leasepg.Store) error {
	return withServer(store, func(client *leasehttp.Client) error {
		_, err := client.Get(ctx, "nothing")
		if errors.Is(err, lease.ErrNotFound) {
			_, err = client.GetAfter(ctx, "nothing", 0, 0)
		}
		if errors.Is(err, lease.ErrNotFound) {
			err = nil
		}
		for _, failed := range client.List(ctx, lease.ListRequest{}) {
			err = errors.Join(err, failed)
		}
		return err
	})
}

func useHeartbeat(ctx context.Context, _ *testing.T, _ *pgxpool.Pool, store *leasepg.Store) error {
	return withServer(store, func(client *leasehttp.Client) error {
		l, err := client.AcquireWithRetry(ctx, "seams-heartbeat", "seams", leasehttp.AcquireOptions{MaxWait: 5 * time.Second})
		if err != nil {
			return err
		}
		work, _ := client.StartHeartbeat(ctx, l, leasehttp.HeartbeatOptions{})
		if err := work.Err(); err != nil {
			return err
		}
		return errors.Join(client.ReleaseOnce(ctx, l), client.Do(ctx, "seams-heartbeat", func(ctx context.Context) error { return ctx.Err() }))
	})
}

func useSharedLease(ctx context.Context, _ *testing.T, _ *pgxpool.Pool, store *leasepg.Store) error {
	return withServer(store, func(client *leasehttp.Client) error {
		share, err := client.AcquireShare(ctx, shared.Request{AcquireRequest: lease.AcquireRequest{Name: "seams-slots", Holder: "seams", TTL: time.Minute}, Slots: 2}, 0)
		if err != nil {
			return err
		}
		return client.Release(ctx, share.Claim)
	})
}

// withMailbox gives use a mailbox, and the pool that it is on.
func withMailbox(locker *advisory.Locker, use func(ctx context.Context, box *turns.Mailbox, pool *pgxpool.Pool) error) useFunc {
	return func(ctx context.Context, _ *testing.T, s site) error {
		config, err := pgxpool.ParseConfig(s.dsn)
		if err != nil {
			return err
		}
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
		pool, err := pgxpool.NewWithConfig(ctx, config)
		if err != nil {
			return err
		}
		defer pool.Close()
		box, err := turns.Open(ctx, turns.Config{Pool: pool, Name: "seams", Namespace: agents, Locker: locker, Batch: 100})
		if err != nil {
			return err
		}
		return use(ctx, box, pool)
	}
}

// entity has no messages of other entries.
const entity = 77

// useTurns sends, serves, and looks after the mailbox.
func useTurns(ctx context.Context, t *testing.T, s site) error {
	t.Helper()
	locker, err := open(ctx, s.dsn)
	if err != nil {
		return err
	}
	defer locker.Close()
	db := openSQL(t, s)
	return withMailbox(locker, func(ctx context.Context, box *turns.Mailbox, pool *pgxpool.Pool) error {
		_, err := box.Purge(ctx, agents.ID(entity))
		if err != nil {
			return err
		}
		var tickets []turns.Ticket
		writing := pgx.TxOptions{AccessMode: pgx.ReadWrite}
		err = pgx.BeginTxFunc(ctx, pool, writing, func(tx pgx.Tx) (err error) {
			envelopes := []turns.Envelope{{Entity: agents.ID(entity), Message: turns.Message{ID: time.Now().String(), Body: []byte("1")}}}
			tickets, err = box.SendMany(ctx, tx, envelopes)
			return err
		})
		if err != nil {
			return err
		}
		serving, stop := context.WithCancel(ctx)
		served := make(chan error, 1)
		go func() {
			served <- box.Serve(serving, func(ctx context.Context, turn *turns.Turn) error {
				_, err := turn.More(ctx)
				turn.SetValue([]byte("done"))
				return errors.Join(err, turn.Commit(ctx, func(tx pgx.Tx) error {
					_, err := tx.Exec(ctx, "SELECT 1")
					return err
				}))
			})
		}()
		outcome, err := box.Wait(ctx, tickets[0])
		stop()
		if err := errors.Join(err, <-served); err != nil {
			return err
		}
		assert.Equal(t, turns.Outcome{State: turns.Done, Value: []byte("done")}, outcome)
		_, looked := box.Look(ctx, tickets[0])
		_, counted := box.Stats(ctx)
		_, listed := box.DeadLetters(ctx, namespace.Key{}, 0, 10)
		_, named := turns.Names(ctx, pool)
		_, shown := box.Entities(ctx, turns.EntityReady, 10)
		_, one := box.Entity(ctx, agents.ID(entity))
		_, waiting := box.Messages(ctx, agents.ID(entity), 0, 10)
		assert.ErrorIs(t, box.Interrupt(ctx, agents.ID(entity), "stop"), turns.ErrNotRunning)
		assert.ErrorIs(t, box.Retry(ctx, 1<<40), turns.ErrNotFound)
		assert.ErrorIs(t, box.Skip(ctx, 1<<40), turns.ErrNotFound)
		// In the transaction of database/sql, whose role can be read-only by default.
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "SET TRANSACTION READ WRITE"); err == nil {
			_, err = box.SendManySQL(ctx, tx, []turns.Envelope{{Entity: agents.ID(entity)}})
			assert.NoError(t, err)
		}
		return errors.Join(looked, counted, listed, named, shown, one, waiting, tx.Rollback())
	})(ctx, t, s)
}

// sender is a mailbox that sends only in transactions of others.
func sender(ctx context.Context) (*turns.Mailbox, error) {
	pool, err := pgxpool.New(ctx, "postgres://localhost/none") // it never connects
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	return turns.Open(ctx, turns.Config{Pool: pool, Name: "seams", Namespace: agents})
}

func useTurnsTx(ctx context.Context, tx pgx.Tx) error {
	box, err := sender(ctx)
	if err != nil {
		return err
	}
	_, err = box.Send(ctx, tx, agents.ID(1), turns.Message{ID: "m1", Body: []byte("x")})
	return err
}

func useTurnsSQLTx(ctx context.Context, tx *sql.Tx) error {
	box, err := sender(ctx)
	if err != nil {
		return err
	}
	_, err = box.SendSQL(ctx, tx, agents.ID(2), turns.Message{Body: []byte("x")})
	return err
}
