package pgsession

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/session"
	awaiting "github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// A stuck connection keeps what is written, once it is told to: the writer waits for open, and nothing arrives.
type stuck struct {
	net.Conn
	armed, open chan struct{}
	writing     chan struct{} // closed when somebody writes
	once        *sync.Once
}

func (c stuck) Write(b []byte) (int, error) {
	select {
	case <-c.armed:
		c.once.Do(func() { close(c.writing) })
		<-c.open
		return len(b), nil
	default:
		return c.Conn.Write(b)
	}
}

// Who calls the watch off bounds the ping that is under way. That ping may not have begun to wait for its answer yet: it must not
// go on with its own bound then, which is the rest of the lease.
func TestAPingThatIsBeingSentWhenTheWatchIsCalledOffIsBoundedToo(t *testing.T) {
	t.Parallel()
	c := stuck{armed: make(chan struct{}), open: make(chan struct{}), writing: make(chan struct{}), once: new(sync.Once)}
	p := newPool(t, pgtest.DSN(t), func(config *Config) {
		config.T = time.Hour
		dial := config.ConnConfig.DialFunc
		config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			return stuck{conn, c.armed, c.open, c.writing, c.once}, err
		}
	})
	s := take(t, p, pairKey)
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	s.mu.Lock()
	s.cancelWatch, s.watchDone = cancel, ended
	s.mu.Unlock()
	close(c.armed)
	go func() { // a watch whose ping is due
		_ = s.ping()
		s.unwatched()
		close(ended)
	}()
	<-c.writing
	require.ErrorIs(t, s.Do([]*session.Op{try(pairOf(1), session.Exclusive)}, time.Millisecond), session.ErrPending)
	require.Error(t, ctx.Err(), "the watch was called off")
	close(c.open)
	answered := make(chan error, 1)
	go func() { answered <- s.Do(nil, 0) }()
	require.ErrorIs(t, awaiting.Receive(t, patience, answered, "it waits for the ping as long as the lease lasts"), session.ErrLost)
}
