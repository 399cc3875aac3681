package servecmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/pglatch/pglatch/cmd/internal/lockserver"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/backoff"
)

const (
	// electionTTL is how long a server that is stopped or cut off stays the active one.
	electionTTL = 5 * time.Second
	// electionLook is how often a server looks which one is active.
	electionLook = 500 * time.Millisecond
)

// An election elects the active server of a store. It is the leaseserver.Election of one server.
// The identity of a candidate is its URL. A fragment distinguishes two processes of one URL.
type election struct {
	app      *program.App
	opened   *lockserver.OpenStore
	url      string
	identity string // the url and a fragment

	mu      sync.Mutex
	elector *leader.Elector
	changed chan struct{}
	told    string // the answer of Active when changed was closed last
}

// Active implements leaseserver.Election.
func (e *election) Active() (url string, self bool, changed <-chan struct{}) {
	e.mu.Lock()
	elector, changed := e.elector, e.changed
	e.mu.Unlock()
	switch {
	case elector == nil:
		return "", false, changed
	case elector.IsLeader():
		return e.url, true, changed
	}
	holder, ok, _ := elector.LeaderSeen()
	if !ok || holder.Identity == e.identity {
		return "", false, changed
	}
	url, _, _ = strings.Cut(holder.Identity, "#")
	return url, false, changed
}

// start takes part in the election until ctx ends or stop is called; a nil election does nothing.
func (e *election) start(ctx context.Context) (stop func(), err error) {
	if e == nil {
		return func() {}, nil
	}
	backends, err := e.opened.Backends()
	if err != nil {
		return nil, err
	}
	for i, backend := range backends {
		elector, err := leader.New(leader.Config{
			Name: "lock server", Backend: backend, Identity: e.identity, LeaseDuration: electionTTL,
			Retry: backoff.Fixed{Interval: electionLook}, Callbacks: e.callbacks(), Logger: e.app.Logger(),
		})
		if err != nil {
			return nil, err
		}
		e.mu.Lock()
		e.elector = elector
		e.mu.Unlock()
		if err = elector.Start(ctx); err == nil {
			break
		}
		if i == len(backends)-1 || !errors.Is(err, leader.ErrPermanent) {
			return nil, err
		}
		e.app.Logger().Info("a lease in the store elects the active server, and no session of the database", slog.Any("error", err))
	}
	return background.Run(ctx, func(ctx context.Context) {
		<-ctx.Done()
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), electionTTL)
		defer cancel()
		_ = e.elector.Shutdown(end) // else it ends after electionTTL
	}), nil
}

func (e *election) callbacks() leader.Callbacks {
	return leader.Callbacks{
		OnStateChange: func(_, _ leader.State) { e.notify() },
		OnAcquired:    func(leader.Term) { e.notify() },
		OnRecovered:   func(leader.Term) { e.notify() },
		OnNewLeader:   func(leader.Holder) { e.notify() },
	}
}

// notify closes changed if the answer of Active differs.
func (e *election) notify() {
	url, self, _ := e.Active()
	e.mu.Lock()
	defer e.mu.Unlock()
	answer := fmt.Sprint(self, url)
	if answer == e.told {
		return
	}
	e.told = answer
	close(e.changed)
	e.changed = make(chan struct{})
}
