package postgres

import (
	"encoding/json"
	"fmt"

	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/leader/shards/driver"
)

// notifySQL notifies other nodes. Each payload is their Changes, or is empty: the nodes look. Its transaction is
// written to the log, but need not be on disk.
func (b *Backend) notifySQL(payloads ...string) string {
	return `SELECT pg_catalog.set_config('synchronous_commit', 'off', true); ` + b.group.NotifySQL(payloads)
}

// maxPayload is the size from which the server refuses a payload.
const maxPayload = 8000

// payloads returns the payloads that say so.
func payloads(changes driver.Changes) []string {
	text, err := json.Marshal(changes)
	switch {
	case err == nil && len(text) < maxPayload:
		return []string{string(text)}
	case len(changes.Released) < 2:
		return []string{""}
	}
	half := len(changes.Released) / 2
	return append(payloads(driver.Changes{Released: changes.Released[:half]}), payloads(driver.Changes{Released: changes.Released[half:]})...)
}

// notified handles a notification by another session.
func (o *lockSession) notified(pid uint32, payload string) {
	if pid == o.pid {
		return
	}
	var changes driver.Changes
	if err := json.Unmarshal([]byte(payload), &changes); err != nil {
		changes = driver.Changes{Other: true}
	}
	o.signal(changes)
}

// announceSQL writes a session's announcement of its node, and notifies other nodes to look.
func (b *Backend) announceSQL(self driver.Member) string {
	var leaving []string
	if self.Draining {
		leaving = payloads(driver.Changes{Leaving: []string{self.Identity}})
	}
	return fmt.Sprintf(`INSERT INTO %s AS m (shards, pid, identity, weight, list, draining, refuses, announced)
	VALUES (%s, pg_catalog.pg_backend_pid(), %s, %d, %d, %t, %s, pg_catalog.clock_timestamp())
	ON CONFLICT (shards, pid) DO UPDATE SET identity = excluded.identity, weight = excluded.weight, list = excluded.list,
		draining = excluded.draining, refuses = excluded.refuses, announced = excluded.announced; `,
		b.group.Members, b.group.NameSQL(), pgsession.Literal(self.Identity), self.Weight, int64(self.List), self.Draining, pgsession.Literal(self.Refuses)) + b.notifySQL(leaving...)
}

// leaveSQL releases all locks, even if the rest fails, deletes the session's announcement, and notifies other
// nodes to look.
func (b *Backend) leaveSQL() string {
	return fmt.Sprintf(`SELECT pg_catalog.pg_advisory_unlock_all(); DELETE FROM %s WHERE shards = %s AND pid = pg_catalog.pg_backend_pid(); `,
		b.group.Members, b.group.NameSQL()) + b.notifySQL()
}
