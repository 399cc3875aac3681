package leased

import (
	"strconv"

	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/lease"
)

// What the metadata of leases say.
const (
	metaWeight   = "weight"   // of a member
	metaList     = "list"     // its digest
	metaDraining = "draining" // "true", or not there
	metaRefuses  = "refuses"  // what it cannot claim now, or not there
	metaChanges  = "changes"  // how often the session claimed or released
	metaSession  = "session"  // of a shard's lease: the id of that which owns it
	metaValue    = "value"    // of a pin or a drain: the identity
	metaID       = "id"       // of a pin or a drain: its lease's, so that every member can renew it
)

func memberMetadata(m driver.Member, changes uint64) map[string]string {
	metadata := map[string]string{
		metaWeight: strconv.Itoa(m.Weight), metaList: strconv.FormatUint(m.List, 16), metaChanges: strconv.FormatUint(changes, 10),
	}
	if m.Draining {
		metadata[metaDraining] = "true"
	}
	if m.Refuses != "" {
		metadata[metaRefuses] = m.Refuses
	}
	return metadata
}

// memberOf reads what memberMetadata wrote; false = somebody else's lease.
func memberOf(r lease.Record) (m driver.Member, ok bool) {
	weight, weightErr := strconv.Atoi(r.Metadata[metaWeight])
	list, listErr := strconv.ParseUint(r.Metadata[metaList], 16, 64)
	m = driver.Member{
		Identity: r.Holder, Weight: weight, List: list, Draining: r.Metadata[metaDraining] != "", Refuses: r.Metadata[metaRefuses],
	}
	return m, weightErr == nil && listErr == nil
}
