//go:build integration

package election

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
)

// A member is an elector in this process.
type member struct {
	*leader.Elector
	t *testing.T

	mu    sync.Mutex
	story []string // "acquired 1.1", and so on
	works []leader.Term
}

// join starts a member. Its work is called with the leader's context, and waits for
// its end if it is nil.
func join(t *testing.T, identity string, backend postgres.Config, config leader.Config, work func(context.Context)) *member {
	t.Helper()
	m := &member{t: t}
	note := func(kind string) func(leader.Term) { return func(term leader.Term) { m.note(kind, term) } }
	config.Callbacks = leader.Callbacks{
		OnAcquired: note("acquired"), OnRecovered: note("recovered"), OnReleased: note("released"),
		OnLost: func(term leader.Term, _ error) { m.note("lost", term) },
	}
	e, err := newElector(identity, backend, config)
	require.NoError(t, err)
	m.Elector = e
	require.NoError(t, e.Start(context.Background()))
	var running sync.WaitGroup
	running.Go(func() {
		assert.NoError(t, e.Run(context.Background(), func(ctx context.Context) error {
			m.mu.Lock()
			m.works = append(m.works, leader.TermOfContext(ctx))
			m.mu.Unlock()
			if work != nil {
				work(ctx)
			}
			<-ctx.Done()
			return nil
		}))
	})
	t.Cleanup(func() {
		assert.NoError(t, e.Shutdown(context.Background()))
		running.Wait()
	})
	return m
}

func (m *member) note(kind string, term leader.Term) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.story = append(m.story, fmt.Sprintf("%s %v", kind, term))
}

func (m *member) told() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.story)
}

// requireStory waits for events, which must be all that were told.
func (m *member) requireStory(events ...string) {
	m.t.Helper()
	await.Until(m.t, patience, func() bool { return len(m.told()) >= len(events) }, "too few events")
	require.Equal(m.t, events, m.told(), "it is a %v", m.State())
}

// requireWorks waits for calls of the work, which must be all.
func (m *member) requireWorks(terms ...uint64) {
	m.t.Helper()
	var want []leader.Term
	for _, n := range terms {
		want = append(want, leader.Term{Era: 1, N: n})
	}
	until(m.t, "work", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.works) >= len(want)
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	require.Equal(m.t, want, m.works)
}
