package bearer

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"slices"
	"strings"
	"unicode"
)

const (
	commonName  = "cn"
	alternative = "san"
	anyName     = "*"
)

// MaxName is the greatest length of the name of a sender, in bytes.
const MaxName = 128

// CheckCertificate refuses what is no name of certificates. The text of its error follows the name of what has it.
func CheckCertificate(names string) error {
	if kind, name, _ := strings.Cut(names, ":"); kind != commonName && kind != alternative || name == "" {
		return errors.New("has a Certificate that is no name: use cn:NAME or san:NAME")
	}
	return nil
}

// Leaf returns the certificate of a connection's client, nil if it has none that was verified in
// the handshake.
func Leaf(connection *tls.ConnectionState) *x509.Certificate {
	if connection == nil || len(connection.VerifiedChains) == 0 {
		return nil
	}
	return connection.VerifiedChains[0][0]
}

// Fits reports whether a certificate has a name, as Certificate takes it.
func Fits(names string, leaf *x509.Certificate) bool {
	kind, name, _ := strings.Cut(names, ":")
	switch {
	case name == anyName:
		return true
	case kind == commonName:
		return leaf.Subject.CommonName == name && !severalNames(leaf)
	case slices.Contains(leaf.DNSNames, name), slices.Contains(leaf.EmailAddresses, name):
		return true
	}
	for _, ip := range leaf.IPAddresses {
		if ip.String() == name {
			return true
		}
	}
	for _, uri := range leaf.URIs {
		if uri.String() == name {
			return true
		}
	}
	return false
}

// severalNames reports whether a certificate has more than one common name. Readers differ in
// which one they use.
func severalNames(leaf *x509.Certificate) bool {
	n := 0
	for _, a := range leaf.Subject.Names {
		if a.Type.Equal(asn1.ObjectIdentifier{2, 5, 4, 3}) {
			n++
		}
	}
	return n > 1
}

// Subject returns the subject of a certificate, in a form that is safe in a log and a lease's
// metadata.
func Subject(leaf *x509.Certificate) string {
	text := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, leaf.Subject.String())
	return strings.ToValidUTF8(text[:min(len(text), MaxName)], "")
}
