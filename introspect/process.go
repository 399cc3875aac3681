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

// self describes this process as far as no Config overrides it.
var self = sync.OnceValue(func() Process {
	host, _ := os.Hostname() // on failure "", which is as uninformative as "localhost"
	p := Process{ID: random(), Host: host, PID: os.Getpid(), Service: "unknown"}
	if info, ok := debug.ReadBuildInfo(); ok {
		p.Service, p.Version = path.Base(info.Path), info.Main.Version
	}
	return p
})

var began = time.Now()

// ProcessID returns the ID of this process in its answers.
func ProcessID() string { return self().ID }

// process returns this process, as of now.
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

// As returns the process under the service of one of its parts, such as Lock.Service. "" does not change it.
func (p Process) As(service string) Process {
	p.Service = cmp.Or(service, p.Service)
	return p
}

// String returns text such as "billing@web-1 (4711)".
func (p Process) String() string {
	return p.Service + "@" + p.Host + " (" + strconv.Itoa(p.PID) + ")"
}

// compare orders processes for display.
func (p Process) compare(q Process) int {
	return cmp.Or(cmp.Compare(p.Service, q.Service), cmp.Compare(p.Host, q.Host), cmp.Compare(p.PID, q.PID), cmp.Compare(p.ID, q.ID))
}
