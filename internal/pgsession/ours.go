package pgsession

import "sync"

// A register remembers sessions, or transactions, of this process: their server process, and when they began.
// The two together are unique. It overwrites old entries, because it is not notified of ends.
type register struct {
	mu   sync.Mutex
	last [1024]began // by the pid's last bits
}

type began struct {
	pid uint32
	at  int64 // µs since 1970, by the server's clock
}

var ourLockers, ourTransactions register

func (r *register) note(b began) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last[b.pid%uint32(len(r.last))] = b
}

func (r *register) has(b began) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return b.at != 0 && r.last[b.pid%uint32(len(r.last))] == b
}

// microsSQL returns a time as µs since 1970, exactly.
func microsSQL(time string) string {
	return "(pg_catalog.date_part('epoch', " + time + ") OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8"
}
