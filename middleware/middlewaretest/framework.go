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

// A Framework says how to serve requests with a router or an RPC framework.
type Framework struct {
	// Serve starts a server on a loopback address, and leaves its end to t.Cleanup. Every
	// test has one or two of its own. Required.
	Serve func(t *testing.T, s Setup) Server

	// RPC: the framework has no paths and methods, and tells statuses by codes of gRPC.
	RPC bool

	// Without are the abilities that the framework lacks, each with the reason.
	Without map[Ability]string

	// Timeout is how long the suite waits for an event. 0 = a minute.
	Timeout time.Duration

	// Database makes what locks are taken in, and leaves its end to t.Cleanup. nil = an
	// advisorytest.Server.
	Database func(t *testing.T) Database
}

// An Ability is what a framework can lack.
type Ability string

// The abilities.
const (
	// SeesDisconnects: the server notices that a client has gone before the handler writes.
	SeesDisconnects Ability = "sees disconnects"
	// Streams: what a handler sends goes out at once, under the lock. Without it nothing is
	// sent before the handler has returned, and a loss is told in its answer's place.
	Streams Ability = "streams"
	// Hijacks: a handler can take the connection over.
	Hijacks Ability = "hijacks"
	// ErrorHandlers: a refusal goes to Config.ErrorHandler.
	ErrorHandlers Ability = "calls an ErrorHandler"
)

// A Setup is one server of a test.
type Setup struct {
	// Config is for the adapter. Its Key finds the entity of Agents in the path value "id" of
	// /agents/{id}. An adapter with extractors of its own returns what Key makes of theirs.
	Config middleware.Config
	// Handler runs under the lock.
	Handler Handler
	// Panicked is told of each panic that goes on past the adapter, on its way out. HTTP
	// does it.
	Panicked func(value any)

	keyErr error
}

// Key is what the extractor of an adapter returns, in this test, when it has found key or err.
func (s Setup) Key(key namespace.Key, err error) (namespace.Key, error) {
	if s.keyErr != nil {
		return namespace.Key{}, s.keyErr
	}
	return key, err
}

// A Handler answers a request with a text; with "" it writes nothing at all.
type Handler func(x Exchange) (text string)

// An Exchange is a request in the hands of its handler.
type Exchange struct {
	Context context.Context
	// ID is the entity, as the framework shows it to handlers.
	ID string
	// Send begins the answer, and sends the text now. nil if this request has one answer only.
	Send func(text string) error
	// Hijack takes the connection over. nil = the framework has no such thing.
	Hijack func() (net.Conn, error)
}

// A Server is how clients call what Serve has started. Setup.HTTP makes one.
type Server struct {
	// Call sends a request for an entity, and returns the answer. It fails if there is none,
	// and when ctx ends, with which the client leaves.
	Call func(ctx context.Context, id string) (Answer, error)
	// Stream is Call for a request whose answer comes in parts: next returns the next one,
	// and at the end, as at a failure, the answer. nil = none.
	Stream func(ctx context.Context, id string) (next func() (text string, end *Answer), err error)
	// Address is where HTTP is spoken; "" for an RPC framework.
	Address string
}

// An Answer is what a client gets.
type Answer struct {
	Status     int    // of HTTP, or the code of gRPC
	Type       string // of a refusal; see middleware.TypeBusy
	RetryAfter time.Duration
	HolderPID  uint32 // who holds the lock, if that is told
	Text       string
}

// A Database is what Lockers exclude each other in.
type Database struct {
	Open func(config advisory.Config) (*advisory.Locker, error)
	// Kill ends the session with this pid, like pg_terminate_backend.
	Kill func(pid uint32)
}

func memory(*testing.T) Database {
	server := advisorytest.NewServer()
	return Database{Open: server.Open, Kill: func(pid uint32) { server.Kill(pid) }}
}
