package rules

import (
	"iter"
	"strings"

	"github.com/pglatch/pglatch/lease"
)

// pageSize is how many records a List reads at a time. A long read delays others, and keeps
// SQLite's WAL from being reused.
const pageSize = 500

// List yields records page by page; see lease.Store. Between pages it holds no lock or connection,
// so its caller may use the Store. page returns at most size records in the order of their names:
// those after a name, starting at the prefix.
func List(r lease.ListRequest, page func(after string, size int) ([]lease.Record, error)) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) {
		if err := r.Validate(); err != nil {
			yield(lease.Record{}, err)
			return
		}
		for after, left := r.After, r.Limit; ; {
			size := pageSize
			if r.Limit > 0 {
				size = min(size, left)
			}
			records, err := page(after, size)
			if err != nil {
				yield(lease.Record{}, err)
				return
			}
			for _, record := range records {
				// In byte order, the names with the prefix are the first ones at or after the
				// prefix.
				if !strings.HasPrefix(record.Name, r.Prefix) || !yield(record, nil) {
					return
				}
				after = record.Name
			}
			if left -= len(records); len(records) < size || r.Limit > 0 && left == 0 {
				return
			}
		}
	}
}
