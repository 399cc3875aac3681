package postgres

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/txguard"
	"github.com/pglatch/pglatch/once"
)

// A PgxTx has the methods that DoTx needs of a transaction; pgx.Tx has them. Pools and connections
// have them too, and are refused with ErrNoTransaction.
type PgxTx = pgsession.PgxTx

// A SQLTx has the methods that DoSQLTx needs of a transaction. *sql.Tx has them, and so do the
// transactions of libraries built on it. DoSQLTx sends no arguments, so their placeholder
// style does not matter.
type SQLTx = pgsession.SQLTx

// DoTx runs fn for a tick of a job in a transaction of the caller, unless the tick is taken. The
// tick's run and the changes of fn in the transaction are committed together, or not at all. There
// is nothing to renew, no Store and no Runner. DoTx and the runs of a Runner on the same table
// exclude each other.
//
// If another open transaction has claimed the tick, DoTx waits for at most a tenth of a second,
// and then Result.State is Running. To learn how that run ends, call DoTx again. The claim lasts
// as long as its transaction, so set idle_in_transaction_session_timeout if processes can be
// stopped or cut off.
//
// If fn returns an error or panics, its changes in the transaction and the claim are undone, up to
// an earlier savepoint. The caller may commit the transaction's other changes. Result.State is then
// Open. ClaimOf finds the claim in the ctx of fn, which may run other ticks in the transaction. If
// DoTx did not run a tick, the transaction holds no lock on it afterwards.
//
// In REPEATABLE READ and SERIALIZABLE, the transaction's snapshot can be older than another node's
// run. DoTx then returns once.ErrBusy, and never runs the tick a second time. PostgreSQL has then
// aborted the transaction. If the whole transaction is tried again, it finds out which node ran the
// tick. So it is best to make DoTx its first statement.
//
// *once.WindowError and *once.InvalidError leave the transaction unchanged. DoTx returns
// ErrNoTransaction if tx is not a transaction, ErrReadOnly if it is read-only, and once.ErrNotReady
// if the table is missing or lacks a column. If ctx ended before the claim, DoTx returns its cause,
// nothing was run, and the transaction is aborted. Any other error comes from the driver or from
// fn.
func DoTx(ctx context.Context, tx PgxTx, job string, tick time.Time, fn func(ctx context.Context) error) (once.Result, error) {
	return Options{}.DoTx(ctx, tx, job, tick, fn)
}

// DoSQLTx is DoTx for database/sql and the libraries built on it.
func DoSQLTx(ctx context.Context, tx SQLTx, job string, tick time.Time, fn func(ctx context.Context) error) (once.Result, error) {
	return Options{}.DoSQLTx(ctx, tx, job, tick, fn)
}

// Options are options of DoTx and DoSQLTx. The functions DoTx and DoSQLTx use the zero value.
type Options struct {
	Node   string        // as in once.Config
	Window time.Duration // the same; at most Keeps
	Early  time.Duration // the same
	Table  string        // as in Config
}

// DoTx is the function DoTx with options.
func (o Options) DoTx(ctx context.Context, tx PgxTx, job string, tick time.Time, fn func(ctx context.Context) error) (once.Result, error) {
	return o.do(ctx, pgsession.FromPgx(tx), job, tick, fn)
}

// DoSQLTx is the function DoSQLTx with options.
func (o Options) DoSQLTx(ctx context.Context, tx SQLTx, job string, tick time.Time, fn func(ctx context.Context) error) (once.Result, error) {
	return o.do(ctx, pgsession.FromSQL(tx), job, tick, fn)
}

func (o Options) do(ctx context.Context, tx pgsession.Tx, job string, tick time.Time, fn func(ctx context.Context) error) (once.Result, error) {
	if err := once.CheckWork(fn); err != nil {
		return once.Result{}, err
	}
	table := cmp.Or(o.Table, DefaultTable)
	if err := validateTable(table); err != nil {
		return once.Result{}, err
	}
	// The defaults and limits are those of a Runner on a Store.
	r, err := once.NewRequest(once.Config{Store: &Store{}, Node: o.Node, Window: o.Window, Early: o.Early}, job, tick)
	if err != nil {
		return once.Result{}, err
	}
	before, free := newSavepoint(tx)
	defer free()
	var c once.Claim
	err = txguard.Sent(ctx, tx, func() error {
		if err := before.set(ctx); err != nil {
			return failed(table, err)
		}
		c, err = lockAndClaim(ctx, tx, table, r)
		return err
	})
	if taken, ok := errors.AsType[*once.TakenError](err); ok {
		return once.Result{Record: taken.Record}, before.undo(ctx)
	}
	if errors.Is(err, once.ErrWindow) {
		if undone := before.undo(ctx); undone != nil {
			err = errors.Join(err, undone)
		}
	}
	if err != nil {
		return once.Result{}, err
	}
	result := once.Result{Did: true, Record: once.Record{Job: c.Job, Tick: c.Tick, State: once.Ran, Node: c.Node, Token: c.Token, Began: c.Began}}
	if err := before.call(ctx, func() error { return fn(once.WithClaim(ctx, c)) }); err != nil {
		result.State = once.Open
		return result, err
	}
	return result, nil
}

func lockAndClaim(ctx context.Context, tx pgsession.Tx, table string, r once.Request) (once.Claim, error) {
	if err := lock(ctx, tx, table, r); err != nil {
		return once.Claim{}, err
	}
	return claim(ctx, tx, table, ran, r)
}
