package leased

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/once"
)

// A tick has two names. The names of a job's ticks sort in the order of time:
//
//	once/JOB@TICK      the lease of the node that runs it
//	once/JOB@TICK/end  how it ended
const (
	tickLayout = "2006-01-02T15:04:05.000000Z"
	endSuffix  = "/end"
	afterAll   = "/~" // after both names of a tick
)

func prefix(job string) string { return "once/" + job + "@" }

func runName(job string, tick time.Time) string { return prefix(job) + tick.UTC().Format(tickLayout) }

func endName(job string, tick time.Time) string { return runName(job, tick) + endSuffix }

// The metadata of an end.
const (
	idField    = "id"
	stateField = "state"
	tokenField = "token"
	beganField = "began"
)

func metadata(c once.Claim, s once.State) map[string]string {
	return map[string]string{
		idField: c.ID, stateField: s.String(), tokenField: strconv.FormatUint(c.Token, 10), beganField: c.Began.Format(time.RFC3339Nano),
	}
}

// noteOf returns the record that the lease of an end stands for.
func noteOf(job string, tick time.Time, end lease.Record) once.Record {
	r := once.Record{Job: job, Tick: tick, State: once.Ran, Node: end.Holder, Ended: end.AcquiredAt.UTC()}
	if end.Metadata[stateField] == once.Failed.String() {
		r.State = once.Failed
	}
	r.Token, _ = strconv.ParseUint(end.Metadata[tokenField], 10, 64)
	r.Began, _ = time.Parse(time.RFC3339Nano, end.Metadata[beganField])
	return r
}

// Look implements once.Store.
func (s *Store) Look(ctx context.Context, job string, from, to time.Time) ([]once.Record, error) {
	if err := once.ValidateJob(job); err != nil {
		return nil, err
	}
	before := once.Normal(from).Add(-time.Microsecond)
	last := runName(job, once.Normal(to)) + afterAll
	var records []once.Record
	for r, err := range s.leases.List(ctx, lease.ListRequest{Prefix: prefix(job), After: runName(job, before) + afterAll}) {
		if err != nil {
			return nil, failed(err)
		}
		if r.Name > last {
			break
		}
		text, ended := strings.CutSuffix(strings.TrimPrefix(r.Name, prefix(job)), endSuffix)
		tick, err := time.Parse(tickLayout, text)
		switch {
		case err != nil: // of another program
		case ended && len(records) > 0 && records[len(records)-1].Tick.Equal(tick):
			records[len(records)-1] = noteOf(job, tick, r)
		case ended:
			records = append(records, noteOf(job, tick, r))
		default:
			records = append(records, runOf(job, tick, r))
		}
	}
	return records, nil
}

// runOf returns the record that the lease of a tick stands for.
func runOf(job string, tick time.Time, run lease.Record) once.Record {
	r := once.Record{Job: job, Tick: tick, Node: run.Holder, Token: run.Token, Began: run.AcquiredAt.UTC()}
	if run.State == lease.Held {
		r.State = once.Running
	}
	return r
}
