package introspect

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"sync"
	"time"
)

// self is this process, with what a Config does not say.
var self = sync.OnceValue(func() Process {
	host, _ := os.Hostname() // "" says nothing, as little as "localhost" would
	p := Process{ID: random(), Host: host, PID: os.Getpid(), Service: "unknown"}
	if info, ok := debug.ReadBuildInfo(); ok {
		p.Service, p.Version = path.Base(info.Path), info.Main.Version
	}
	return p
})

var began = time.Now()

// ProcessID is the ID of this process in its answers.
func ProcessID() string { return self().ID }

// process is this process, as of now.
func (c Config) process(now time.Time) Process {
	p := self()
	if c.Service != "" {
		p.Service = c.Service
	}
	if c.Version != "" {
		p.Version = c.Version
	}
	p.Age, p.Clock = now.Sub(began), now.UTC().Round(0)
	return p
}

func random() string {
	b := make([]byte, 12)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}

// String is "billing@web-1 (4711)".
func (p Process) String() string {
	return p.Service + "@" + p.Host + " (" + strconv.Itoa(p.PID) + ")"
}

// compare orders processes for people.
func (p Process) compare(q Process) int {
	return cmp.Or(cmp.Compare(p.Service, q.Service), cmp.Compare(p.Host, q.Host), cmp.Compare(p.PID, q.PID), cmp.Compare(p.ID, q.ID))
}
