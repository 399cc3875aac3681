//go:build unix

package pgsession

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/session"
	awaiting "github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/namespace"
)

// looks is a close look without the memory of an earlier one.
func looks(s *Session) bool {
	s.verified.Store(0)
	return !s.Look(time.Now(), true).Verified.IsZero()
}

// encrypted returns a connection string of a server that speaks TLS.
func encrypted(t *testing.T) string {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	server := pgtest.StartServer(t, pgserver.Options{})
	c := connect(t, server.DSN(""))
	for name, block := range map[string]*pem.Block{"server.crt": {Type: "CERTIFICATE", Bytes: der}, "server.key": {Type: "PRIVATE KEY", Bytes: secret}} {
		c.exec("COPY (SELECT pg_catalog.unnest(pg_catalog.string_to_array('" + strings.TrimSpace(string(pem.EncodeToMemory(block))) +
			"', E'\\n'))) TO PROGRAM 'umask 077; cat > " + name + "'") // in its data directory, and its own
	}
	c.exec("ALTER SYSTEM SET ssl = on")
	c.exec("SELECT pg_reload_conf()")
	dsn := strings.Replace(server.DSN(""), "sslmode=disable", "sslmode=require", 1)
	awaiting.Until(t, patience, func() bool { // the postmaster has read its files
		p, err := openPool(t, dsn, nil)
		if err == nil {
			p.Close()
		}
		return err == nil
	})
	return dsn
}

// onBothTransports runs a test without and with TLS, for sessions that are watched
// and for others.
func onBothTransports(t *testing.T, test func(t *testing.T, dsn string, watched bool)) {
	t.Helper()
	for _, transport := range []string{"plain", "TLS"} {
		for _, watch := range []string{"not watched", "watched"} {
			t.Run(transport+"/"+watch, func(t *testing.T) {
				t.Parallel()
				if transport == "TLS" {
					test(t, encrypted(t), watch == "watched")
					return
				}
				test(t, pgtest.DSN(t), watch == "watched")
			})
		}
	}
}

func TestASessionIsNotVerifiedOnceAnotherCanHaveItsLock(t *testing.T) {
	t.Parallel()
	onBothTransports(t, func(t *testing.T, dsn string, watch bool) {
		t.Helper()
		p, other := newPool(t, dsn, nil), connect(t, dsn)
		for name, end := range map[string]func(s *Session){
			"terminated": func(s *Session) { other.terminate(s.PID()) },
			"idle": func(s *Session) {
				_, err := s.Query("SELECT pg_catalog.set_config('idle_session_timeout', '30ms', false), pg_catalog.pg_backend_pid()")
				require.NoError(t, err)
			},
		} {
			for range 10 {
				s := take(t, p, pairKey)
				if watch {
					beginWatching(t, s)
				}
				require.True(t, looks(s))
				end(s)
				if watch && name == "idle" { // the query has ended the watch
					beginWatching(t, s)
				}
				other.exec("SELECT pg_catalog.pg_advisory_lock(7, 9)")
				assert.False(t, looks(s), name)
				require.ErrorIs(t, s.Ping(), session.ErrLost)
				other.exec("SELECT pg_catalog.pg_advisory_unlock(7, 9)")
				s.Close(false)
			}
		}
	})
}

func beginWatching(t *testing.T, s *Session) {
	t.Helper()
	s.Watch(func(error) {})
	watched(t, s)
}

func TestAHealthySessionIsVerifiedWithoutAQuestion(t *testing.T) {
	t.Parallel()
	onBothTransports(t, func(t *testing.T, dsn string, watch bool) {
		t.Helper()
		p := newPool(t, dsn, briefly)
		s := take(t, p, pairKey)
		op := &session.Op{Tag: singleKey}
		for i, statement := range []func() error{
			func() error { return nil },
			func() error {
				_, err := s.Wait(namespace.Pair(7, 10).Tag(), session.Exclusive, time.Second)
				return err
			},
			func() error { return s.Run(&session.Op{Any: []namespace.Tag{namespace.SingleRaw(11).Tag()}}) },
			func() error { return s.Do([]*session.Op{op, {Ping: true}}, time.Minute) },
			func() error { op.Unlock = true; return s.Do([]*session.Op{op}, time.Minute) },
			func() error { return s.Unlock(namespace.Pair(7, 10).Tag(), session.Exclusive) },
		} {
			require.NoError(t, statement())
			if watch {
				before := p.Stats().Pings
				beginWatching(t, s)
				if i == 0 {
					awaiting.Until(t, patience, func() bool { return p.Stats().Pings > before })
				}
			}
			awaiting.Until(t, patience, func() bool { return looks(s) }, "after statement %d", i)
		}
	})
}

func TestWhatIsNotJudgedYetIsAskedAbout(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	s, other := take(t, newPool(t, dsn, nil), pairKey), connect(t, dsn)
	_, err := s.Query("LISTEN pglatch_test; SELECT pg_catalog.pg_backend_pid()")
	require.NoError(t, err)
	require.True(t, looks(s))
	other.exec("NOTIFY pglatch_test")
	awaiting.Until(t, patience, func() bool { return !looks(s) })
	beginWatching(t, s)
	assert.False(t, looks(s), "the watch has read it, that is all")
	require.NoError(t, s.Ping())
	assert.True(t, looks(s))
	require.NoError(t, s.Unlock(pairKey, session.Exclusive))
}

func TestManyMayLookWhileTheSessionIsWatched(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	s, other := take(t, newPool(t, dsn, nil), pairKey), connect(t, dsn)
	lost := watch(s)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				awaiting.Until(t, patience, func() bool { return looks(s) })
			}
		})
	}
	wg.Wait()
	watched(t, s)
	other.terminate(s.PID())
	requireLoss(t, s, lost)
	assert.False(t, looks(s))
	require.ErrorIs(t, s.Ping(), session.ErrLost)
}

func TestAKillEndsAQuestion(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	proxy, change := proxied(t, dsn)
	s := take(t, newPool(t, dsn, change), pairKey)
	proxy.Set(faultproxy.Hold)
	answer := make(chan error, 1)
	go func() { answer <- s.Ping() }()
	awaiting.Until(t, patience, func() bool { return s.pingSent.Load() != 0 })
	s.Kill(context.Canceled)
	require.ErrorIs(t, <-answer, session.ErrLost)
}
