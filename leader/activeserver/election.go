package activeserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/backoff"
	"github.com/pglatch/pglatch/leader/leased"
	"github.com/pglatch/pglatch/lease/leaseserver"
)

const (
	// duration is how long a server that is stopped or cut off stays the active one.
	duration = 5 * time.Second
	// lookEvery is how often a server looks which one is active.
	lookEvery = 500 * time.Millisecond
)

// An Election is one server's part in the election of the active server. It implements
// leaseserver.Election. It is safe for concurrent use.
type Election struct {
	config   Config
	identity string // the URL and a fragment, which distinguishes two processes of one URL

	mu      sync.Mutex
	elector *leader.Elector
	changed chan struct{}
	told    string // the answer of Active when changed was closed last
	stop    func() // nil = not started
}

var _ leaseserver.IdentifyingElection = (*Election)(nil)

// New returns an Election that has not started: it knows no active server. If the config is not valid, the
// error is a *leader.ConfigError, which names the field.
func New(c Config) (*Election, error) {
	c, err := c.validated()
	if err != nil {
		return nil, err
	}
	return &Election{config: c, identity: c.URL + "#" + rand.Text()[:4], changed: make(chan struct{})}, nil
}

// Active implements leaseserver.Election.
func (e *Election) Active() (url string, self bool, changed <-chan struct{}) {
	url, _, self, changed = e.ActiveProcess()
	return url, self, changed
}

// ActiveProcess implements leaseserver.IdentifyingElection.
func (e *Election) ActiveProcess() (url, process string, self bool, changed <-chan struct{}) {
	identity, self, changed := e.active()
	url, process, _ = strings.Cut(identity, "#")
	return url, process, self, changed
}

// active returns the identity of the active server's process, "" = it is not known, and the rest of Active.
func (e *Election) active() (identity string, self bool, changed <-chan struct{}) {
	e.mu.Lock()
	elector, changed := e.elector, e.changed
	e.mu.Unlock()
	switch {
	case elector == nil:
		return "", false, changed
	case elector.IsLeader():
		return e.identity, true, changed
	}
	holder, ok, _ := elector.LeaderSeen()
	if !ok || holder.Identity == e.identity {
		return "", false, changed
	}
	return holder.Identity, false, changed
}

// Start makes the server take part in the election until ctx ends or Stop is called. Then the server gives up
// its active role, so that another can take it. Start returns when the first attempt is over. It returns nil if
// this server or another one is active, or if the store cannot be reached at the moment. If no attempt can
// succeed, for example because rights are missing, the error matches leader.ErrPermanent. Start an Election
// once.
func (e *Election) Start(ctx context.Context) error {
	backends, err := e.backends()
	if err != nil {
		return err
	}
	var elector *leader.Elector
	for i, backend := range backends {
		elector, err = leader.New(leader.Config{
			Name: "lock server", Backend: backend, Identity: e.identity, LeaseDuration: duration,
			Retry: backoff.Fixed{Interval: lookEvery}, Callbacks: e.callbacks(), Logger: e.config.Logger,
		})
		if err != nil {
			return err
		}
		e.mu.Lock()
		e.elector = elector
		e.mu.Unlock()
		if err = elector.Start(ctx); err == nil {
			break
		}
		if i == len(backends)-1 || !errors.Is(err, leader.ErrPermanent) {
			return err
		}
		e.config.Logger.LogAttrs(ctx, slog.LevelInfo, "a lease in the store elects the active server, and no session of the database", slog.Any("error", err))
	}
	stop := background.Run(ctx, func(ctx context.Context) {
		<-ctx.Done()
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), duration)
		defer cancel()
		_ = elector.Shutdown(end) // else it ends with its lease
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stop = stop
	return nil
}

// Stop makes this server leave the election, and blocks until the server has given up its active role, for 5 s
// at most. Without a successful Start, it does nothing.
func (e *Election) Stop() {
	e.mu.Lock()
	stop := e.stop
	e.mu.Unlock()
	if stop != nil {
		stop()
	}
}

func (e *Election) backends() ([]leader.Backend, error) {
	byLease, err := leased.New(e.config.Store, leased.Config{Name: leaseserver.ElectionLock})
	switch {
	case err != nil:
		return nil, err
	case e.config.Session == nil:
		return []leader.Backend{byLease}, nil
	}
	return []leader.Backend{e.config.Session, byLease}, nil
}

func (e *Election) callbacks() leader.Callbacks {
	return leader.Callbacks{
		OnStateChange: func(_, _ leader.State) { e.notify() },
		OnAcquired:    func(leader.Term) { e.notify() },
		OnRecovered:   func(leader.Term) { e.notify() },
		OnNewLeader:   func(leader.Holder) { e.notify() },
	}
}

// notify closes changed if the answer of Active differs.
func (e *Election) notify() {
	identity, self, _ := e.active()
	e.mu.Lock()
	defer e.mu.Unlock()
	answer := fmt.Sprint(self, identity)
	if answer == e.told {
		return
	}
	e.told = answer
	close(e.changed)
	e.changed = make(chan struct{})
}
