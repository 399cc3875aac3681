// Package worker is a client of a system in a process of its own, so that its memory
// and its garbage collector are its own: what the bench calls, and what serves it.
package worker

import (
	"time"

	"github.com/pglatch/pglatch/bench/internal/gauge"
	"github.com/pglatch/pglatch/bench/internal/system"
	"github.com/pglatch/pglatch/bench/internal/workload"
)

// An Open says which client to be.
type Open struct {
	System string     `json:"system"`
	Env    system.Env `json:"env"`
	Table  string     `json:"table"` // file of the exclusion table
}

// A request is one line to the worker: one of its fields is set.
type request struct {
	Open   *Open          `json:"open,omitempty"`
	Load   *workload.Load `json:"load,omitempty"`
	Hold   int            `json:"hold,omitempty"` // locks
	Drop   bool           `json:"drop,omitempty"` // what is held
	Lose   int            `json:"lose,omitempty"` // locks
	Finish bool           `json:"finish,omitempty"`
	Bound  time.Duration  `json:"bound_ns"` // of the work
}

// A reply is one line from the worker.
type reply struct {
	Sample *workload.Sample `json:"sample,omitempty"`
	Stock  *workload.Stock  `json:"stock,omitempty"`
	Losses *gauge.Histogram `json:"losses,omitempty"`
	Cost   *Cost            `json:"cost,omitempty"`
	Error  string           `json:"error,omitempty"`
	Broken bool             `json:"broken,omitempty"` // the error is two holders of one key
}

// A Cost is what a client takes, in its process and at its server.
type Cost struct {
	Connections int   `json:"connections"`
	RSSBytes    int64 `json:"rss_bytes"`    // of the process
	ServerBytes int64 `json:"server_bytes"` // anonymous memory of the server's processes for it
}
