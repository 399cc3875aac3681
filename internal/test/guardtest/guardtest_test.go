package guardtest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/broken"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/guardtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/txguard"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestTheSuiteFindsWhatIsBroken(t *testing.T) {
	broken.Run(t, func(t *testing.T, fault string) {
		t.Helper()
		guardtest.Run(t, guardtest.Guard{Open: open(fault), Ended: errEnded, Lasts: true, ReadOnly: true, Elsewhere: `"public.rights" does not exist`, TTL: ttl})
	}, map[string]string{
		"no check":                                   "a guard that comes late",
		"a refusal does not abort":                   "a guard that comes late",
		"no lock":                                    "a takeover beside a guarded transaction",
		"no lock, when a function commits":           "InTx: a right that ends between the guards",
		"no lock, and prepared":                      "a prepared transaction",
		"a renewal ends the right":                   "events that a right outlives",
		"no lock, and savepoints":                    "savepoints",
		"no lock, and many writers":                  "writers that ignore the end of their right",
		"the lock comes after the check":             "a takeover between the statements of a guard",
		"the lock outlives the transaction":          "transactions of all kinds",
		"no transaction is needed":                   "values that are no transactions",
		"all rights have one lock":                   "two rights in one transaction",
		"all databases have the same rights":         "another database with the same rights",
		"a database without rights is guarded":       "another database",
		"the search path finds operators":            "a search path with traps",
		"a refusal is a cast":                        "a lenient cast",
		"a read-only transaction has no right":       "a read-only transaction",
		"a lock_timeout of its own":                  "settings of the caller",
		"no limits":                                  "settings of the caller",
		"the context's end leaves the transaction":   "contexts that end",
		"an aborted transaction has no right":        "an aborted transaction",
		"a statement more":                           "the number of statements",
		"rights are in the texts":                    "the texts of statements",
		"InTx drops options":                         "InTx: options",
		"InTx commits what failed":                   "InTx: errors and panics",
		"InTx guards once":                           "InTx: a function that ends the transaction",
		"InTx takes other guards for another's mark": "InTx: guards and locks in the function",
	})
}

const ttl = time.Minute

var errEnded = errors.New("the right has ended")

// A right is a number in a row, and to begin it is to count it up. This guard shares a lock, and locks the row if
// it has the number.
const (
	shares = `WHEN pg_catalog.pg_advisory_xact_lock_shared(4711, $2::pg_catalog.int4) IS NULL THEN '0'
	`
	checks = `WHEN NOT coalesce((SELECT true FROM public.rights AS r WHERE r.i OPERATOR(pg_catalog.=) $2::pg_catalog.int4
		AND r.n OPERATOR(pg_catalog.=) $3::pg_catalog.int8 FOR SHARE), false) THEN '` + txguard.Refusal + `it is over'`
)

// statements returns the guards with a fault.
func statements(fault string) *txguard.Statements {
	refusals := shares + checks
	switch {
	case fault == "no check":
		refusals = strings.Replace(refusals, "AND r.n OPERATOR(pg_catalog.=) $3::pg_catalog.int8", "", 1)
	case strings.HasPrefix(fault, "no lock"):
		refusals = strings.Replace(checks, "FOR SHARE", "", 1)
	case fault == "the lock outlives the transaction":
		refusals = strings.Replace(refusals, "xact_", "", 1)
	case fault == "all rights have one lock":
		refusals = strings.Replace(refusals, "(4711, $2::pg_catalog.int4)", "(4711, 0)", 1)
	case fault == "the search path finds operators":
		refusals = strings.Replace(refusals, "OPERATOR(pg_catalog.=)", "=", 1)
	case fault == "no limits":
		return txguard.NewOwnStatements(refusals)
	case fault == "a lock_timeout of its own":
		refusals = "WHEN pg_catalog.set_config('lock_timeout', '1min', true) IS NULL THEN '0' " + refusals
	}
	return txguard.NewStatements(refusals, 3)
}

// A faulty guard is right but for its fault.
type faulty struct {
	pool       *pgxpool.Pool
	i          int
	fault      string
	statements *txguard.Statements
}

func open(fault string) func(tb testing.TB, dsn string, number int) guardtest.Rights {
	return func(tb testing.TB, dsn string, number int) guardtest.Rights {
		tb.Helper()
		pool := dbtest.Pool(tb, dsn)
		_, err := pool.Exec(tb.Context(), "CREATE TABLE IF NOT EXISTS public.rights (i int PRIMARY KEY, n bigint NOT NULL)")
		require.NoError(tb, err)
		first := rand.Int64() / 2 // no other database has these numbers
		if fault == "all databases have the same rights" {
			first = 0
		}
		_, err = pool.Exec(tb.Context(), "INSERT INTO public.rights VALUES ($1, $2)", number, first)
		require.NoError(tb, err)
		return &faulty{pool, number, fault, statements(fault)}
	}
}

// count counts the row up, unless guarded transactions keep it for longer than a time.
func (f *faulty) count(tb testing.TB, timeout string) (n int64, err error) {
	tb.Helper()
	err = pgx.BeginFunc(tb.Context(), f.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(tb.Context(), "SET LOCAL lock_timeout = '"+timeout+"'"); err != nil {
			return err
		}
		if _, err := tx.Exec(tb.Context(), "SELECT pg_advisory_xact_lock(4711, $1)", f.i); err != nil {
			return err
		}
		return tx.QueryRow(tb.Context(), "UPDATE public.rights SET n = n + 1 WHERE i = $1 RETURNING n", f.i).Scan(&n)
	})
	return n, err
}

func (f *faulty) Blocked(tb testing.TB, _ string) {
	tb.Helper()
	_, err := f.count(tb, "5ms")
	require.Equal(tb, sqlstate.LockNotAvailable, sqlstate.Of(err), "the next right begins beside a guarded transaction")
}

func (f *faulty) Begin(tb testing.TB, _ string) guardtest.Right {
	tb.Helper()
	n, err := f.count(tb, strconv.FormatInt((await.Soon/4).Milliseconds(), 10))
	require.NoError(tb, err)
	g := txguard.Guard{
		Package: "guardtest", Right: fmt.Sprint(n), Statements: f.statements,
		Args: append([]any{f.i, n}, txguard.Limits{Idle: ttl, Checks: true}.Args()...), Failed: f.failed,
	}
	if f.fault == "no limits" {
		g.Args = g.Args[:2]
	}
	return guardtest.Right{
		Functions: guardtest.Functions{
			Guard:    func(ctx context.Context, tx pgsession.PgxTx) error { return f.guard(ctx, g, pgsession.FromPgx(tx)) },
			GuardSQL: func(ctx context.Context, tx pgsession.SQLTx) error { return f.guard(ctx, g, pgsession.FromSQL(tx)) },
			InTx: func(ctx context.Context, pool txguard.Beginner, options pgx.TxOptions, fn func(context.Context, pgx.Tx) error) error {
				return f.inTx(ctx, g, pool, options, fn)
			},
			InSQLTx: g.InSQLTx,
		},
		Ends: map[string]guardtest.End{"a release": {Do: func(testing.TB) {}}},
		Outlives: map[string]func(testing.TB){"a renewal": func(tb testing.TB) {
			tb.Helper()
			if f.fault == "a renewal ends the right" {
				g.Args[1] = n + 1
			}
		}},
	}
}

func (f *faulty) failed(err error) error {
	_, refused := errors.AsType[*txguard.RefusedError](err)
	switch {
	case refused,
		f.fault == "a read-only transaction has no right" && errors.Is(err, txguard.ErrReadOnly),
		f.fault == "an aborted transaction has no right" && sqlstate.Of(err) == sqlstate.FailedTransaction:
		return errEnded
	case f.fault == "a database without rights is guarded" && sqlstate.Of(err) == sqlstate.UndefinedTable:
		return nil
	}
	return err
}

func (f *faulty) guard(ctx context.Context, g txguard.Guard, tx pgsession.Tx) error {
	var ended bool
	switch f.fault {
	case "a refusal does not abort":
		var n int64
		if err := tx.QueryRow(ctx, fmt.Sprintf("SELECT n FROM public.rights WHERE i = %d", f.i), &n); err == nil && fmt.Sprint(n) != g.Right {
			return errEnded
		}
	case "the lock comes after the check":
		if err := tx.QueryRow(ctx, fmt.Sprintf("SELECT n <> %s FROM public.rights WHERE i = %d", g.Right, f.i), &ended); err != nil || ended {
			return errors.Join(err, errEnded, txguard.Abort(ctx, tx))
		}
		return tx.Exec(ctx, "SELECT pg_advisory_xact_lock_shared(4711, $1::int)", f.i)
	case "no transaction is needed":
		if err := g.Guard(ctx, tx); !errors.Is(err, session.ErrNoTransaction) {
			return err
		}
		return nil
	case "a refusal is a cast":
		err := tx.Exec(ctx, "SELECT (CASE WHEN NOT EXISTS (SELECT FROM public.rights WHERE i = $1::int AND n = $2::bigint) THEN $3::text ELSE '1' END)::int",
			f.i, g.Right, txguard.Refusal)
		if err != nil {
			return errEnded
		}
		return nil
	case "the context's end leaves the transaction":
		if ctx.Err() != nil {
			return ctx.Err()
		}
	case "a statement more":
		return errors.Join(g.Guard(ctx, tx), g.Guard(ctx, tx))
	case "rights are in the texts":
		if err := tx.Exec(ctx, "SELECT pg_catalog.now() AS right_"+strconv.Itoa(f.i)); err != nil {
			return err
		}
	}
	return g.Guard(ctx, tx)
}

func (f *faulty) inTx(ctx context.Context, g txguard.Guard, pool txguard.Beginner, options pgx.TxOptions, fn func(context.Context, pgx.Tx) error) error {
	switch f.fault {
	case "InTx drops options":
		options = pgx.TxOptions{}
	case "InTx commits what failed":
		var failed error
		err := g.InTx(ctx, pool, options, func(ctx context.Context, tx pgx.Tx) error {
			failed = fn(ctx, tx)
			return nil
		})
		return errors.Join(err, failed)
	case "InTx guards once":
		return pgx.BeginTxFunc(ctx, pool, options, func(tx pgx.Tx) error {
			return errors.Join(g.Guard(ctx, pgsession.FromPgx(tx)), fn(ctx, tx))
		})
	case "InTx takes other guards for another's mark":
		return g.InTx(ctx, pool, options, func(ctx context.Context, tx pgx.Tx) error {
			var before, after string
			const mark = "SELECT current_setting('pglatch.outcome', true)"
			_ = tx.QueryRow(ctx, mark).Scan(&before)
			err := fn(ctx, tx)
			if _ = tx.QueryRow(ctx, mark).Scan(&after); err == nil && before != after {
				return &txguard.TxEndedError{}
			}
			return err
		})
	}
	return g.InTx(ctx, pool, options, fn)
}
