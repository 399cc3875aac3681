// Package faultproxy is a TCP proxy that loses, delays and resets its connections' data, for tests of
// network faults.
package faultproxy

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"sync"
	"time"
)

// A Mode is a Proxy's treatment of the bytes that it carries.
type Mode uint8

// The modes of a Proxy. Held bytes, and the end of a connection, are delivered when the mode allows it
// again, as after a healed network partition.
const (
	Pass Mode = iota
	Hold
	HoldToServer // holds only the client's data
	HoldToClient // holds only the server's data
)

// A Proxy carries TCP connections to one server. It is safe for concurrent use.
type Proxy struct {
	target   string
	listener net.Listener
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	mu      sync.Mutex
	mode    Mode
	delay   time.Duration
	changed chan struct{} // closed by the next change of mode
	conns   map[net.Conn]struct{}
}

// New starts a proxy on a free loopback port. The caller must Close it.
func New(ctx context.Context, target string) (*Proxy, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("faultproxy: %w", err)
	}
	p := &Proxy{target: target, listener: listener, changed: make(chan struct{}), conns: make(map[net.Conn]struct{})}
	p.ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	p.wg.Go(p.accept)
	return p, nil
}

// URL returns a connection URL with the proxy instead of the server.
func (p *Proxy) URL(server string) (string, error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", fmt.Errorf("faultproxy: %w", err)
	}
	u.Host = p.listener.Addr().String()
	return u.String(), nil
}

// Set changes the mode, for old and new connections.
func (p *Proxy) Set(mode Mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = mode
	close(p.changed)
	p.changed = make(chan struct{})
}

// Delay delays all data that is read from now on; 0 ends the delay.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Reset ends all connections with a TCP reset to both ends.
func (p *Proxy) Reset() { p.reset(func(net.Conn) bool { return true }) }

// ResetServer resets the server's ends of all connections, as a firewall can. The clients' ends follow when
// the mode allows it.
func (p *Proxy) ResetServer() {
	p.reset(func(conn net.Conn) bool { return conn.RemoteAddr().String() == p.target })
}

func (p *Proxy) reset(which func(net.Conn) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		if which(conn) {
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		}
	}
}

// Close ends all connections and blocks until all goroutines of the proxy have ended.
func (p *Proxy) Close() {
	p.cancel()
	_ = p.listener.Close()
	p.Reset()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.wg.Go(func() { p.serve(client) })
	}
}

// serve carries one connection until either end closes it.
func (p *Proxy) serve(client net.Conn) {
	if !p.add(client) {
		return
	}
	defer p.remove(client)
	if !p.await(HoldToServer) {
		return
	}
	server, err := new(net.Dialer).DialContext(p.ctx, "tcp", p.target)
	if err != nil || !p.add(server) {
		return
	}
	defer p.remove(server)
	var wg sync.WaitGroup
	wg.Go(func() { p.pump(server, client, HoldToServer) })
	wg.Go(func() { p.pump(client, server, HoldToClient) })
	wg.Wait()
}

// pump carries one direction; held is the mode that holds it.
func (p *Proxy) pump(to, from net.Conn, held Mode) {
	defer func() { _ = to.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if !p.await(held) {
			return
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// await blocks for the delay and while the direction is held; false after Close.
func (p *Proxy) await(held Mode) bool {
	p.mu.Lock()
	delay := p.delay
	p.mu.Unlock()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-p.ctx.Done():
			return false
		}
	}
	for {
		p.mu.Lock()
		mode, changed := p.mode, p.changed
		p.mu.Unlock()
		if mode != Hold && mode != held {
			return p.ctx.Err() == nil
		}
		select {
		case <-changed:
		case <-p.ctx.Done():
			return false
		}
	}
}

func (p *Proxy) add(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		_ = conn.Close()
		return false
	}
	p.conns[conn] = struct{}{}
	return true
}

func (p *Proxy) remove(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
	_ = conn.Close()
}
