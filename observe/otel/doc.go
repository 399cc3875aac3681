// Package otel traces locks and elections with OpenTelemetry.
//
//	// import locktrace "github.com/pglatch/pglatch/observe/otel"
//	locker, err := advisory.Open(ctx, advisory.Config{DSN: dsn, Tracer: locktrace.Tracer(otel.GetTracerProvider())})
//
//	defer locktrace.Watch(otel.GetTracerProvider(), elector)()
//
// It is a module of its own, so that programs without OpenTelemetry have none of it.
//
// # Spans
//
//	"lock wait"   from when a request has to wait to its grant or its error
//	"lock hold"   from the grant to the release or the loss
//	"leadership"  from Acquired to Released or Lost, a root
//
// The first two are children of the span in the context that the request was made with, beside
// what is done under the lock. A wait for a key that this process holds has a link to the span of each hold
// that it waits for, and so has the hold that follows from a hand-over to the one before: the link
// leads from the request that was slow to the one that made it slow. Of another process' locks
// nobody here knows the span; the error of a wait that ran out of time names the holder.
//
// A request that fails without a wait (a try of a held lock, re-entrance) has a "lock wait" of no
// length with the error. An error is recorded as an exception and sets the status; that a try found
// the lock held is no error, and is the attribute pglatch.lock.result "held". A
// loss is an error of its hold.
//
// # Attributes
//
//	db.system.name               "postgresql"
//	pglatch.lock.key             the key, as order/42
//	pglatch.lock.namespace       its namespace, if it has one
//	pglatch.lock.mode            exclusive or shared
//	pglatch.lock.label           Options.Label, if it is set
//	pglatch.lock.waiters_ahead   of a wait: requests of this process that are served first
//	pglatch.lock.hand_over       of a hold: it came from this process, without a round trip
//	pglatch.lock.session_pid     of a hold: the server session's
//	pglatch.lock.loss_reason     of a hold that was lost: advisory.LossData.Reason
//	pglatch.election.name, .identity, .term, .fencing_token
//
// Keys are in the spans: whoever may read the traces may read the entities' ids.
//
// # Metrics
//
// Those of observe/prometheus go to OpenTelemetry through its bridge,
// go.opentelemetry.io/contrib/bridges/prometheus.
package otel
