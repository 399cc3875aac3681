package agents

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/labstack/echo/v4"

	"github.com/pglatch/pglatch/monitor"
)

// The types of this file hold state that concerns one process. Another process may know something else, so a mutex
// guards each, not an advisory lock.

// An event tells connected browsers that a hook changed an agent.
type event struct {
	agentID int32
	hook    string
}

// A broadcaster passes events to the clients of this process.
type broadcaster struct {
	mu      sync.Mutex
	clients map[chan event]bool
}

// subscribe returns a channel of the events until leave. A client that reads too slowly misses events.
func (b *broadcaster) subscribe() (events <-chan event, leave func()) {
	c := make(chan event, 16)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.clients == nil {
		b.clients = map[chan event]bool{}
	}
	b.clients[c] = true
	return c, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.clients, c)
	}
}

// publish sends an event to every client. It never waits: a slow client must not hold up a hook.
func (b *broadcaster) publish(e event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.clients {
		select {
		case c <- e:
		default:
		}
	}
}

// A memo remembers up to 10,000 values. Then it forgets all.
type memo[V any] struct {
	mu     sync.Mutex
	values map[string]V
}

// A sessionRegistry remembers the agents of sessions, which never change. An inferenceCache remembers the model's
// summary of each text, so that a repeated text costs no further call.
type (
	sessionRegistry = memo[int32]
	inferenceCache  = memo[string]
)

func (m *memo[V]) add(key string, value V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.values == nil || len(m.values) >= 10_000 {
		m.values = map[string]V{}
	}
	m.values[key] = value
}

func (m *memo[V]) find(key string) (value V, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	value, ok = m.values[key]
	return value, ok
}

// A tokenStore holds the bearer tokens of clients.
type tokenStore struct {
	mu      sync.Mutex
	digests [][sha256.Size]byte
}

// replace replaces all tokens. A token shorter than 16 bytes is an error. Replacing existing tokens with none is an
// error too: a protected program stays protected. On an error nothing changes.
func (s *tokenStore) replace(tokens []string) error {
	digests := make([][sha256.Size]byte, len(tokens))
	for i, token := range tokens {
		if len(token) < 16 {
			return fmt.Errorf("token %d has %d bytes: use 16 random ones at least", i+1, len(token))
		}
		digests[i] = sha256.Sum256([]byte(token))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(digests) == 0 && len(s.digests) > 0 {
		return errors.New("no token is left: the ones before stay")
	}
	s.digests = digests
	return nil
}

// known compares token with all tokens, in a time that does not depend on their content. open means that there are none.
func (s *tokenStore) known(token string) (known, open bool) {
	digest, found := sha256.Sum256([]byte(token)), 0
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.digests {
		found |= subtle.ConstantTimeCompare(digest[:], s.digests[i][:])
	}
	return found == 1, len(s.digests) == 0
}

// authorize runs before every route, hooks and the list of locks alike. If there are tokens, a request needs one of
// them. Otherwise it must come from this host.
func (s *tokenStore) authorize(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		scheme, token, _ := strings.Cut(r.Header.Get(echo.HeaderAuthorization), " ")
		known, open := s.known(token)
		if open && monitor.LoopbackOnly(r, monitor.ActionView) != nil {
			return refuse(http.StatusForbidden, "without tokens only this host is answered, and not through a proxy: set Config.Tokens")
		}
		if !open && (!known || !strings.EqualFold(scheme, "Bearer")) {
			c.Response().Header().Set(echo.HeaderWWWAuthenticate, "Bearer")
			return refuse(http.StatusUnauthorized, "send one of the program's bearer tokens")
		}
		return next(c)
	}
}
