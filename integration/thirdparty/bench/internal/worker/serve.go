package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/exclusion"
	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/gauge"
	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/system"
	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/workload"
)

// A served is the state of a worker: its client and its held locks.
type served struct {
	kind   system.System
	client system.Client // nil until opened
	table  *exclusion.Table
	held   []system.Held // must stay reachable
}

// Serve is the main function of a worker: it answers requests until in ends, and then closes
// its client.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	w := new(served)
	defer w.close()
	requests, replies := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var r request
		if err := requests.Decode(&r); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		answer, err := w.answer(ctx, r)
		if err != nil {
			answer.Error = err.Error()
			answer.Broken = errors.Is(err, exclusion.ErrTwoHolders)
		}
		if err := replies.Encode(answer); err != nil {
			return err
		}
	}
}

func (w *served) answer(ctx context.Context, r request) (a reply, err error) {
	bound, cancel := context.WithTimeoutCause(ctx, r.Bound, fmt.Errorf("not done in %s", r.Bound))
	defer cancel()
	switch {
	case r.Open != nil:
		return a, w.open(bound, *r.Open)
	case r.Load != nil:
		s, err := r.Load.Run(bound, w.client, w.table)
		return reply{Sample: &s}, err
	case r.Hold > 0:
		holder, ok := w.client.(system.Holder)
		if !ok {
			return a, errors.New("it cannot hold locks")
		}
		var s workload.Stock
		s, w.held, err = workload.Hold(bound, holder, r.Hold)
		return reply{Stock: &s}, err
	case r.Drop:
		var s workload.Stock
		s.Released, err = workload.Release(w.held)
		w.held = nil
		return reply{Stock: &s}, err
	case r.Lose > 0:
		guarded, ok := w.client.(system.Guarded)
		if !ok {
			return a, errors.New("it does not watch its locks")
		}
		a.Losses, err = guarded.Lose(bound, r.Lose)
		return a, err
	default:
		return w.finish(bound)
	}
}

func (w *served) open(ctx context.Context, o Open) (err error) {
	if w.kind, err = system.Find(o.System); err != nil {
		return err
	}
	if w.table, err = exclusion.Open(o.Table); err != nil {
		return err
	}
	w.client, err = w.kind.Open(ctx, o.Env)
	return err
}

// finish returns the client's cost, and makes a pglatch client prove its guards.
func (w *served) finish(ctx context.Context) (a reply, err error) {
	footprint, err := w.client.Footprint(ctx)
	if err != nil {
		return a, err
	}
	a.Cost = &Cost{Connections: footprint.Connections, RSSBytes: gauge.Memory("self", "VmRSS")}
	for _, pid := range footprint.PIDs {
		a.Cost.ServerBytes += gauge.Memory(strconv.Itoa(pid), "RssAnon")
	}
	if guarded, ok := w.client.(system.Guarded); ok && w.kind.Ours {
		err = guarded.Guards(ctx)
	}
	return a, err
}

// close ends the client. It ignores errors: all results have been sent, and the servers are
// thrown away.
func (w *served) close() {
	if w.client != nil {
		_ = w.client.Close()
	}
	if w.table != nil {
		_ = w.table.Close()
	}
	clear(w.held)
}
