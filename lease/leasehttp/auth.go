package leasehttp

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"strings"
)

// authorize refuses a request that may not be carried out.
func (s *Server) authorize(r *http.Request) error {
	switch {
	case s.Authorize != nil:
		if err := s.Authorize(r); err != nil {
			return refuse(TypeForbidden, "this request is not allowed")
		}
	case len(s.tokens) > 0:
		if !s.bearer(r.Header.Get("Authorization")) {
			return refuse(TypeUnauthorized, "send a bearer token that the server knows")
		}
	case !s.AllowInsecure && !local(r):
		return refuse(TypeForbidden, "this server has no tokens and answers only clients on its own machine")
	}
	return nil
}

// bearer compares with all tokens, in a time that does not depend on their contents.
func (s *Server) bearer(header string) bool {
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return false
	}
	digest := sha256.Sum256([]byte(token))
	found := 0
	for i := range s.tokens {
		found |= subtle.ConstantTimeCompare(digest[:], s.tokens[i][:])
	}
	return found == 1
}

// local reports whether a request comes from this machine, through no proxy, and by
// no name that a web page of somebody else could have.
func local(r *http.Request) bool {
	for header := range r.Header {
		if ofProxy(header) {
			return false
		}
	}
	return isLoopback(hostOf(r.RemoteAddr)) && (hostOf(r.Host) == "localhost" || isLoopback(hostOf(r.Host)))
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

func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return strings.Trim(address, "[]")
}

func isLoopback(host string) bool {
	if host == "127.0.0.1" { // nearly always
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
