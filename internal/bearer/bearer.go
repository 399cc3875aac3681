// Package bearer recognizes the senders of requests by bearer tokens and client certificates.
package bearer

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"slices"
	"strings"
	"time"
)

// MinToken is the least length of a token, in bytes.
const MinToken = 16

// A Credential is a bearer token without its text, or a name of client certificates.
type Credential struct {
	digest [sha256.Size]byte
	names  string // of certificates; "" = a token
}

// Token is the Credential of a token with this text.
func Token(text string) Credential { return Credential{digest: sha256.Sum256([]byte(text))} }

// Digest is the Credential of the token with this SHA-256 digest.
func Digest(digest [sha256.Size]byte) Credential { return Credential{digest: digest} }

// Certificate is the Credential of certificates with a name: cn:NAME or san:NAME, which CheckCertificate accepts.
func Certificate(names string) Credential { return Credential{names: names} }

// A Set is the Credentials that a server knows.
type Set []Credential

// Bearer returns the index of the token in an Authorization header. It compares all tokens, in a time that does not
// depend on their contents. -1 = none matches.
func (s Set) Bearer(header string) int {
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return -1
	}
	return s.Index(Token(token))
}

// Index returns the index of a token, and compares as Bearer does. -1 = none matches.
func (s Set) Index(token Credential) int {
	at := -1
	for i := range s {
		if s[i].names == "" { // or the empty digest would be that of a certificate
			at = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(token.digest[:], s[i].digest[:]), i, at)
		}
	}
	return at
}

// Certified returns the index of the first name that a verified certificate has. The certificate must still be
// valid. -1 = none.
func (s Set) Certified(leaf *x509.Certificate) int {
	if leaf == nil || time.Now().After(leaf.NotAfter) {
		return -1
	}
	return slices.IndexFunc(s, func(c Credential) bool { return c.names != "" && Fits(c.names, leaf) })
}
