package agents

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"

	"github.com/labstack/echo/v4"

	"github.com/pglatch/pglatch/monitor"
)

// minToken is the least length of a token, in bytes.
const minToken = 16

// A TokenStore holds the bearer tokens of clients. The tokens that this process accepts concern
// no other process, so a mutex guards them, not an advisory lock.
type TokenStore struct {
	mu      sync.Mutex
	digests [][sha256.Size]byte
}

// Replace replaces all tokens from the next request on. A token shorter than 16 bytes is an
// error. Replacing existing tokens with none is an error too: a protected program stays
// protected. On an error nothing changes.
func (s *TokenStore) Replace(tokens []string) error {
	digests := make([][sha256.Size]byte, len(tokens))
	for i, token := range tokens {
		if len(token) < minToken {
			return fmt.Errorf("agents: token %d has %d bytes: use %d random ones at least", i+1, len(token), minToken)
		}
		digests[i] = sha256.Sum256([]byte(token))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(digests) == 0 && len(s.digests) > 0 {
		return fmt.Errorf("agents: no token is left: the ones before stay")
	}
	s.digests = digests
	return nil
}

// Empty reports whether there are no tokens.
func (s *TokenStore) Empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.digests) == 0
}

// known compares token with all tokens, in a time that does not depend on their content.
func (s *TokenStore) known(token string) bool {
	digest := sha256.Sum256([]byte(token))
	s.mu.Lock()
	defer s.mu.Unlock()
	found := 0
	for i := range s.digests {
		found |= subtle.ConstantTimeCompare(digest[:], s.digests[i][:])
	}
	return found == 1
}

// authorize runs before every route, hooks and the list of locks alike. If there are tokens, a
// request needs one of them. Otherwise it must come from this host.
func (s *TokenStore) authorize(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if s.Empty() {
			if err := monitor.LoopbackOnly(r, monitor.ActionView); err != nil {
				return echo.NewHTTPError(http.StatusForbidden, "without tokens only this host is answered, and not through a proxy")
			}
			return next(c)
		}
		scheme, token, _ := strings.Cut(r.Header.Get(echo.HeaderAuthorization), " ")
		if !strings.EqualFold(scheme, "Bearer") || !s.known(token) {
			c.Response().Header().Set(echo.HeaderWWWAuthenticate, "Bearer")
			return echo.NewHTTPError(http.StatusUnauthorized, "send one of the program's bearer tokens")
		}
		return next(c)
	}
}

// checkAddress refuses an address that other hosts can reach if the program has no tokens.
func (s *TokenStore) checkAddress(address string) error {
	from, err := netip.ParseAddrPort(address)
	if !s.Empty() || err == nil && from.Addr().Unmap().IsLoopback() {
		return nil
	}
	return fmt.Errorf("agents: other hosts can reach %s, and there are no tokens: set Config.Tokens (-token-file), or listen on 127.0.0.1", address)
}
