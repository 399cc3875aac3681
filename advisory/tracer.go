package advisory

import (
	"context"
	"time"

	"github.com/pglatch/pglatch/namespace"
)

// Tracers are told what happens to locks, on the goroutine where it happens and
// without a mutex held. They must be quick and safe for concurrent use. One
// that panics is logged, and changes nothing. Their data are structs so that fields
// can be added.

// An AcquireTracer is told how each request for a lock ended.
type AcquireTracer interface {
	TraceAcquire(ctx context.Context, data AcquireData)
}

// A WaitTracer is told when a request has to wait, once.
type WaitTracer interface {
	TraceWait(ctx context.Context, data WaitData)
}

// A HoldTracer is told when a lock is granted.
type HoldTracer interface {
	TraceHold(ctx context.Context, data HoldData)
}

// A ReleaseTracer is told when a lock was given back: of one that passes on inside
// the process perhaps only after its next holder is.
type ReleaseTracer interface {
	TraceRelease(ctx context.Context, data ReleaseData)
}

// A LossTracer is told when a lock was lost.
type LossTracer interface {
	TraceLoss(ctx context.Context, data LossData)
}

// AcquireData tells how a request for a lock ended.
type AcquireData struct {
	Key    namespace.Key
	Label  string
	Shared bool
	Try    bool
	Waited time.Duration
	Err    error // nil = granted
}

// WaitData tells that a request waits.
type WaitData struct {
	Key    namespace.Key
	Label  string
	Shared bool
	Ahead  int // requests of this process that are served first
}

// HoldData tells of a granted lock.
type HoldData struct {
	Key      namespace.Key
	Label    string
	Shared   bool
	PID      uint32 // of the server session that holds it
	HandOver bool   // it came from this process, without a round trip
}

// ReleaseData tells of a lock that was given back.
type ReleaseData struct {
	Key   namespace.Key
	Label string
	Held  time.Duration
	Err   error // a *LostError if it was lost before
}

// LossData tells of a lost lock.
type LossData struct {
	Key   namespace.Key
	Label string
	Err   *LostError
}

func checkTracer(tracer any) error {
	switch tracer.(type) {
	case nil, AcquireTracer, WaitTracer, HoldTracer, ReleaseTracer, LossTracer:
		return nil
	}
	return &ConfigError{"Tracer", tracer, "implement one of AcquireTracer, WaitTracer, HoldTracer, ReleaseTracer and LossTracer"}
}

// tracers are a Tracer's parts; nil ones are not called.
type tracers struct {
	acquire AcquireTracer
	wait    WaitTracer
	hold    HoldTracer
	release ReleaseTracer
	loss    LossTracer
}

func newTracers(tracer any) (t tracers) {
	t.acquire, _ = tracer.(AcquireTracer)
	t.wait, _ = tracer.(WaitTracer)
	t.hold, _ = tracer.(HoldTracer)
	t.release, _ = tracer.(ReleaseTracer)
	t.loss, _ = tracer.(LossTracer)
	return t
}
