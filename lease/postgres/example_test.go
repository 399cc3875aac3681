package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/postgres"
)

// A guarded write commits under the current token, or not at all.
func ExampleGuard() {
	closeTheDay := func(ctx context.Context, pool *pgxpool.Pool, l lease.Lease) error {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := postgres.Guard(ctx, tx, l.Claim); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "UPDATE day SET closed = true WHERE day = current_date")
			return err
		})
		if errors.Is(err, lease.ErrStale) || errors.Is(err, lease.ErrExpired) {
			return nil // the new holder of the lease does it
		}
		return err
	}
	_ = closeTheDay // called with a lease that a Store granted
}

// A process renews all its leases in one statement.
func ExampleStore_RenewAll() {
	heartbeat := func(ctx context.Context, store *postgres.Store, leases []lease.Lease) error {
		var all []lease.RenewRequest
		for _, l := range leases {
			all = append(all, lease.RenewRequest{Claim: l.Claim, TTL: time.Minute})
		}
		results, err := store.RenewAll(ctx, all)
		if err != nil {
			return err
		}
		for i, r := range results {
			if r.Err != nil {
				fmt.Println("lost", leases[i].Name, r.Err)
			}
		}
		return nil
	}
	_ = heartbeat
}

// The SQL of a trigger, for a migration.
func ExampleFenceTrigger() {
	fmt.Fprint(os.Stdout, postgres.FenceTrigger("report", "token"))
	// Output:
	// CREATE OR REPLACE FUNCTION "report_token_fence"() RETURNS trigger LANGUAGE plpgsql AS $pglatch$
	// BEGIN
	// 	IF (NEW."token" OPERATOR(pg_catalog.>=) OLD."token") IS NOT TRUE AND OLD."token" IS NOT NULL THEN
	// 		RAISE EXCEPTION 'pglatch: fenced off: the row of % has token %, the write %', TG_RELID::pg_catalog.regclass, OLD."token", NEW."token"
	// 			USING ERRCODE = 'PGL02', COLUMN = 'token';
	// 	END IF;
	// 	RETURN NEW;
	// END $pglatch$;
	// CREATE OR REPLACE TRIGGER "report_token_fence" BEFORE UPDATE ON "report" FOR EACH ROW EXECUTE FUNCTION "report_token_fence"();
}
