package leaseserver

import (
	"context"
	"net/http"
	"time"
)

// A caller is what guard learns about the origin of a request.
type caller struct {
	token  *bearerToken  // nil = the server has no tokens
	hop    *hop          // nil = the client sent the request to this server
	waited time.Duration // for how long the request was at this server before this attempt to answer it
}

type callerKey struct{}

// in returns a context of a request with its caller.
func (c caller) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// callerOf returns the caller of a request, zero if nothing is known.
func callerOf(r *http.Request) caller {
	c, _ := r.Context().Value(callerKey{}).(caller)
	return c
}

// waitedBefore returns for how long a request was under way before this attempt to answer it: at
// the server that forwarded it, and here.
func (c caller) waitedBefore() time.Duration {
	if c.hop == nil {
		return c.waited
	}
	return c.hop.waited + c.waited
}
