package introspect

import (
	"crypto/ecdh"
	"crypto/hpke"
	"encoding/base64"
	"encoding/json"
	"fmt"
)

// Any role that may connect can listen on any channel (PostgreSQL manual, LISTEN), the channel of an answer included. So a question
// carries a public key, and the answer is encrypted for it (RFC 9180). PostgreSQL itself reports which session asked; see rightsOf.

// answerInfo is the "info" of RFC 9180: it makes a ciphertext valid for this purpose only.
var answerInfo = []byte("pglatch answer 1")

var (
	sealKEM  = hpke.DHKEM(ecdh.X25519())
	sealKDF  = hpke.HKDFSHA256()
	sealAEAD = hpke.AES128GCM()
)

// newSeal makes the key of one question.
func newSeal() (private hpke.PrivateKey, public []byte, err error) {
	if private, err = sealKEM.GenerateKey(); err != nil {
		return nil, nil, fmt.Errorf("introspect: making a key: %w", err)
	}
	return private, private.PublicKey().Bytes(), nil
}

// seal encrypts a message for the owner of a public key, as base64.
func seal(public hpke.PublicKey, m message) (string, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	sealed, err := hpke.Seal(public, sealKDF, sealAEAD, answerInfo, text)
	return base64.StdEncoding.EncodeToString(sealed), err
}

// unseal decrypts what seal returned.
func unseal(private hpke.PrivateKey, text string) (m message, err error) {
	sealed, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return m, err
	}
	plain, err := hpke.Open(private, sealKDF, sealAEAD, answerInfo, sealed)
	if err != nil {
		return m, err
	}
	err = json.Unmarshal(plain, &m)
	return m, err
}
