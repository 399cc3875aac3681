// Package prove finds out what a server really does with locks, transactions and sessions, and what a pooler or proxy in
// front of it changes. It runs two sessions and a watcher through the user's connection string. It creates no table. Its
// keys are random, in a namespace that no other part of pglatch can use.
package prove

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	bound      = 5 * time.Second        // for one event
	total      = 20 * time.Second       // for all proofs, if answers take no time
	inARow     = 200                    // more answers than the proofs wait for in sequence
	far        = 200 * time.Millisecond // the longest round trip for which the proofs have time
	closeBound = time.Second            // for the end of a connection
	look       = 20 * time.Millisecond  // between two checks for an event
	resend     = 200 * time.Millisecond // between two cancel requests
	leaseTime  = time.Second            // the lease of the session whose lease is proven
)

// A Report is what was proven.
type Report struct {
	Between string    `json:"between"` // between this program and the server
	Proofs  []Result  `json:"proofs"`
	Parts   []Verdict `json:"parts"`
}

// An examiner examines one server.
type examiner struct {
	config   *pgx.ConnConfig
	sessions [3]*session // a, b and the watcher; nil = not open
	readings []reading

	identity string // of the server, while the proofs begin; "" = unknown
	between  string
	shared   bool        // a pooler gives one session to several clients
	moved    atomic.Bool // an answer came from another server process
}

// Run examines the server of config. It takes 20 seconds at most, or up to 60 if answers are slow. It returns an error only
// if the first connection fails.
func Run(ctx context.Context, config *pgx.ConnConfig) (Report, error) {
	e := &examiner{config: connConfig(config), between: "unknown"}
	defer func() { e.closeAll(ctx) }()
	var err error
	if e.sessions[0], err = e.open(ctx); err != nil {
		return Report{}, err
	}
	return e.report(ctx, proofs()), nil
}

// report makes proofs, and derives the verdicts.
func (e *examiner) report(ctx context.Context, all []proof) Report {
	limit := e.limit(ctx)
	limited, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no time left: the proofs before took the %d s", int(limit.Seconds())))
	results := e.prove(limited, all)
	cancel()
	e.doubtAnother(ctx, results)
	report := Report{Between: e.between, Proofs: results}
	for i := range parts {
		report.Parts = append(report.Parts, parts[i].judge(results))
	}
	return report
}

// limit is the time for all proofs. It grows with the time of an answer.
func (e *examiner) limit(ctx context.Context) time.Duration {
	sent := time.Now()
	_, _ = e.sessions[0].ask(ctx, "1") // if it fails, the first proof finds out
	return total + inARow*min(time.Since(sent), far)
}

// prove makes proofs, and judges each of them.
func (e *examiner) prove(ctx context.Context, all []proof) (results []Result) {
	var o observation
	for i := range all {
		p := &all[i]
		if p.session && e.shared {
			results = append(results, p.notShared())
			continue
		}
		if p.observe != nil { // otherwise the proof judges the observation of the previous one
			o = e.examine(ctx, p)
		}
		results = append(results, p.judge(o))
	}
	return results
}

// examine makes the observations of one proof. After a failure it ends the sessions, which frees their locks.
func (e *examiner) examine(ctx context.Context, p *proof) observation {
	ctx, cancel := context.WithCancel(ctx)
	x := &exam{
		ctx: ctx, of: e, observation: observation{seen: map[string]bool{}, detail: map[string]string{}},
		key: key{space, rand.Uint32N(1 << 31)}, //nolint:gosec // a key, not a secret
	}
	x.open()
	p.observe(x)
	x.readClock()
	if x.err != nil {
		x.doubt = x.err.Error()
	}
	cancel() // ends waits
	x.waits.Wait()
	if x.err != nil {
		e.closeAll(ctx)
	}
	return x.observation
}

func (e *examiner) closeAll(ctx context.Context) {
	for i, s := range e.sessions {
		s.close(ctx)
		e.sessions[i] = nil
	}
}

// Failed returns which of the named parts must not be used, and which are not proven.
func (r Report) Failed(names []string) (failed, unknown []string) {
	for _, v := range r.Parts {
		switch {
		case !slices.Contains(names, v.Part):
		case v.Use == MustNotBeUsed:
			failed = append(failed, v.Part)
		case v.Use == NotProven:
			unknown = append(unknown, v.Part)
		}
	}
	return failed, unknown
}
