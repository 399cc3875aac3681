// Package pgguard carries the term of an election or a shard in a context, for the guards of package
// leader/postgres. It finds and ends guarded transactions that hold up a takeover.
package pgguard

import (
	"context"

	"github.com/pglatch/pglatch/internal/txguard"
	"github.com/pglatch/pglatch/leader/driver"
)

// A Token is the data that a guard needs about a term.
type Token struct {
	Election   string // or "shard 7 of tenant"
	Term       driver.Term
	Statements *txguard.Statements
	Args       []any // parameters of the statements, from $2 on
}

// The refusals of guards.
const (
	UnderWay = txguard.Refusal + "a takeover is under way"
	TermOver = txguard.Refusal + "the term has ended"
)

type tokenKey struct{}

// Of returns the token of a leader's context, or nil if ctx is not one.
func Of(ctx context.Context) *Token {
	t, _ := ctx.Value(tokenKey{}).(*Token)
	return t
}

// With adds a token to a context.
func With(ctx context.Context, t *Token) context.Context {
	return context.WithValue(ctx, tokenKey{}, t)
}
