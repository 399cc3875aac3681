package actions

import (
	"crypto/rand"
	"crypto/sha256"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/pglatch/pglatch/internal/bearer"
)

const (
	sessionLasts = 12 * time.Hour
	maxSessions  = 1000
)

// sessions are the browsers in which somebody has signed in. Their cookies are random, and mean nothing after a
// restart.
type sessions struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte]signedIn // by the digest of the cookie
}

type signedIn struct {
	credential bearer.Credential
	ends       time.Time
}

// open begins a session, and sets its cookie. It ends the session that ends next, if there are too many.
func (s *sessions) open(w http.ResponseWriter, r *http.Request, c bearer.Credential) {
	id, now := rand.Text(), time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[[sha256.Size]byte]signedIn{}
	}
	var oldest [sha256.Size]byte
	for key, one := range s.known {
		if one.ends.Before(now) {
			delete(s.known, key)
		} else if first, ok := s.known[oldest]; !ok || one.ends.Before(first.ends) {
			oldest = key
		}
	}
	if len(s.known) >= maxSessions {
		delete(s.known, oldest)
	}
	s.known[sha256.Sum256([]byte(id))] = signedIn{c, now.Add(sessionLasts)}
	http.SetCookie(w, cookie(r, id, int(sessionLasts/time.Second)))
}

// close ends the session of a request.
func (s *sessions) close(w http.ResponseWriter, r *http.Request) {
	if c, err := r.Cookie(cookieName(r)); err == nil {
		s.mu.Lock()
		delete(s.known, sha256.Sum256([]byte(c.Value)))
		s.mu.Unlock()
	}
	http.SetCookie(w, cookie(r, "", -1))
}

// of returns the token with which the session of a request began.
func (s *sessions) of(r *http.Request) (bearer.Credential, bool) {
	c, err := r.Cookie(cookieName(r))
	if err != nil {
		return bearer.Credential{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.known[sha256.Sum256([]byte(c.Value))]
	return one.credential, ok && time.Now().Before(one.ends)
}

func cookie(r *http.Request, value string, seconds int) *http.Cookie {
	return &http.Cookie{
		Name: cookieName(r), Value: value, Path: "/", MaxAge: seconds,
		HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode,
	}
}

// cookieName contains the port, because browsers send the cookies of a host to all its ports.
func cookieName(r *http.Request) string {
	name := "pglatch"
	if _, port, err := net.SplitHostPort(r.Host); err == nil {
		name += "-" + port
	}
	if r.TLS != nil {
		return "__Host-" + name
	}
	return name
}
