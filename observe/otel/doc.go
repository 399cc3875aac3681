// Package otel traces locks, elections and turns with OpenTelemetry.
//
//	// import locktrace "github.com/pglatch/pglatch/observe/otel"
//	locker, err := advisory.Open(ctx, advisory.Config{DSN: dsn, Tracer: locktrace.Tracer(otel.GetTracerProvider())})
//
//	defer locktrace.Watch(otel.GetTracerProvider(), elector)()
//
//	ticket, err := chat.Send(ctx, tx, conversation, turns.Message{Body: body, Trace: locktrace.TraceParent(ctx)})
//	err = chat.Serve(ctx, locktrace.Turns(otel.GetTracerProvider(), handler))
//
// otel is a separate module, so that programs without OpenTelemetry do not compile it.
//
// # Spans
//
//	"lock wait"   from when a request has to wait to its grant or its error
//	"lock hold"   from the grant to the release or the loss
//	"leadership"  from Acquired to Released or Lost, a root
//	"turn"        while a handler runs: a child of the span that sent its first message
//
// The first two are children of the span in the request's context, as are the spans of the work under the
// lock. A wait for a key that this process holds has a link to the span of each hold that it waits for. A
// hold that follows from a hand-over has a link to the previous hold. The link leads from the slow request
// to the one that made it slow. The spans of another process's locks are not known here; the error of a
// wait that timed out names the holder.
//
// A request that fails without a wait (a try of a held lock, re-entrance) has a "lock wait" of zero length
// with the error. An error is recorded as an exception and sets the status. A try that found the lock held
// is not recorded as an error, but has the attribute pglatch.lock.result "held". A loss is recorded as an
// error of the hold.
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
//	pglatch.turn.key, .attempt, .messages
//	pglatch.election.name, .identity, .term, .fencing_token
//
// The spans contain keys: anybody who can read the traces can read the entities' ids.
//
// # Metrics
//
// The metrics of observe/prometheus reach OpenTelemetry through its bridge,
// go.opentelemetry.io/contrib/bridges/prometheus.
package otel
