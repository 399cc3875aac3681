// Package apitest is an in-memory server of the part of the Kubernetes API that elections use: GET, POST, PUT
// and watch of Leases. Like the real server it refuses a write that is not based on the newest
// resourceVersion, and gives no new one to a write that changes nothing. Tests can inject faults.
package apitest

import (
	"net/http/httptest"
	"strconv"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// The verbs of requests, as in RBAC rules.
const (
	Get    = "get"
	Create = "create"
	Update = "update"
	Watch  = "watch"
)

// A Fault changes how the server treats a request. The zero Fault changes nothing.
type Fault struct {
	Hold    <-chan struct{} // the request is executed when this is closed, even if the client is gone by then
	Arrived chan<- struct{} // closed when the request has arrived
	Status  int             // the request is not executed, and this is the answer
	Drop    bool            // the request is not executed, and the connection ends
	Lose    bool            // the request is executed, and the connection ends without an answer
	Before  func()          // called before the request is executed
	Again   bool            // the request is executed, and the answer asks the client to repeat it
	Silent  bool            // a watch reports nothing
}

// A Server serves the API. Its methods are safe for concurrent use.
type Server struct {
	http *httptest.Server
	quit chan struct{}

	mu      sync.Mutex
	fault   func(verb string) Fault
	count   map[string]int
	version uint64
	leases  map[string]*coordinationv1.Lease // by namespace and name
	history []event
	oldest  uint64        // version from which a watch may begin
	changed chan struct{} // closed by the next event
	watches chan struct{} // closed to end the watches
}

type event struct {
	key     string
	version uint64
	kind    string
	lease   *coordinationv1.Lease
}

// New starts a server on a loopback port.
func New() *Server {
	s := &Server{
		quit: make(chan struct{}), count: make(map[string]int), version: 100, leases: make(map[string]*coordinationv1.Lease),
		changed: make(chan struct{}), watches: make(chan struct{}),
	}
	s.http = httptest.NewServer(s)
	return s
}

// Close ends all requests, and the server.
func (s *Server) Close() {
	close(s.quit)
	s.http.CloseClientConnections()
	s.http.Close()
}

// Config returns the configuration of a client.
func (s *Server) Config() *rest.Config {
	return &rest.Config{
		Host: s.http.URL, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON, AcceptContentTypes: runtime.ContentTypeJSON},
	}
}

// Inject sets the fault of each request from now on; nil ends it.
func (s *Server) Inject(fault func(verb string) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// Count returns how many requests of a verb have arrived.
func (s *Server) Count(verb string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count[verb]
}

// Lease returns a copy of the Lease, nil if there is none.
func (s *Server) Lease(namespace, name string) *coordinationv1.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leases[namespace+"/"+name].DeepCopy()
}

// Delete deletes a Lease.
func (s *Server) Delete(namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := namespace + "/" + name
	if l := s.leases[key]; l != nil {
		delete(s.leases, key)
		s.recordLocked(key, "DELETED", l.DeepCopy())
	}
}

// Forget ends all watches, and lets no new watch begin at an earlier version.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.history, s.oldest = nil, s.version
	close(s.watches)
	s.watches = make(chan struct{})
}

// recordLocked gives a Lease its version, and notifies the watches.
func (s *Server) recordLocked(key, kind string, l *coordinationv1.Lease) {
	s.version++
	l.ResourceVersion = strconv.FormatUint(s.version, 10)
	if kind != "DELETED" {
		s.leases[key] = l.DeepCopy()
	}
	s.history = append(s.history, event{key, s.version, kind, l.DeepCopy()})
	close(s.changed)
	s.changed = make(chan struct{})
}
