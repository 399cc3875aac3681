package guardtest

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
)

// successions are what follows the end of a right, before a late guard of it comes.
var successions = map[string]func(a arena, right Right, end End){
	"and nobody follows": func(a arena, _ Right, end End) {
		end.Do(a)
	},
	"and another follows": func(a arena, _ Right, end End) {
		end.Do(a)
		a.rights.Begin(a, "b").end(a)
	},
	"and the same holder follows": func(a arena, _ Right, end End) {
		end.Do(a)
		a.rights.Begin(a, "b").end(a)
		a.rights.Begin(a, "a").end(a)
	},
	"beside a guarded transaction": func(a arena, right Right, end End) {
		inFlight := a.plain()
		require.NoError(a, right.Guard(a.Context(), inFlight))
		a.beside(end, inFlight)
		a.rights.Begin(a, "b").end(a)
	},
}

// beside ends a right while a guarded transaction is under way, and commits that.
func (a arena) beside(end End, inFlight pgx.Tx) {
	a.Helper()
	if !end.Waits {
		end.Do(a)
		a.rights.Blocked(a, "b")
		a.commit(inFlight)
		return
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		end.Do(a)
	}()
	a.waiting()
	a.commit(inFlight)
	await.Receive(a, await.Soon, ended, "it waits for a transaction that has ended")
}

// late has a transaction begin under a right, take its snapshot, and guard after the right has ended.
func late(a arena) {
	for how := range a.rights.Begin(a, "a").Ends {
		for then, follow := range successions {
			a.each(how+", "+then, func(a arena) {
				for _, level := range levels {
					a.late(level, how, then, follow)
				}
			})
		}
	}
}

func (a arena) late(level pgx.TxIsoLevel, how, then string, follow func(arena, Right, End)) {
	a.Helper()
	right := a.rights.Begin(a, "a")
	end := right.Ends[how]
	late, inner := a.begin(level), a.begin(level)
	inTime := a.begin(level)
	require.NoError(a, errors.Join(right.Guard(a.Context(), inTime), write(a.Context(), inTime), inTime.Rollback(a.Context())), level)
	follow(a, right, end)

	want := []error{a.Ended}
	if then == "and nobody follows" {
		if a.Lasts {
			a.commit(a.guarded(a.plain(), right))
			a.rights.Begin(a, "b").end(a)
		} else {
			want = a.errorsAfter(end)
		}
	}
	before := a.written()
	refused := func(tx pgx.Tx, err error) {
		a.Helper()
		if !isSnapshotTooOld(level, err) && (level == pgx.ReadCommitted || !errors.Is(err, a.Ended)) {
			a.requireOneOf(err, want, level)
		}
		a.requireStopped(tx, err)
	}
	refused(late, right.Guard(a.Context(), late))
	savepoint, err := inner.Begin(a.Context())
	require.NoError(a, err)
	refused(savepoint, right.Guard(a.Context(), savepoint))
	again := a.begin(level) // the whole transaction, tried again
	a.requireRefused(again, right.Guard(a.Context(), again), want...)
	if right.InTx != nil {
		a.requireOneOf(right.InTx(a.Context(), a.pool, pgx.TxOptions{IsoLevel: level}, write), want, level)
	}
	assert.Equal(a, before, a.written(), level)
	bare := a.plain()
	a.commit(bare) // the control: without a guard
}

// guarded guards a transaction by a right that lasts.
func (a arena) guarded(tx pgx.Tx, right Right) pgx.Tx {
	a.Helper()
	require.NoError(a, right.Guard(a.Context(), tx))
	return tx
}

// beside has the next right wait for a guarded transaction, and see what it wrote.
func beside(a arena) {
	for how, end := range a.rights.Begin(a, "a").Ends {
		if end.Waits {
			continue // the end itself waits
		}
		for _, level := range levels {
			a.each(how+", "+string(level), func(a arena) {
				right := a.rights.Begin(a, "a")
				end := right.Ends[how]
				inFlight := a.begin(level)
				require.NoError(a, right.Guard(a.Context(), inFlight))
				end.Do(a)
				a.rights.Blocked(a, "b")
				late := a.plain()
				if err := right.Guard(a.Context(), late); a.Lasts {
					require.NoError(a, err, "before the next right begins")
					require.NoError(a, late.Commit(a.Context()))
				} else {
					a.requireStopped(late, err) // while a takeover waits
				}
				require.NoError(a, write(a.Context(), inFlight))
				a.rights.Blocked(a, "b")
				require.NoError(a, inFlight.Commit(a.Context()))
				next := a.rights.Begin(a, "b")
				assert.Equal(a, 1, a.written())
				require.NoError(a, right.guardAnew(a, next))
			})
		}
	}
}

// guardAnew guards a transaction by the next right, and requires that this right guards none any more.
func (r Right) guardAnew(a arena, next Right) error {
	a.Helper()
	tx := a.plain()
	a.requireRefused(tx, r.Guard(a.Context(), tx), a.Ended)
	return next.Guard(a.Context(), a.plain())
}

// An interrupted transaction calls between before each statement but the first.
type interrupted struct {
	pgx.Tx
	sent    *int
	between func(n int)
}

func (tx interrupted) next() {
	if *tx.sent++; *tx.sent > 1 {
		tx.between(*tx.sent)
	}
}

func (tx interrupted) Exec(ctx context.Context, sql string, args ...any) (tag commandTag, err error) {
	tx.next()
	return tx.Tx.Exec(ctx, sql, args...)
}

func (tx interrupted) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	tx.next()
	return tx.Tx.QueryRow(ctx, sql, args...)
}

// overtaken ends the right between two statements of a guard. The guard must refuse, or the next right waits.
func overtaken(a arena) {
	for _, level := range levels {
		right := a.rights.Begin(a, "a")
		sent, ended := 0, false
		tx := a.begin(level)
		err := right.Guard(a.Context(), interrupted{tx, &sent, func(int) {
			if !ended {
				ended = true
				right.end(a)
			}
			a.rights.Blocked(a, "b")
		}})
		require.True(a, ended, "a guard is one statement")
		require.NoError(a, err)
		a.rights.Blocked(a, "b")
		a.commit(tx)
		a.rights.Begin(a, "b").end(a)
	}
}

// outlives has a right change its record between a transaction's snapshot and its guard, and beside a guarded
// transaction.
func outlives(a arena) {
	for how := range a.rights.Begin(a, "a").Outlives {
		a.each(how, func(a arena) {
			right := a.rights.Begin(a, "a")
			for _, level := range levels {
				late, inFlight := a.begin(level), a.begin(level)
				require.NoError(a, right.Guard(a.Context(), inFlight))
				right.Outlives[how](a)
				a.commit(inFlight)
				if err := right.Guard(a.Context(), late); isSnapshotTooOld(level, err) {
					a.requireAborted(late)
					late = a.begin(level) // the whole transaction, tried again
					require.NoError(a, right.Guard(a.Context(), late), level)
				} else {
					require.NoError(a, err, level)
				}
				require.NoError(a, late.Commit(a.Context()))
			}
		})
	}
}

// savepoints are released, with the guard in them, and rolled back.
func savepoints(a arena) {
	for _, level := range levels {
		a.each(string(level), func(a arena) {
			right := a.rights.Begin(a, "a")
			alone := a.locks()
			tx := a.begin(level)
			savepoint, err := tx.Begin(a.Context())
			require.NoError(a, err)
			require.NoError(a, right.Guard(a.Context(), savepoint))
			require.NoError(a, savepoint.Commit(a.Context()))
			assert.Equal(a, alone+1, a.locks(), "a released savepoint keeps the guard")
			right.end(a)
			a.rights.Blocked(a, "b")
			a.commit(tx)

			right = a.rights.Begin(a, "b")
			alone = a.locks()
			tx = a.begin(level)
			savepoint, err = tx.Begin(a.Context())
			require.NoError(a, err)
			require.NoError(a, right.Guard(a.Context(), savepoint))
			require.NoError(a, savepoint.Rollback(a.Context()))
			assert.Equal(a, alone, a.locks(), "nothing is guarded")
			right.end(a)
			a.rights.Begin(a, "a") // it waits for nothing
			err = right.Guard(a.Context(), tx)
			if !isSnapshotTooOld(level, err) {
				require.ErrorIs(a, err, a.Ended)
			}
			a.requireStopped(tx, err)
		})
	}
}

// prepared leaves a guarded transaction prepared, across a restart of the server.
func prepared(a arena) {
	server := pgtest.StartServer(a.T, pgserver.Options{Settings: map[string]string{"max_prepared_transactions": "5"}})
	a = newArenaIn(a.T, a.Guard, server.DSN(""))
	for _, level := range levels {
		right := a.rights.Begin(a, "a")
		tx := a.begin(level)
		require.NoError(a, right.Guard(a.Context(), tx))
		require.NoError(a, write(a.Context(), tx))
		_, err := tx.Exec(a.Context(), "PREPARE TRANSACTION 'order 4711'")
		require.NoError(a, err)
		right.end(a)
		a.rights.Blocked(a, "b")
		a.exec("COMMIT PREPARED 'order 4711'")
		a.rights.Begin(a, "b").end(a)
	}
	assert.Equal(a, len(levels), a.written())
}

// two rights guard one transaction, and another transaction is guarded by one of them.
func two(a arena) {
	other := a.Open(a, a.dsn, 1)
	for _, level := range levels {
		first, second := a.rights.Begin(a, "a"), other.Begin(a, "b")
		tx := a.begin(level)
		require.NoError(a, errors.Join(first.Guard(a.Context(), tx), second.Guard(a.Context(), tx)))
		a.commit(tx)
		first.end(a)
		second.end(a)
	}
	first, second := a.rights.Begin(a, "a"), other.Begin(a, "b")
	ended := a.over(other, second)
	for _, level := range levels {
		tx := a.begin(level)
		require.NoError(a, first.Guard(a.Context(), tx))
		a.requireRefused(tx, second.Guard(a.Context(), tx), ended...)
		require.NoError(a, tx.Rollback(a.Context()))
	}
	third := a.Open(a, a.dsn, 2)
	held := a.plain()
	require.NoError(a, third.Begin(a, "c").Guard(a.Context(), held))
	first.end(a)
	a.rights.Begin(a, "b") // the transaction of another right does not matter
	require.NoError(a, held.Rollback(a.Context()))
	assert.Equal(a, len(levels), a.written())
}

// elsewhere guards a transaction in a database that has not the right.
func elsewhere(a arena) {
	right := a.rights.Begin(a, "a")
	other := arena{T: a.T, Guard: a.Guard}
	other.connect(pgtest.DSN(a))
	other.exec("CREATE TABLE public.written (what text)")
	for _, level := range levels {
		tx := other.begin(level)
		require.ErrorContains(a, right.Guard(a.Context(), tx), a.Elsewhere)
		other.requireAborted(tx)
	}
	require.NoError(a, right.Guard(a.Context(), a.plain()), "the control")
}

// elsewhereAlike guards a transaction in a database that has a right of the same number, holder and place in the
// order. It is another right.
func elsewhereAlike(a arena) {
	right := a.rights.Begin(a, "a")
	other := newArena(a.T, a.Guard)
	alike := other.rights.Begin(a, "a")
	for _, level := range levels {
		tx := other.begin(level)
		other.requireRefused(tx, right.Guard(a.Context(), tx), a.Ended)
		require.NoError(a, alike.Guard(a.Context(), other.begin(level)), "the control")
	}
}
