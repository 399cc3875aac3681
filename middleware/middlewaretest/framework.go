package middlewaretest

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/advisory/advisorytest"
	"github.com/pglatch/pglatch/middleware"
	"github.com/pglatch/pglatch/namespace"
)

// Agents is the namespace of the suite's entities.
var Agents = namespace.Must(1, "agent")

// A Framework describes how to serve requests with a router or an RPC framework.
type Framework struct {
	// Serve starts a server on a loopback address, and registers its shutdown with t.Cleanup. Every
	// test starts one or two servers. Required.
	Serve func(t *testing.T, s Setup) Server

	// RPC: the framework has no paths and methods, and reports statuses as gRPC codes.
	RPC bool

	// Without lists the abilities that the framework lacks, each with the reason.
	Without map[Ability]string

	// Timeout is how long the suite waits for an event. 0 = a minute.
	Timeout time.Duration

	// Database creates the database for the locks, and closes it with t.Cleanup. nil = an
	// advisorytest.Server.
	Database func(t *testing.T) Database
}

// An Ability is a feature that a framework can lack.
type Ability string

// The abilities.
const (
	// SeesDisconnects: the server detects that a client has left before the handler writes.
	SeesDisconnects Ability = "sees disconnects"
	// Streams: a handler's output is sent at once, under the lock. Without it nothing is sent
	// before the handler has returned, and a loss replaces its answer.
	Streams Ability = "streams"
	// Hijacks: a handler can take over the connection.
	Hijacks Ability = "hijacks"
	// ErrorHandlers: a refusal goes to Config.ErrorHandler.
	ErrorHandlers Ability = "calls an ErrorHandler"
)

// A Setup is one server of a test.
type Setup struct {
	// Config is for the adapter. Its Key finds the entity of Agents in the path value "id" of
	// /agents/{id}. An adapter with its own extractors returns what Key makes of their result.
	Config middleware.Config
	// Handler runs under the lock.
	Handler Handler
	// Panicked receives each panic that continues past the adapter. HTTP calls it.
	Panicked func(value any)

	keyErr error
}

// Key returns what an adapter's extractor returns in this test, if it found key or err.
func (s Setup) Key(key namespace.Key, err error) (namespace.Key, error) {
	if s.keyErr != nil {
		return namespace.Key{}, s.keyErr
	}
	return key, err
}

// A Handler answers a request with a text; with "" it writes nothing at all.
type Handler func(x Exchange) (text string)

// An Exchange is a request as its handler sees it.
type Exchange struct {
	Context context.Context
	// ID is the entity, as the framework shows it to handlers.
	ID string
	// Send begins the answer, and sends the text at once. nil = this request has only one answer.
	Send func(text string) error
	// Hijack takes over the connection. nil = the framework does not support that.
	Hijack func() (net.Conn, error)
}

// A Server calls the server that Serve has started. Setup.HTTP creates one.
type Server struct {
	// Call sends a request for an entity, and returns the answer. It fails if there is no
	// answer, and when ctx ends; the client then disconnects.
	Call func(ctx context.Context, id string) (Answer, error)
	// Stream is Call for a request whose answer comes in parts. next returns the next part; at the
	// end, or at a failure, it returns the answer. nil = none.
	Stream func(ctx context.Context, id string) (next func() (text string, end *Answer), err error)
	// Address is the HTTP address; "" for an RPC framework.
	Address string
}

// An Answer is the answer that a client receives.
type Answer struct {
	Status     int    // of HTTP, or the code of gRPC
	Type       string // of a refusal; see middleware.TypeBusy
	RetryAfter time.Duration
	HolderPID  uint32 // of the lock's holder, if the answer names it
	Text       string
}

// A Database is the database in which Lockers exclude each other.
type Database struct {
	Open func(config advisory.Config) (*advisory.Locker, error)
	// Kill ends the session with this pid, like pg_terminate_backend.
	Kill func(pid uint32)
}

func memory(*testing.T) Database {
	server := advisorytest.NewServer()
	return Database{Open: server.Open, Kill: func(pid uint32) { server.Kill(pid) }}
}
