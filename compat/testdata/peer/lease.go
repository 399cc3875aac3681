package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/postgres"
	"github.com/pglatch/pglatch/lease/sqlite"
)

var (
	isNotReady = is(lease.ErrNotReady)
	isForeign  = is(sqlite.ErrForeign)
)

// A leases uses a store. A claim is one line of JSON, which the other version reads.
type leases struct {
	store lease.Store
	pool  *pgxpool.Pool // nil of a file
	end   func()
}

func newLeases(ctx context.Context, dsn string, _ []string) (role, error) {
	pool, err := connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	store, err := postgres.New(postgres.Config{Pool: pool})
	return &leases{store: store, pool: pool, end: pool.Close}, err
}

// newFile uses a file of SQLite.
func newFile(ctx context.Context, _ string, _ []string) (role, error) {
	store, err := sqlite.Open(ctx, os.Getenv("COMPAT_FILE"), sqlite.Config{})
	if err != nil {
		return nil, err
	}
	return &leases{store: store, end: func() { _ = store.Close() }}, nil
}

func (l *leases) close() { l.end() }

func (l *leases) answer(ctx context.Context, verb string, args []string) (string, error) {
	if verb == "acquire" {
		got, err := l.store.Acquire(ctx, lease.AcquireRequest{Name: args[0], Holder: args[1], IdempotencyKey: args[1], TTL: time.Minute, Metadata: map[string]string{"by": args[1]}})
		if held, ok := errors.AsType[*lease.HeldError](err); ok {
			return "held by " + held.Holder, nil
		}
		if err != nil {
			return "", err
		}
		claim, err := json.Marshal(got.Claim)
		return string(claim), err
	}
	var c lease.Claim
	if err := json.Unmarshal([]byte(strings.Join(args, " ")), &c); err != nil {
		return "", err
	}
	var err error
	switch verb {
	case "renew":
		_, err = l.store.Renew(ctx, lease.RenewRequest{Claim: c, TTL: time.Minute})
	case "release":
		if keyed, ok := l.store.(lease.KeyedReleaser); ok {
			err = keyed.ReleaseKeyed(ctx, lease.ReleaseRequest{Claim: c, IdempotencyKey: "release"})
		} else {
			err = l.store.Release(ctx, c)
		}
	case "guard":
		err = pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
			if err := postgres.Guard(ctx, tx, c); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "UPDATE counter SET n = n + 1")
			return err
		})
	default:
		return "", unknown(verb)
	}
	if lease.IsOver(err) {
		return "over", nil
	}
	return map[string]string{"renew": "renewed", "release": "released", "guard": "guarded"}[verb], err
}
