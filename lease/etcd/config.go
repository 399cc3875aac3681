package etcd

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/lease"
)

// The defaults of a Config.
const (
	DefaultPrefix  = "pglatch/lease/"
	DefaultTimeout = 4 * time.Second
)

// A Config describes the cluster and the Store. Client.Endpoints is required. The zero value of
// every other field is a good default.
type Config struct {
	// Client is the configuration of etcd's client: Endpoints, all members of the cluster; and TLS,
	// Username and Password, if the cluster requires them. DialTimeout defaults to Timeout.
	// DialKeepAliveTime defaults to 2 s, so that the client disconnects from a silent member.
	// Without a Logger, etcd's client logs nothing.
	Client clientv3.Config

	// Prefix is the prefix of all keys. Stores with one Prefix in one cluster are one store. "" =
	// DefaultPrefix.
	Prefix string

	// Timeout bounds one operation, including retries, even if its ctx allows more. 0 =
	// DefaultTimeout, negative = only ctx bounds it.
	Timeout time.Duration

	// Wall is the clock of AcquiredAt and ExpiresAt, which are for people, and of Sweep's
	// retention. No lease depends on it. nil = time.Now.
	Wall func() time.Time

	// Logger receives a message if the cluster does not have the expected history. nil =
	// nothing is logged.
	Logger *slog.Logger
}

func (c Config) withDefaults(s *Store) (Config, error) {
	if len(c.Client.Endpoints) == 0 {
		return c, &lease.InvalidError{Field: "Client.Endpoints", Value: "empty", Remedy: "give the members' client URLs"}
	}
	c.Prefix = cmp.Or(c.Prefix, DefaultPrefix)
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.Logger = background.Logger(c.Logger)
	c.Client.Logger = cmp.Or(c.Client.Logger, zap.NewNop())
	c.Client.DialTimeout = cmp.Or(c.Client.DialTimeout, max(c.Timeout, 0))
	c.Client.DialKeepAliveTime = cmp.Or(c.Client.DialKeepAliveTime, 2*time.Second)
	c.Client.DialKeepAliveTimeout = cmp.Or(c.Client.DialKeepAliveTimeout, time.Second)
	c.Client.DialOptions = append(slices.Clip(c.Client.DialOptions), grpc.WithStatsHandler(&connections{&s.connections}))
	if c.Wall == nil {
		c.Wall = time.Now
	}
	return c, nil
}

// connections counts the connections that were made: a new one may lead to a cluster with another
// history.
type connections struct{ made *atomic.Int64 }

func (c *connections) HandleConn(_ context.Context, s stats.ConnStats) {
	if _, ok := s.(*stats.ConnBegin); ok {
		c.made.Add(1)
	}
}

func (*connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*connections) HandleRPC(context.Context, stats.RPCStats)                         {}
func (*connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
