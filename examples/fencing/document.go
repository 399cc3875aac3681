package main

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
)

// tokenHeader carries the fencing token of a write.
const tokenHeader = "Fencing-Token"

// A document is a resource behind HTTP that knows nothing of leases. For fencing it only has
// to remember the highest token and refuse lower ones.
type document struct {
	fencing bool

	mu       sync.Mutex
	text     string
	lastSeen uint64
}

// ServeHTTP answers PUT with a token, and GET.
func (d *document) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPut {
		d.mu.Lock()
		defer d.mu.Unlock()
		_, _ = io.WriteString(w, d.text)
		return
	}
	token, err := strconv.ParseUint(r.Header.Get(tokenHeader), 10, 64)
	if err != nil {
		http.Error(w, tokenHeader+" is missing", http.StatusPreconditionRequired)
		return
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	d.mu.Lock() // makes compare and write one step
	defer d.mu.Unlock()
	if d.fencing && token < d.lastSeen {
		http.Error(w, fmt.Sprintf("token %d: a write with %d has been seen", token, d.lastSeen), http.StatusPreconditionFailed)
		return
	}
	d.lastSeen = max(d.lastSeen, token)
	d.text = string(text)
	w.WriteHeader(http.StatusNoContent)
}
