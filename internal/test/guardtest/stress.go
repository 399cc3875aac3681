package guardtest

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/soak"
)

// writers are how many write under each right, in how many transactions each. Each makes one more when the next
// right has begun.
const (
	writers         = 4
	writesPerWriter = 5
)

// stress has rights follow each other, while the holders of earlier ones go on writing under them. No write of a
// right follows one of a later right.
func stress(a arena) {
	a.exec("CREATE TABLE public.acts (n bigint GENERATED ALWAYS AS IDENTITY, number bigint NOT NULL)")
	stale := func() int {
		return ask[int](a, "SELECT count(*) FROM (SELECT number < max(number) OVER (ORDER BY n) AS stale FROM public.acts) AS t WHERE stale")
	}
	wrote, refused := a.stress(soak.Size(a.T, 25, 500), true, func() bool { return false })
	assert.Zero(a, stale(), "of %d writes, and %d refused", wrote, refused)
	assert.Positive(a, wrote)
	assert.Positive(a, refused)

	a.exec("DELETE FROM public.acts")
	for end := time.Now().Add(await.Patience); stale() == 0 && time.Now().Before(end); {
		a.stress(5, false, func() bool { return stale() > 0 })
	}
	assert.Positive(a, stale(), "the control: without a guard")
}

// stress returns how many transactions wrote, and how many could not.
func (a arena) stress(turns int, guarded bool, enough func() bool) (wrote, refused int64) {
	a.Helper()
	var did, not atomic.Int64
	var all sync.WaitGroup
	succeeded := func() {}
	for n := range turns {
		right := a.rights.Begin(a, []string{"a", "b", "c"}[n%3])
		succeeded()
		next := make(chan struct{})
		succeeded = func() { close(next) }
		var once sync.WaitGroup // until each has tried once
		for range writers {
			once.Add(1)
			all.Go(func() {
				for i := range writesPerWriter + 1 {
					if i == writesPerWriter {
						<-next
					}
					if a.act(right, int64(n), guarded) {
						assert.False(a, guarded && i == writesPerWriter, "a write after the next right began")
						did.Add(1)
					} else {
						not.Add(1)
					}
					if i == 0 {
						once.Done()
					}
				}
			})
		}
		once.Wait()
		ends := make([]string, 0, len(right.Ends))
		for how := range right.Ends {
			ends = append(ends, how)
		}
		slices.Sort(ends)
		right.Ends[ends[rand.IntN(len(ends))]].Do(a)
		if enough() {
			break
		}
	}
	a.rights.Begin(a, "d").end(a)
	succeeded()
	all.Wait()
	return did.Load(), not.Load()
}

// act is one transaction at a random isolation level. It may take its snapshot before the guard.
func (a arena) act(right Right, number int64, guarded bool) bool {
	ctx := context.WithoutCancel(a.Context())
	tx, err := a.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: levels[rand.IntN(len(levels))]})
	if err != nil {
		return false
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if rand.IntN(2) == 0 {
		if _, err := tx.Exec(ctx, "SELECT count(*) FROM public.written"); err != nil {
			return false
		}
	}
	if guarded && right.Guard(ctx, tx) != nil {
		return false
	}
	if rand.IntN(2) == 0 { // some transactions last until later rights write
		if _, err := tx.Exec(ctx, "SELECT pg_sleep(0.03 * random())"); err != nil {
			return false
		}
	}
	if _, err := tx.Exec(ctx, "INSERT INTO public.acts (number) VALUES ($1)", number); err != nil {
		return false
	}
	return tx.Commit(ctx) == nil
}
