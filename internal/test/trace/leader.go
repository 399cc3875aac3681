package trace

import (
	"context"

	"github.com/pglatch/pglatch/leader"
)

// Elector returns the callbacks that write the events of an elector with a config. Sightings of other leaders are
// not written: they change nothing.
func (w *Writer) Elector(c leader.Config) leader.Callbacks {
	if w == nil {
		return leader.Callbacks{}
	}
	emit := func(kind Kind, term leader.Term, err error) {
		w.Emit(Event{Kind: kind, Key: c.Name, Term: term.Uint64(), Text: text(err), Grace: c.ReconnectGrace > 0, LeadOnce: c.LeadOnce})
	}
	return leader.Callbacks{
		OnStateChange: func(from, to leader.State) {
			w.Emit(Event{Kind: State, Key: c.Name, From: from.String(), To: to.String(), Grace: c.ReconnectGrace > 0, LeadOnce: c.LeadOnce})
		},
		OnAcquired:      func(t leader.Term) { emit(Acquired, t, nil) },
		OnRecovered:     func(t leader.Term) { emit(Recovered, t, nil) },
		OnReleased:      func(t leader.Term) { emit(Released, t, nil) },
		OnLost:          func(t leader.Term, err error) { emit(Lost, t, err) },
		OnAcquireFailed: func(err error) { emit(AcquireFailed, leader.Term{}, err) },
		OnError:         func(err error) { emit(Error, leader.Term{}, err) },
		OnStopped:       func(err error) { emit(Stopped, leader.Term{}, err) },
	}
}

// Work writes that work under a term begins. The returned function writes that it has ended.
func (w *Writer) Work(key string, term leader.Term) (ended func()) {
	w.Emit(Event{Kind: Works, Key: key, Term: term.Uint64()})
	return func() { w.Emit(Event{Kind: Rests, Key: key, Term: term.Uint64()}) }
}

// Commit runs a transaction of a term, and writes its commit.
func (w *Writer) Commit(ctx context.Context, key string, term leader.Term, transaction func(context.Context) error) error {
	asked := Now()
	err := transaction(ctx)
	if err == nil {
		w.Emit(Event{Kind: Commit, Key: key, Term: term.Uint64(), Asked: asked})
	}
	return err
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
