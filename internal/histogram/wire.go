package histogram

import (
	"encoding/json"
	"fmt"
	"time"
)

// wire is the form of a histogram between two processes: only the non-empty buckets.
type wire struct {
	Counts map[int]uint32 `json:"counts"`
	Max    time.Duration  `json:"max_ns"`
}

// MarshalJSON writes the non-empty buckets.
func (h *Histogram) MarshalJSON() ([]byte, error) {
	w := wire{Counts: map[int]uint32{}, Max: h.max}
	for b, c := range h.counts {
		if c > 0 {
			w.Counts[b] = c
		}
	}
	return json.Marshal(w)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (h *Histogram) UnmarshalJSON(data []byte) error {
	var w wire
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	*h = Histogram{max: w.Max}
	for b, c := range w.Counts {
		if b < 0 || b >= buckets {
			return fmt.Errorf("histogram: bucket %d does not exist", b)
		}
		h.counts[b] = c
		h.n += uint64(c)
	}
	return nil
}
