// Package loopback recognizes requests from the same machine, for servers that answer
// no others unless their configuration names them.
package loopback

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Why a request is not from this machine.
var (
	ErrRemote  = errors.New("the client is on another host")
	ErrProxied = errors.New("the request came through a proxy")
	ErrHost    = errors.New("the Host is not localhost, 127.0.0.1 or [::1]")
)

// Request returns nil if a request comes from this machine, through no proxy that says
// so, and by no name that a web page of somebody else could have: its Host is localhost,
// 127.0.0.1, [::1], or the loopback address at which it was accepted.
func Request(r *http.Request) error {
	if !Is(r.RemoteAddr) {
		return ErrRemote
	}
	if err := Proxied(r); err != nil {
		return err
	}
	switch host := Host(r.Host); {
	case strings.EqualFold(host, "localhost"), host == "127.0.0.1", host == "::1":
		return nil
	case Is(host) && host == acceptedAt(r):
		return nil
	}
	return ErrHost
}

// Proxied returns ErrProxied if a request has a header that proxies add.
func Proxied(r *http.Request) error {
	for header := range r.Header {
		if ofProxy(http.CanonicalHeaderKey(header)) {
			return ErrProxied
		}
	}
	return nil
}

func acceptedAt(r *http.Request) string {
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		return Host(local.String())
	}
	return ""
}

// Is reports whether an address, with or without a port, is a loopback one.
func Is(address string) bool {
	host := Host(address)
	if host == "127.0.0.1" { // nearly always
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// Listens reports whether only processes of this machine can reach a listener's address: a loopback
// one, or a Unix socket.
func Listens(address net.Addr) bool { return address.Network() == "unix" || Is(address.String()) }

// Host is the host of an address, without brackets.
func Host(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return strings.Trim(address, "[]")
}

// ofProxy reports whether a header, in its canonical form, is one that proxies add:
// those of RFC 9110 and 7239, nginx, HAProxy, Envoy, Cloudflare, Akamai, Fastly, AWS,
// Google, Azure and Fly. A proxy that adds none cannot be told from a client.
func ofProxy(header string) bool {
	switch header {
	case "Via", "Forwarded", "True-Client-Ip", "Client-Ip", "X-Client-Ip", "X-Cluster-Client-Ip", "X-Real-Ip", "X-Proxyuser-Ip",
		"X-Original-Host", "X-Original-Url", "X-Original-Forwarded-For", "X-Cloud-Trace-Context", "X-Request-Start", "X-Scheme", "X-Varnish", "Proxy-Connection":
		return true
	}
	for _, prefix := range [...]string{"X-Forwarded", "Cf-", "Cdn-", "X-Amzn-", "X-Amz-Cf-", "X-Envoy-", "X-Azure-", "X-Arr-", "X-Akamai-", "Akamai-", "Fastly-", "Fly-", "X-Appengine-", "X-Goog-"} {
		if strings.HasPrefix(header, prefix) {
			return true
		}
	}
	return false
}
