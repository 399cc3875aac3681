// Package guardtest attacks the guards of transactions: of elections, shards and leases, and the claims of
// package once in a transaction. Each guard has the same promises, and the suite attacks each promise.
//
// A guard checks a right in the caller's transaction. The transaction then commits before any later right
// begins, or not at all.
package guardtest

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/txshapes"
	"github.com/pglatch/pglatch/internal/txguard"
)

// A Guard describes a guard to the suite.
type Guard struct {
	// Open returns the rights of one number in a database. Rights of different numbers are independent.
	Open func(t testing.TB, dsn string, number int) Rights
	// Ended matches the error of a guard whose right another holder has, or has had.
	Ended error
	// Lasts means that a right guards until the next one begins, even if it has ended before.
	Lasts bool
	// Keeps means that a refusal leaves the transaction as it was.
	Keeps bool
	// TTL is the lease of a right, which limits how long its transaction may be idle.
	TTL time.Duration
	// Names is how many texts differ only by names for savepoints, which depend on the tests that run at once.
	Names int
	// NoLimits means that a guard sets no limits for its transaction.
	NoLimits bool
	// ReadOnly means that the guard locks a row, so that it refuses read-only transactions.
	ReadOnly bool
	// Elsewhere is in the text of the error in a database that has not the rights.
	Elsewhere string
	// Cannot names the attacks that cannot meet this guard. It gives the reason for each.
	Cannot map[string]string
}

// OddName is a name with what placeholders and literals look like in SQL and in libraries.
const OddName = `a's $1 ? ?0 :name @name {{x}} %s \ "q"`

// Rights are successive rights, of which each begins after the one before has ended.
type Rights interface {
	// Begin gives the next right to a holder. The one before has ended, and no guarded transaction is under way.
	Begin(tb testing.TB, holder string) Right
	// Blocked makes attempts for a holder, until guarded transactions hold one up. It fails if one succeeds.
	Blocked(tb testing.TB, holder string)
}

// A Right is one right of a holder.
type Right struct {
	Functions
	// Ends are the ways in which the right ends. Each leaves nobody with a right. "a release" is the usual one.
	Ends map[string]End
	// Outlives are events that change the record of the right, which lasts.
	Outlives map[string]func(tb testing.TB)
}

// An End is a way in which a right ends.
type End struct {
	Do func(tb testing.TB)
	// Errors has an error that a guard's matches after it, until the next right begins; nil = Guard.Ended.
	Errors []error
	// Waits means that Do waits for guarded transactions that are under way.
	Waits bool
}

// Functions guard transactions by one right. InTx and InSQLTx are nil if there are no such functions.
type Functions struct {
	Guard    func(ctx context.Context, tx pgsession.PgxTx) error
	GuardSQL func(ctx context.Context, tx pgsession.SQLTx) error
	InTx     func(ctx context.Context, pool txguard.Beginner, options pgx.TxOptions, fn func(ctx context.Context, tx pgx.Tx) error) error
	InSQLTx  func(ctx context.Context, db *sql.DB, options *sql.TxOptions, fn func(ctx context.Context, tx *sql.Tx) error) error
}

// Of returns the functions for the right of the context of a holder's work, in which the functions find it.
func (f Functions) Of(work context.Context) Functions {
	return Functions{
		func(ctx context.Context, tx pgsession.PgxTx) error { return f.Guard(under{ctx, work}, tx) },
		func(ctx context.Context, tx pgsession.SQLTx) error { return f.GuardSQL(under{ctx, work}, tx) },
		func(ctx context.Context, pool txguard.Beginner, options pgx.TxOptions, fn func(context.Context, pgx.Tx) error) error {
			return f.InTx(under{ctx, work}, pool, options, fn)
		},
		func(ctx context.Context, db *sql.DB, options *sql.TxOptions, fn func(context.Context, *sql.Tx) error) error {
			return f.InSQLTx(under{ctx, work}, db, options, fn)
		},
	}
}

// under is a context with the values of the context of a right's work.
type under struct {
	context.Context
	work context.Context
}

func (u under) Value(key any) any {
	if v := u.work.Value(key); v != nil {
		return v
	}
	return u.Context.Value(key)
}

// attacks are all attacks of the suite, in the order of what they cost a user.
var attacks = []struct {
	name string
	run  func(a arena)
}{
	{"a guard that comes late", late},
	{"a takeover beside a guarded transaction", beside},
	{"a takeover between the statements of a guard", overtaken},
	{"events that a right outlives", outlives},
	{"savepoints", savepoints},
	{"a prepared transaction", prepared},
	{"values that are no transactions", noTransactions},
	{"transactions of all kinds", transactions},
	{"two rights in one transaction", two},
	{"another database", elsewhere},
	{"another database with the same rights", elsewhereAlike},
	{"a search path with traps", searchPath},
	{"a lenient cast", lenientCast},
	{"a read-only transaction", readOnly},
	{"settings of the caller", settings},
	{"contexts that end", contexts},
	{"an aborted transaction", aborted},
	{"the number of statements", counts},
	{"the texts of statements", texts},
	{"InTx: options", options},
	{"InTx: errors and panics", failures},
	{"InTx: a function that ends the transaction", endings},
	{"InTx: a right that ends between the guards", between},
	{"InTx: guards and locks in the function", nested},
	{"writers that ignore the end of their right", stress},
}

// Run runs all attacks on a guard that can meet it.
func Run(t *testing.T, g Guard) {
	t.Helper()
	for name, reason := range g.Cannot {
		require.NotEmpty(t, reason, name)
		require.True(t, known(name), "%q is no attack", name)
	}
	for _, attack := range attacks {
		if reason := g.Cannot[attack.name]; reason != "" {
			t.Logf("%s: cannot meet this guard: %s", attack.name, reason)
			continue
		}
		t.Run(attack.name, func(t *testing.T) {
			t.Parallel()
			attack.run(newArena(t, g))
		})
	}
}

func known(name string) bool {
	for _, attack := range attacks {
		if attack.name == name {
			return true
		}
	}
	return false
}

// An arena is a database for one attack.
type arena struct {
	*testing.T
	Guard
	dsn    string
	pool   *pgxpool.Pool
	db     *sql.DB
	rights Rights
}

func newArena(t *testing.T, g Guard) arena {
	t.Helper()
	return newArenaIn(t, g, pgtest.DSN(t))
}

func newArenaIn(t *testing.T, g Guard, dsn string) arena {
	t.Helper()
	a := arena{T: t, Guard: g, dsn: dsn}
	a.connect(dsn)
	a.exec("CREATE TABLE public.written (what text)")
	a.rights = g.Open(t, dsn, 0)
	return a
}

// connect opens the pools of the arena.
func (a *arena) connect(dsn string) {
	a.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(a, err)
	config.MaxConns = max(config.MaxConns, 16) // for transactions that stay open
	a.pool, err = pgxpool.NewWithConfig(a.Context(), config)
	require.NoError(a, err)
	a.Cleanup(a.pool.Close)
	a.db, err = sql.Open("pgx", dsn)
	require.NoError(a, err)
	a.Cleanup(func() { _ = a.db.Close() })
}

// each runs a part of an attack in a database of its own.
func (a arena) each(name string, part func(a arena)) {
	a.Helper()
	a.Run(name, func(t *testing.T) {
		t.Parallel()
		part(newArena(t, a.Guard))
	})
}

func (a arena) exec(statement string) {
	a.Helper()
	dbtest.Exec(a, a.pool, statement)
}

func ask[T any](a arena, query string, args ...any) T {
	a.Helper()
	return dbtest.One[T](a, a.pool, query, args...)
}

// begin begins a transaction, which is rolled back at the end of the test. It takes its snapshot.
func (a arena) begin(level pgx.TxIsoLevel) pgx.Tx {
	a.Helper()
	tx, err := a.pool.BeginTx(context.WithoutCancel(a.Context()), pgx.TxOptions{IsoLevel: level})
	require.NoError(a, err)
	a.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(a.Context())) })
	_, err = tx.Exec(a.Context(), "SELECT count(*) FROM public.written")
	require.NoError(a, err)
	return tx
}

// plain begins a transaction with the defaults of PostgreSQL.
func (a arena) plain() pgx.Tx {
	a.Helper()
	return a.begin(pgx.ReadCommitted)
}

func (a arena) written() int {
	a.Helper()
	return ask[int](a, "SELECT count(*) FROM public.written")
}

func write(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "INSERT INTO public.written VALUES ('x')")
	return err
}

func writeSQL(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO public.written VALUES ('x')")
	return err
}

// commit writes in a transaction and commits it.
func (a arena) commit(tx pgx.Tx) {
	a.Helper()
	require.NoError(a, errors.Join(write(a.Context(), tx), tx.Commit(a.Context())))
}

// guard guards a transaction of either driver.
func (r Right) guard(ctx context.Context, tx any) error {
	if tx, ok := tx.(pgsession.PgxTx); ok {
		return r.Guard(ctx, tx)
	}
	return r.GuardSQL(ctx, tx.(pgsession.SQLTx))
}

// end ends a right by a release.
func (r Right) end(tb testing.TB) {
	tb.Helper()
	r.Ends["a release"].Do(tb)
}

// over ends a right, so that its guards refuse. It returns what their error matches.
func (a arena) over(rights Rights, right Right) []error {
	a.Helper()
	right.end(a)
	if a.Lasts {
		rights.Begin(a, "the next")
		return []error{a.Ended}
	}
	return a.errorsAfter(right.Ends["a release"])
}

// errorsAfter returns what the error of a guard matches after an end.
func (a arena) errorsAfter(end End) []error {
	if end.Errors != nil {
		return end.Errors
	}
	return []error{a.Ended}
}

// requireOneOf requires that an error matches one of some.
func (a arena) requireOneOf(err error, wanted []error, about ...any) {
	a.Helper()
	require.True(a, slices.ContainsFunc(wanted, func(want error) bool { return errors.Is(err, want) }), "%v: %v: none of %v", about, err, wanted)
}

// requireRefused requires that a guard refused with one of some errors, and that its transaction can write no more.
func (a arena) requireRefused(tx any, err error, wanted ...error) {
	a.Helper()
	a.requireOneOf(err, wanted)
	a.requireStopped(tx, err)
}

// requireStopped requires that a transaction can write no more after the error of a guard, unless it is a refusal
// that leaves the transaction as it was.
func (a arena) requireStopped(tx any, err error) {
	a.Helper()
	require.Error(a, err)
	if !a.Keeps || !errors.Is(err, a.Ended) {
		a.requireAborted(tx)
	}
}

// requireAborted requires that a transaction can write no more.
func (a arena) requireAborted(tx any) {
	a.Helper()
	require.Equal(a, sqlstate.FailedTransaction, sqlstate.Of(txshapes.Exec(context.WithoutCancel(a.Context()), tx, "SELECT 1")), "it is not aborted")
}

var levels = []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}

// isSnapshotTooOld reports whether an error asks for another try of the whole transaction.
func isSnapshotTooOld(level pgx.TxIsoLevel, err error) bool {
	return level != pgx.ReadCommitted && sqlstate.Of(err) == "40001"
}

// locks counts the advisory locks of the database. Each guard has one, for the takeover to see whose it is.
func (a arena) locks() int {
	a.Helper()
	return ask[int](a, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
}

// waiting waits until a session of the database waits for a lock.
func (a arena) waiting() {
	a.Helper()
	await.Until(a, await.Soon, func() bool {
		return ask[int](a, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") > 0
	}, "nobody waits")
}
