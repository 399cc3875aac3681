package leaseserver

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/pglatch/pglatch/internal/loopback"
	"github.com/pglatch/pglatch/lease/internal/wire"
)

// authorize refuses a request that may not be carried out.
func (s *Server) authorize(r *http.Request) error {
	switch {
	case s.Authorize != nil:
		if err := s.Authorize(r); err != nil {
			return wire.Refuse(wire.TypeForbidden, "this request is not allowed")
		}
	case len(s.tokens) > 0:
		if !s.bearer(r.Header.Get("Authorization")) {
			return wire.Refuse(wire.TypeUnauthorized, "send a bearer token that the server knows")
		}
	case !s.AllowInsecure && loopback.Request(r) != nil:
		return wire.Refuse(wire.TypeForbidden, "this server has no tokens and answers only clients on its own machine")
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
