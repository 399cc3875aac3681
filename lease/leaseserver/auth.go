package leaseserver

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/pglatch/pglatch/internal/bearer"
	"github.com/pglatch/pglatch/internal/loopback"
	"github.com/pglatch/pglatch/lease/internal/wire"
)

// A Right is what a token allows its bearer to do. Each right includes those after it.
type Right int

// The rights.
const (
	Admin   Right = iota // sees the IDs of leases, and can end leases of others
	Hold                 // acquires, renews and releases
	Read                 // sees the holders of locks
	Metrics              // sees /metrics, which shows no names of locks
)

var rightNames = [...]string{"admin", "hold", "read", "metrics"}

// String returns the right's name, as ParseRight reads it.
func (r Right) String() string {
	if r < 0 || int(r) >= len(rightNames) {
		return fmt.Sprintf("Right(%d)", int(r))
	}
	return rightNames[r]
}

// ParseRight reads admin, hold, read or metrics.
func ParseRight(text string) (Right, error) {
	for i, name := range rightNames {
		if text == name {
			return Right(i), nil
		}
	}
	return 0, fmt.Errorf("leaseserver: the right is %q: use one of %s", text, strings.Join(rightNames[:], ", "))
}

// A Token is a bearer token, or a name of client certificates, with its right and prefix.
type Token struct {
	Secret string // 16 random bytes at least; "" = Certificate is used instead

	// Certificate is cn:NAME or san:NAME. The NAME * matches any name. cn is the common name of a
	// certificate's subject. san is one of its DNS names, IP addresses, URIs and email addresses.
	// If several tokens match, the first one counts. A request with a bearer token has only that
	// token's rights, and not those of its certificate. Only certificates that were verified in
	// the handshake count; Config.TLS.ClientAuth decides which are verified.
	Certificate string

	Right  Right  // zero = Admin
	Prefix string // of the names of its locks; "" = all
	Name   string // of its bearer, for the log of an admin's actions; "" = its index among the tokens
}

// A bearerToken is a Token without its secret.
type bearerToken struct {
	right  Right
	prefix string
	who    string // for the log
}

// knownTokens are the tokens that a server knows.
type knownTokens struct {
	set bearer.Set
	all []bearerToken // in the order of set
}

// SetTokens replaces Config.Tokens, from the next request on; requests that already wait
// continue to wait. If it returns an error, for example because the server has no Tokens,
// nothing changes.
func (s *Server) SetTokens(tokens []Token) error {
	if s.tokens.Load() == nil || len(tokens) == 0 {
		return errors.New("leaseserver: a server with tokens keeps some, and one without has none: start another")
	}
	if err := checkTokens(tokens); err != nil {
		return err
	}
	s.setTokens(tokens)
	return nil
}

func (s *Server) setTokens(tokens []Token) {
	var known knownTokens
	for i, t := range tokens {
		credential := bearer.Certificate(t.Certificate)
		if t.Secret != "" {
			credential = bearer.Token(t.Secret)
		}
		known.set = append(known.set, credential)
		known.all = append(known.all, bearerToken{right: t.Right, prefix: t.Prefix, who: cmp.Or(t.Name, fmt.Sprintf("token %d", i+1))})
	}
	s.tokens.Store(&known)
}

func checkTokens(tokens []Token) error {
	for i, t := range tokens {
		if first := slices.IndexFunc(tokens, func(other Token) bool { return other.Secret == t.Secret && other.Certificate == t.Certificate }); first < i {
			return fmt.Errorf("leaseserver: Tokens[%d] is Tokens[%d] again: give it one right and one prefix", i, first)
		}
		if err := bearer.CheckCertificate(t.Certificate); t.Certificate != "" {
			if t.Secret != "" {
				err = errors.New("has a Secret, too: make two of it")
			}
			if err != nil {
				return fmt.Errorf("leaseserver: Tokens[%d] %w", i, err)
			}
		} else if len(t.Secret) < bearer.MinToken {
			return fmt.Errorf("leaseserver: Tokens[%d] has %d bytes: use %d random ones at least", i, len(t.Secret), bearer.MinToken)
		}
		if len(t.Name) > bearer.MaxName || !utf8.ValidString(t.Name) || strings.ContainsFunc(t.Name, unicode.IsControl) {
			return fmt.Errorf("leaseserver: Tokens[%d] has the name %.140q: use at most %d bytes of UTF-8 without control characters", i, t.Name, bearer.MaxName)
		}
		if t.Right < Admin || t.Right > Metrics {
			return fmt.Errorf("leaseserver: Tokens[%d] has the right %d: use one of %s", i, t.Right, strings.Join(rightNames[:], ", "))
		}
	}
	return nil
}

// authorize refuses a request that does not have the right need. It returns the request's token, nil
// if the server has none.
func (s *Server) authorize(r *http.Request, from *hop, need Right) (*bearerToken, error) {
	tokens := s.tokens.Load()
	switch {
	case s.Authorize != nil:
		if err := s.Authorize(r); err != nil {
			return nil, wire.Refuse(wire.TypeForbidden, "this request is not allowed")
		}
	case tokens != nil:
		t := tokens.of(r, from)
		if t == nil {
			return nil, wire.Refuse(wire.TypeUnauthorized, "send a bearer token that the server knows, or a certificate that is good for something")
		}
		return t, t.check(r, need)
	case !s.AllowInsecure && isForeign(r):
		return nil, wire.Refuse(wire.TypeForbidden, "this server has no tokens and answers only clients on its own machine")
	}
	if need == Admin { // the log must name the admin
		return nil, wire.Refuse(wire.TypeForbidden, "this needs a token with the admin right")
	}
	return nil, nil //nolint:nilnil // no token, no error
}

// of returns the token of a request: by its header, or else by the client's certificate. nil = the
// server does not know the token.
func (k *knownTokens) of(r *http.Request, from *hop) *bearerToken {
	leaf := bearer.Leaf(r.TLS)
	switch {
	case len(r.Header["Authorization"]) > 0:
		return k.at(k.set.Bearer(r.Header.Get("Authorization")), nil)
	case from != nil:
		leaf = from.leaf
	}
	return k.at(k.set.Certified(leaf), leaf)
}

// at returns one token, with the bearer of a certificate if the certificate selected it. nil = i is
// negative.
func (k *knownTokens) at(i int, leaf *x509.Certificate) *bearerToken {
	if i < 0 {
		return nil
	}
	found := k.all[i]
	if leaf != nil {
		found.who = cmp.Or(bearer.Subject(leaf), found.who)
	}
	return &found
}

// isForeign reports whether a request is from another machine. A client of a Unix socket is local,
// and the file's permissions have admitted it; but a request through a proxy is foreign.
func isForeign(r *http.Request) bool {
	if isUnix(r) {
		return loopback.Proxied(r) != nil
	}
	return loopback.Request(r) != nil
}

func isUnix(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && local.Network() == "unix"
}

// clientAddress returns the origin of a request, for the log.
func clientAddress(r *http.Request) string {
	if isUnix(r) {
		return "unix"
	}
	return r.RemoteAddr
}

// check refuses requests beyond a token's rights and prefix.
func (t *bearerToken) check(r *http.Request, need Right) error {
	if t.right > need {
		return wire.Refuse(wire.TypeForbidden, fmt.Sprintf("this needs the %s right, and the token or certificate has %s", need, t.right))
	}
	if r.PathValue(paramLock) == "" {
		return nil
	}
	name, err := lockName(r)
	if err != nil {
		return err
	}
	return t.checkName(name)
}

// checkName refuses a name, or a prefix of names, outside of a token's prefix.
func (t *bearerToken) checkName(name string) error {
	if t != nil && !strings.HasPrefix(name, t.prefix) {
		return wire.Refuse(wire.TypeForbidden, fmt.Sprintf("the token or certificate is for locks whose names begin with %q", t.prefix))
	}
	return nil
}
