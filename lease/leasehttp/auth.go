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
	for _, header := range [...]string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host"} {
		if _, ok := r.Header[header]; ok {
			return false
		}
	}
	return isLoopback(hostOf(r.RemoteAddr)) && (hostOf(r.Host) == "localhost" || isLoopback(hostOf(r.Host)))
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
