package loopback_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/internal/loopback"
)

func TestAnAddressOfThisMachineIsALoopbackOneWhateverItsForm(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"127.0.0.1", "127.0.0.1:80", "127.1.2.3:1", "[::1]:80", "::1", "[::1]", "[::ffff:127.0.0.1]:1"} {
		assert.True(t, loopback.Is(address), address)
	}
	for _, address := range []string{"", "@", "localhost", "localhost:80", "192.0.2.1:80", "0.0.0.0:80", "[::]:80", "127.0.0.1.evil.example:80", "[fe80::1]:80"} {
		assert.False(t, loopback.Is(address), address)
	}
}

func TestAListenerOnALoopbackAddressOrAUnixSocketIsForThisMachine(t *testing.T) {
	t.Parallel()
	assert.True(t, loopback.Listens(&net.TCPAddr{IP: net.IPv6loopback, Port: 80}))
	assert.True(t, loopback.Listens(&net.UnixAddr{Name: "/run/locks.sock", Net: "unix"}))
	assert.False(t, loopback.Listens(&net.TCPAddr{IP: net.IPv4zero, Port: 80}))
	assert.False(t, loopback.Listens(&net.TCPAddr{Port: 80}), "all addresses")
}

func TestARequestByTheAddressThatItWasAcceptedAtIsOfThisMachine(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]error{
		"127.0.0.2:80": nil, "127.0.0.1:80": nil, "LocalHost": nil, "[::1]:80": nil,
		"127.0.0.3:80": loopback.ErrHost, "evil.example:80": loopback.ErrHost, "": loopback.ErrHost,
	} {
		at := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2), Port: 80}
		r := httptest.NewRequestWithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, at), http.MethodGet, "/", nil)
		r.RemoteAddr, r.Host = "127.0.0.1:50000", host
		assert.Equal(t, want, loopback.Request(r), host)
		r.RemoteAddr = "192.0.2.1:1"
		assert.Equal(t, loopback.ErrRemote, loopback.Request(r))
	}
}

func TestAHeaderOfAProxySaysThatARequestIsNotOfThisMachine(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]error{
		"X-Forwarded-For": loopback.ErrProxied, "x-real-ip": loopback.ErrProxied, "Cf-Ray": loopback.ErrProxied,
		"X-Amzn-Trace-Id": loopback.ErrProxied, "X-Request-Id": nil, "Accept": nil,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.RemoteAddr, r.Host = "127.0.0.1:50000", "localhost"
		r.Header[header] = []string{"x"}
		assert.Equal(t, want, loopback.Request(r), header)
	}
}
