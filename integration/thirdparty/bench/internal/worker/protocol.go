// Package worker runs a client of a system in a separate process, with its own memory and
// garbage collector. It has the calls of the bench and the code that serves them.
package worker

import (
	"time"

	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/system"
	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/workload"
	"github.com/pglatch/pglatch/internal/histogram"
)

// An Open says which client to run.
type Open struct {
	System string     `json:"system"`
	Env    system.Env `json:"env"`
	Table  string     `json:"table"` // file of the exclusion table
}

// A request is one line to the worker, with one of its fields set.
type request struct {
	Open   *Open          `json:"open,omitempty"`
	Load   *workload.Load `json:"load,omitempty"`
	Hold   int            `json:"hold,omitempty"` // locks
	Drop   bool           `json:"drop,omitempty"` // release the held locks
	Lose   int            `json:"lose,omitempty"` // locks
	Finish bool           `json:"finish,omitempty"`
	Bound  time.Duration  `json:"bound_ns"` // time limit of the work
}

// A reply is one line from the worker.
type reply struct {
	Sample *workload.Sample     `json:"sample,omitempty"`
	Stock  *workload.Stock      `json:"stock,omitempty"`
	Losses *histogram.Histogram `json:"losses,omitempty"`
	Cost   *Cost                `json:"cost,omitempty"`
	Error  string               `json:"error,omitempty"`
	Broken bool                 `json:"broken,omitempty"` // the error is ErrTwoHolders
}

// A Cost is the resource use of a client, in its process and at its server.
type Cost struct {
	Connections int   `json:"connections"`
	RSSBytes    int64 `json:"rss_bytes"`    // of the process
	ServerBytes int64 `json:"server_bytes"` // anonymous memory of the server's processes for it
}
