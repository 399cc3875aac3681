// Command demo shows, with real processes, one turn at a time for each conversation:
//
//	make demo-turns                             # and stay until Ctrl-C
//	go run ./examples/chat/cmd/demo -once       # exit 1 if a claim fails
//	go run ./examples/chat/cmd/demo -once -break # the control: replies are saved beside the turn's commit, and a claim fails
//
// Three replicas of examples/chat are behind one port, on one PostgreSQL. A burst of messages has one answer, a message
// changes an answer that is being written, and a user stops one from another replica. Then a replica is killed with kill
// -9 in the middle of a turn, while twenty users write. At the end only the table decides: each message has one reply, in
// order.
package main

import (
	"context"
	"flag"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pglatch/pglatch/examples/chat"
	"github.com/pglatch/pglatch/examples/internal/demokit"
)

// unsafeVariable tells a replica to save replies beside the commit of its turn.
const unsafeVariable = "PGLATCH_DEMO_UNSAFE"

// serve is the main function of a replica.
func serve(ctx context.Context, n *demokit.Node) error {
	service, err := chat.Open(ctx, chat.Config{DSN: n.DSN, Replica: n.Name, Logger: n.Log, Unsafe: os.Getenv(unsafeVariable) != ""})
	if err != nil {
		return err
	}
	defer service.Close()
	server := &http.Server{Handler: service.Handler(), ReadHeaderTimeout: time.Minute}
	listener, err := n.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		return err
	}
	var listens sync.WaitGroup
	listens.Go(func() { _ = server.Serve(listener) })
	err = service.Run(ctx)
	_ = server.Shutdown(context.WithoutCancel(ctx))
	listens.Wait()
	return err
}

func main() {
	broken := flag.Bool("break", false, "the control: replies are saved beside the commit of the turn, so that a claim must fail")
	demokit.Main("pglatch: three replicas of a chat service behind one port, one turn at a time for each conversation", serve,
		func(_ context.Context, d *demokit.Demo) demokit.Story { return tell(d, *broken) })
}

// A front is the one port. It passes each request to the next replica that answers.
type front struct {
	next     atomic.Uint64
	mu       sync.Mutex
	replicas []*httputil.ReverseProxy
}

// use sets the replicas by their URLs.
func (f *front) use(urls ...string) {
	var replicas []*httputil.ReverseProxy
	for _, text := range urls {
		replica := httputil.NewSingleHostReverseProxy(demokit.Must(url.Parse(text)))
		replica.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
		replicas = append(replicas, replica)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.replicas = replicas
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	replicas := f.replicas
	f.mu.Unlock()
	replicas[f.next.Add(1)%uint64(len(replicas))].ServeHTTP(w, r)
}
