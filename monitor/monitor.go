package monitor

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/incident"
	"github.com/pglatch/pglatch/introspect"
)

// ErrClosed is the error of a Monitor after Close.
var ErrClosed = errors.New("monitor: closed")

// A Monitor reads the advisory locks of one database for any number of viewers.
// It is safe for concurrent use. It must be closed.
type Monitor struct {
	config     Config
	connConfig *pgx.ConnConfig
	queries    atomic.Uint64

	lifetime  context.Context // ends at Close, with cause ErrClosed
	end       context.CancelCauseFunc
	work      sync.WaitGroup // flights, and connections that are being closed
	closeOnce sync.Once

	mu     sync.Mutex
	flight *flight // the newest; nil before the first

	judging atomic.Bool // a viewer wants verdicts
	secret  [16]byte

	// Only the running flight uses these.
	conn      *pgx.Conn // nil = none
	assembler assembler
	failing   bool
	heard     heard
	memos     map[uint32]memo // by the listening session
	// unanswered is how many questions in a row each silent process has not answered, by its listening session.
	unanswered map[uint32]int
	listeners  []introspect.Silent
	facts      facts
	commits    incident.Commits
	mailboxes  mailboxView
	around     time.Time // of the newest listeners
	pooled     bool      // the connection's server session is not the one announced to it
	memory     *incident.Memory
	fleet      fleetState
}

// Stats counts a Monitor's work since Open.
type Stats struct {
	// Queries is the number of queries to the server.
	Queries uint64
}

// Open returns a Monitor of the config's database. It connects on the first request, or with
// Config.Record at once; the server may be down. If the config is not valid, the error is a
// *ConfigError.
func Open(config Config) (*Monitor, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	cc, err := config.connConfig()
	if err != nil {
		return nil, err
	}
	config.Redact = oneAtATime(config.Redact)
	lifetime, end := context.WithCancelCause(context.Background())
	limits := incident.DefaultLimits()
	limits.Long = config.LongHold
	m := &Monitor{config: config, connConfig: cc, lifetime: lifetime, end: end, memory: incident.NewMemory(limits)}
	m.assembler = assembler{config: config, heard: &m.heard}
	_, _ = rand.Read(m.secret[:]) // never fails
	if config.Record > 0 {
		m.work.Go(m.record)
	}
	return m, nil
}

// record queries at the Record interval.
func (m *Monitor) record() {
	tick := time.NewTicker(m.config.Record)
	defer tick.Stop()
	for {
		_, _ = m.lookCloser(m.lifetime) // logged
		select {
		case <-tick.C:
		case <-m.lifetime.Done():
			return
		}
	}
}

// Stats returns the current counts.
func (m *Monitor) Stats() Stats { return Stats{Queries: m.queries.Load()} }

// Close ends the running query, whose viewers get ErrClosed, and closes the connection. It returns when
// all of that has ended, which can take 15 s on a network that went silent. Further calls of Close do
// nothing.
func (m *Monitor) Close() {
	m.closeOnce.Do(func() {
		m.mu.Lock()
		m.end(ErrClosed)
		m.mu.Unlock()
		m.work.Wait()
		if m.conn != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(m.lifetime), time.Second)
			defer cancel()
			_ = m.conn.Close(ctx) // the server ends the session at the latest when the socket closes
		}
	})
}
