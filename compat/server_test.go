//go:build integration

package compat_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// serve starts a lock server on PostgreSQL, and returns its URL.
func serve(t *testing.T, v version, dsn string) (*clitest.Program, string) {
	t.Helper()
	p := v.command(t, dsn, "serve", "locks", "--listen", "127.0.0.1:0", "--store", dsn)
	return p, "http://" + p.Match(&p.Stderr, `msg=serving.* address=(\S+)`)[1]
}

// holding starts a command under a lease. The command prints "works", and runs until end.
func holding(t *testing.T, v version, servers, name string, more ...string) *clitest.Program {
	t.Helper()
	args := append([]string{"lease", "run", "--server", servers, name}, more...)
	return v.command(t, "", append(args, "-c", "echo works; trap 'exit 0' TERM; sleep 300 & wait; kill $!")...)
}

// end ends a command that holding started, and with it its lease.
func end(t *testing.T, p *clitest.Program) {
	t.Helper()
	p.Signal(syscall.SIGTERM)
	assert.Contains(t, []int{0, 143}, p.Wait(), p.Stderr.String())
}

func TestLockServersOfTwoVersionsForwardAndServe(t *testing.T) {
	t.Parallel()
	inBothOrders(t, func(t *testing.T, first, second version) {
		t.Helper()
		dsn := pgtest.DSN(t)
		active, a := serve(t, first, dsn)
		active.Saying(&active.Stderr, "msg=server_active")
		forwarding, b := serve(t, second, dsn)
		forwarding.Saying(&forwarding.Stderr, "msg=server_forwards to="+a)

		// One queue, in which clients of both versions wait at both servers.
		for _, v := range []version{first, second} {
			holder := holding(t, v, a, "queue")
			holder.Saying(&holder.Stdout, "works")
			var waiters []*clitest.Program
			for _, w := range []version{first, second} {
				for _, url := range []string{a, b} {
					waiters = append(waiters, w.command(t, "", "lease", "run", "--server", url, "--wait", "1m", "queue", "--", "echo", "had its turn"))
				}
			}
			refused := second.command(t, "", "lease", "run", "-n", "--server", b, "queue", "--", "true")
			assert.Equal(t, 75, refused.Wait(), refused.Stderr.String())
			end(t, holder)
			for _, w := range waiters {
				assert.Zero(t, w.Wait(), w.Stderr.String())
				assert.Contains(t, w.Stdout.String(), "had its turn")
			}
		}
		// Slots, readers and batches of many clients, whose promises are checked.
		var loads []*clitest.Program
		for _, v := range []version{first, second} {
			loads = append(loads, v.command(t, "", "load", "--target", "lease", "--server", b, "--duration", "2s", "--clients", "20"))
		}
		slots := []*clitest.Program{holding(t, first, b, "gpu", "--slots", "2"), holding(t, second, a, "gpu", "--slots", "2")}
		for _, p := range slots {
			p.Saying(&p.Stdout, "works")
		}
		full := second.command(t, "", "lease", "run", "-n", "--slots", "2", "--server", b, "gpu", "--", "true")
		assert.Equal(t, 75, full.Wait(), full.Stderr.String())
		for _, p := range slots {
			end(t, p)
		}
		for _, p := range loads {
			assert.Zero(t, p.Wait(), p.Stdout.String()+p.Stderr.String())
		}

		// The active server dies: the other version's is active, and clients of both versions keep their leases.
		keepers := []*clitest.Program{holding(t, first, a+","+b, "kept by first"), holding(t, second, a+","+b, "kept by second")}
		for _, p := range keepers {
			p.Saying(&p.Stdout, "works")
		}
		active.Signal(syscall.SIGKILL)
		forwarding.Saying(&forwarding.Stderr, "msg=server_active")
		for _, name := range []string{"kept by first", "kept by second"} {
			get := first.command(t, "", "lease", "get", "--server", b, name, "-o", "json")
			assert.Zero(t, get.Wait(), get.Stderr.String())
		}
		<-time.After(6 * time.Second) // more than a third of the TTL: each has renewed
		for _, p := range keepers {
			select {
			case <-p.Done:
				require.Fail(t, "it has lost its lease", p.Stderr.String())
			default:
			}
			end(t, p)
		}
		again, _ := serve(t, first, dsn)
		again.Match(&again.Stderr, `msg=server_forwards`)
		await.Until(t, await.Patience, func() bool {
			p := first.command(t, "", "lease", "run", "-n", "--server", b, "kept by first", "--", "true")
			return p.Wait() == 0
		}, "it is free")
	})
}
