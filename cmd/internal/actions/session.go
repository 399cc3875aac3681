package actions

import (
	"net"
	"net/http"
	"time"

	"github.com/pglatch/pglatch/internal/bearer"
)

const sessionLasts = 12 * time.Hour

// sessions are the browsers in which somebody has signed in, with the token. Their ids are in cookies.
type sessions struct{ tickets[bearer.Credential] }

// open begins a session, and sets its cookie.
func (s *sessions) open(w http.ResponseWriter, r *http.Request, c bearer.Credential) {
	id, _ := s.add(c)
	http.SetCookie(w, cookie(r, id, int(sessionLasts/time.Second)))
}

// close ends the session of a request.
func (s *sessions) close(w http.ResponseWriter, r *http.Request) {
	if c, err := r.Cookie(cookieName(r)); err == nil {
		s.remove(c.Value)
	}
	http.SetCookie(w, cookie(r, "", -1))
}

// of returns the token with which the session of a request began.
func (s *sessions) of(r *http.Request) (bearer.Credential, bool) {
	c, err := r.Cookie(cookieName(r))
	if err != nil {
		return bearer.Credential{}, false
	}
	return s.find(c.Value)
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
