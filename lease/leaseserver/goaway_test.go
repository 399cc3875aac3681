package leaseserver_test

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease/leasehttp"
)

// A leavingProxy stands in front of a server. It relays HTTP/2 until it leaves.
type leavingProxy struct {
	net.Listener
	leaves atomic.Bool // with the next request
	passes bool        // the request on to the server, when it leaves
}

// The types of frames that matter here. A frame begins with its length in three bytes, its type, its flags and its stream:
// RFC 9113, section 4.1.
const (
	data    = 0
	headers = 1
	goAway  = 7
)

// serve relays connections to a server until the proxy leaves.
func (p *leavingProxy) serve(to string) {
	for {
		client, err := p.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", to)
		if err != nil {
			_ = client.Close()
			return
		}
		var writing sync.Mutex
		go p.relay(server, client, &writing, false)
		go func() {
			if _, err := io.CopyN(server, client, 24); err == nil { // the preface
				p.relay(client, server, &writing, true)
			}
		}()
	}
}

// relay copies frames until one of the connections ends or the proxy leaves. writing is held while the client is written to.
func (p *leavingProxy) relay(from, to net.Conn, writing *sync.Mutex, requests bool) {
	defer from.Close()
	defer to.Close()
	var last uint32
	for {
		frame := make([]byte, 9, 64)
		if _, err := io.ReadFull(from, frame); err != nil {
			return
		}
		size, kind, stream := int(frame[0])<<16|int(frame[1])<<8|int(frame[2]), frame[3], binary.BigEndian.Uint32(frame[5:])
		frame = append(frame, make([]byte, size)...)
		if _, err := io.ReadFull(from, frame[9:]); err != nil {
			return
		}
		if requests && kind == headers && p.leaves.Load() && !p.passes {
			_ = p.Close()
			writing.Lock()
			_, _ = from.Write(binary.BigEndian.AppendUint32(append([]byte{0, 0, 8, goAway, 0, 0, 0, 0, 0}, binary.BigEndian.AppendUint32(nil, last)...), 0))
			writing.Unlock()
			_, _ = io.Copy(io.Discard, from)
			return
		}
		if requests && kind == headers {
			last = stream
		}
		if !requests {
			writing.Lock()
		}
		_, err := to.Write(frame)
		if !requests {
			writing.Unlock()
		}
		if err != nil || requests && kind == data && p.leaves.Load() {
			_ = p.Close()
			return
		}
	}
}

// An active server that shuts down says which requests it has not looked at (GOAWAY). If it cannot be reached again, nothing was done,
// and the server that forwards answers by itself.
func TestARequestThatAServerDidNotLookAtWhenItLeftIsAnsweredHere(t *testing.T) {
	t.Parallel()
	for name, passes := range map[string]bool{"not looked at": false, "control: it left without a word": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			peers := newPeers(t, 2, -1)
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			proxy := &leavingProxy{Listener: listener, passes: passes}
			t.Cleanup(func() { _ = proxy.Close() })
			go proxy.serve(peers[0].HTTP.Listener.Addr().String())
			p := peers[1]
			p.Election.Believe("http://" + listener.Addr().String())
			client := servetest.Client(t, p.HTTP, leasehttp.ClientConfig{Resends: -1})
			servetest.AwaitMetric(t, p.Server, "lock_server_forwards", 1)
			for forwarded(t, p, "answered") == 0 { // by way of the proxy
				l, err := client.Acquire(t.Context(), servetest.Ask("job", "a"))
				require.NoError(t, err)
				require.NoError(t, client.Release(t.Context(), l.Claim))
			}
			proxy.leaves.Store(true)
			_, err = client.Acquire(t.Context(), servetest.Ask("job", "b"))
			if passes {
				require.ErrorContains(t, err, "outcome unknown")
				return
			}
			require.NoError(t, err)
			held, err := p.Client.Get(t.Context(), "job")
			require.NoError(t, err)
			assert.Equal(t, "b", held.Holder)
		})
	}
}
