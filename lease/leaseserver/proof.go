package leaseserver

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/pglatch/pglatch/internal/loopback"
)

// The headers by which the active server proves itself.
const (
	challengeHeader = "Pglatch-Challenge"
	proofHeader     = "Pglatch-Proof"
)

var (
	errUnproven   = errors.New("it does not know this server's token")
	errUnprovable = errors.New("it cannot prove that it is a server of this store: set a token for the servers, or https with the certificates that vouch for them")
)

// recognize requires that a server is one of this store, before it receives a token of servers or clients. The
// Election does not prove that: on PostgreSQL, every role that can connect can take the lock of the election. A server
// proves that it knows the token, by an answer that is valid only for its own URL. Without a token, its certificate
// must come from the authorities of Peers.TLS, or its address must be on this machine.
func (f *forwarder) recognize(ctx context.Context, target string, base *url.URL) error {
	switch {
	case f.peers.Token != "":
		return f.challenge(ctx, target, base)
	case base.Scheme == "https" && f.transport.Load().vouched, loopback.Is(base.Host):
		return nil
	}
	return errUnprovable
}

func (f *forwarder) challenge(ctx context.Context, target string, base *url.URL) error {
	text := rand.Text()
	answer, err := f.ask(ctx, base, http.Header{challengeHeader: {text}})
	if err != nil {
		return err
	}
	if proof, err := base64.StdEncoding.DecodeString(answer.Get(proofHeader)); err != nil || !hmac.Equal(proof, f.proof(target, text)) {
		return errUnproven
	}
	return nil
}

// proof is the answer of the server at a URL to a challenge. It contains the URL, so that no other server can pass the
// challenge on.
func (f *forwarder) proof(target, challenge string) []byte {
	mac := hmac.New(sha256.New, []byte(f.peers.Token))
	_, _ = fmt.Fprintf(mac, "pglatch: active server\n%q\n%q", target, challenge)
	return mac.Sum(nil)
}

// prove answers a challenge, if this server is active and has a token.
func (s *Server) prove(w http.ResponseWriter, challenge string) error {
	target, self, _ := s.forwarder.peers.Election.Active()
	if !self || s.forwarder.peers.Token == "" {
		return refuseHop("this server is not active, or has no token of servers")
	}
	w.Header().Set(proofHeader, base64.StdEncoding.EncodeToString(s.forwarder.proof(target, challenge)))
	return noContent(w)
}
