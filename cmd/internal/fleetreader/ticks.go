package fleetreader

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/monitor/fleet"
	"github.com/pglatch/pglatch/once"
)

// lookedBack is how many ticks of a job are read.
const lookedBack = 20

// jobsSQL lists the jobs, and the newest ticks of each, by the index.
const jobsSQL = `WITH RECURSIVE jobs AS (
		(SELECT job FROM public.pglatch_once ORDER BY job LIMIT 1)
		UNION ALL
		SELECT (SELECT o.job FROM public.pglatch_once o WHERE o.job OPERATOR(pg_catalog.>) jobs.job ORDER BY o.job LIMIT 1) FROM jobs WHERE jobs.job IS NOT NULL)
	SELECT jobs.job, newest.first, newest.last
	FROM jobs, LATERAL (SELECT pg_catalog.min(t.tick), pg_catalog.max(t.tick)
		FROM (SELECT o.tick FROM public.pglatch_once o WHERE o.job OPERATOR(pg_catalog.=) jobs.job ORDER BY o.tick DESC LIMIT $1::pg_catalog.int8) t) AS newest (first, last)
	WHERE jobs.job IS NOT NULL LIMIT $2::pg_catalog.int8`

func (r *Reader) readJobs(ctx context.Context, f *fleet.Fleet) error {
	rows, err := r.pool.Query(ctx, jobsSQL, int64(lookedBack), int64(mostJobs)+1)
	if err != nil {
		return err
	}
	type bounds struct {
		Job         string
		First, Last time.Time
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[bounds])
	if err != nil {
		return err
	}
	now := time.Now()
	for _, b := range cut(f, all, mostJobs) {
		records, err := r.ticks.Look(ctx, b.Job, b.First, b.Last)
		if err != nil {
			return err
		}
		if len(records) == 0 {
			continue
		}
		j := newJob(b.Job, records, now)
		f.Jobs = append(f.Jobs, j)
		for _, tick := range claimable(j, records, now) {
			f.Locks[r.ticks.Lock(b.Job, tick)] = fleet.Lock{Kind: fleet.TickLock, Text: b.Job + " at " + tick.UTC().Format(time.DateTime)}
		}
	}
	return nil
}

// newJob describes a job by its newest ticks, in their order.
func newJob(name string, records []once.Record, now time.Time) fleet.Job {
	last := records[len(records)-1]
	j := fleet.Job{Name: name, Every: every(records), Last: fleet.Run{
		Tick: last.Tick, State: last.State.String(), Node: last.Node, Token: last.Token, Began: last.Began, Ended: last.Ended,
	}}
	if j.Every == 0 {
		return j
	}
	taken := map[int64]bool{}
	for _, r := range records {
		taken[r.Tick.UnixMicro()] = r.State != once.Open
	}
	tick := records[0].Tick
	for n := 0; !tick.After(now) && n < 10_000; tick, n = tick.Add(j.Every), n+1 {
		if !taken[tick.UnixMicro()] && now.Sub(tick) > grace(j.Every) {
			j.Missed = append(j.Missed, tick)
		}
	}
	j.Next = tick
	slices.Reverse(j.Missed)
	return j
}

// grace is how long after its tick a run may begin before the tick counts as missed here.
func grace(every time.Duration) time.Duration { return min(every/2, time.Minute) }

// every returns the time between the ticks, if nearly all are as far apart; gaps of several are ticks that nobody ran.
func every(records []once.Record) time.Duration {
	counts := map[time.Duration]int{}
	for i := 1; i < len(records); i++ {
		counts[records[i].Tick.Sub(records[i-1].Tick)]++
	}
	var usual time.Duration
	for d, n := range counts {
		if n > counts[usual] || n == counts[usual] && d < usual {
			usual = d
		}
	}
	fits := 0
	for d, n := range counts {
		if usual > 0 && d%usual == 0 {
			fits += n
		}
	}
	if usual <= 0 || counts[usual] < 2 || 3*counts[usual] < 2*(len(records)-1) || fits < len(records)-1 {
		return 0
	}
	return usual
}

// claimable returns the ticks whose locks may be held now: those of the table, and those around now. The claim of DoTx
// is in no table before it commits.
func claimable(j fleet.Job, records []once.Record, now time.Time) []time.Time {
	var all []time.Time
	for _, r := range records {
		all = append(all, r.Tick)
	}
	if j.Every > 0 {
		for i := -lookedBack; i <= 1; i++ {
			all = append(all, j.Next.Add(time.Duration(i)*j.Every))
		}
		return all
	}
	for minute := now.Truncate(time.Minute).Add(-time.Hour); !minute.After(now.Add(time.Minute)); minute = minute.Add(time.Minute) {
		all = append(all, minute)
	}
	return all
}
