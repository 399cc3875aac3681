package leaseserver

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/base64"
	"net/http"
	"strconv"
	"time"

	"github.com/pglatch/pglatch/internal/bearer"
	"github.com/pglatch/pglatch/lease/internal/wire"
)

// The headers between servers. A server removes them from a client's request that it forwards.
const (
	hopHeader         = "Pglatch-Forwarded" // the client's address; a request with it is not forwarded again
	peerHeader        = "Pglatch-Peer-Token"
	certificateHeader = "Pglatch-Client-Certificate" // the client's certificate, verified by the server that forwards
	waitedHeader      = "Pglatch-Waited-Ms"          // for how long the request was at the server that forwards
	processHeader     = "Pglatch-Active-Process"     // the process that the request is for
)

// A hop describes a request that another server has forwarded.
type hop struct {
	from   string            // the client's address
	proven bool              // by token or certificate: it came from a server
	leaf   *x509.Certificate // of the client; nil = none
	waited time.Duration
}

// isProven reports whether a server has forwarded the request.
func (h *hop) isProven() bool { return h != nil && h.proven }

// sign adds the headers of this server to a request for the active one.
func (f *forwarder) sign(h http.Header, to place, client string) {
	h.Set(hopHeader, client)
	if to.process != "" {
		h.Set(processHeader, to.process)
	}
	if f.peers.Token != "" {
		h.Set(peerHeader, f.peers.Token)
	}
}

// hopOf reads the headers of a forwarded request; nil = a client sent the request itself. It
// refuses a request that no server of this store can have forwarded.
func (s *Server) hopOf(r *http.Request) (*hop, error) {
	from, forwarded := r.Header[hopHeader]
	if !forwarded {
		return nil, nil //nolint:nilnil // no hop, no error
	}
	if s.forwarder == nil || len(from) != 1 {
		return nil, refuseHop("this server takes no forwarded requests")
	}
	if to := r.Header.Get(processHeader); to != "" {
		if here, _, _ := s.forwarder.elected(); here.process != "" && here.process != to {
			return nil, refuseHop("this request is for another process, which had this address before")
		}
	}
	p := s.Peers
	leaf := bearer.Leaf(r.TLS)
	certified := p.Certificate != "" && leaf != nil && bearer.Fits(p.Certificate, leaf) && !time.Now().After(leaf.NotAfter)
	h := &hop{from: from[0], proven: certified || p.Token != "" && sameSecret(p.Token, r.Header.Get(peerHeader))}
	if !h.proven && (p.Token != "" || p.Certificate != "") {
		return nil, refuseHop("the server that forwarded this has another token, or another certificate")
	}
	if text := r.Header.Get(certificateHeader); text != "" && certified {
		data, err := base64.StdEncoding.DecodeString(text)
		if err == nil {
			h.leaf, err = x509.ParseCertificate(data)
		}
		if err != nil {
			return nil, refuseHop("the client's certificate cannot be read")
		}
	}
	if ms, err := strconv.ParseInt(r.Header.Get(waitedHeader), 10, 64); err == nil && ms > 0 {
		h.waited = wire.Milliseconds(ms)
	}
	return h, nil
}

func refuseHop(detail string) error { return wire.Refuse(wire.TypeNotActive, detail) }

func sameSecret(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
