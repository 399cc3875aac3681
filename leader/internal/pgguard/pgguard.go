// Package pgguard carries in a context what guards of package leader/postgres must know of a term, which can be that of an
// election or of a shard.
package pgguard

import (
	"context"

	"github.com/pglatch/pglatch/leader/driver"
)

// A Token is what a guard must know of a term.
type Token struct {
	Election string // or "shard 7 of tenant"
	Term     driver.Term
	Guarding Guarding
}

type tokenKey struct{}

// Of is the token of a leader's context, nil for any other.
func Of(ctx context.Context) *Token {
	t, _ := ctx.Value(tokenKey{}).(*Token)
	return t
}

// With adds a token to a context.
func With(ctx context.Context, t *Token) context.Context {
	return context.WithValue(ctx, tokenKey{}, t)
}
