//go:build integration

package shards

import (
	"context"
	"slices"
	"time"

	"github.com/pglatch/pglatch/leader/shards/driver"
)

// A trusting backend is the control: it believes what it sees of members, and what the plan makes of it,
// and does not ask the locks.
type trusting struct{ driver.Backend }

func (b trusting) Open(ctx context.Context, self driver.Member, ttl time.Duration) (driver.Session, error) {
	s, err := b.Backend.Open(ctx, self, ttl)
	if err != nil {
		return nil, err
	}
	return trustingSession{s}, nil
}

type trustingSession struct{ driver.Session }

// Claim owns whatever it is asked to.
func (s trustingSession) Claim(ctx context.Context, names []string) ([]driver.Grant, error) {
	grants, err := s.Session.Claim(ctx, names)
	for _, name := range names {
		if err == nil && !slices.ContainsFunc(grants, func(g driver.Grant) bool { return g.Name == name }) {
			grants = append(grants, driver.Grant{Name: name, Term: driver.Term{Era: 1, N: uint64(time.Now().UnixMilli())}})
		}
	}
	return grants, err
}

// Look does not say who owns what.
func (s trustingSession) Look(ctx context.Context, known uint64) (driver.View, error) {
	v, err := s.Session.Look(ctx, known)
	v.Owners = nil
	return v, err
}
