package leasetest

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
)

// checkLimit bounds the checker of histories: no answer is a failure.
const checkLimit = time.Minute

var raceCases = []testCase{
	{"race: of many that acquire at once one gets the lease", func(s *suite) {
		for _, name := range []string{"new", "released"} {
			if name == "released" {
				s.release(s.acquire(request(name, "a")).Claim)
			}
			var granted atomic.Int64
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() {
					_, err := s.store.Acquire(s.Context(), request(name, "x"))
					if err == nil {
						granted.Add(1)
						return
					}
					assert.ErrorIs(s, err, lease.ErrHeld)
				})
			}
			wg.Wait()
			require.EqualValues(s, 1, granted.Load())
		}
	}},
	{"race: many clients, induced expiries and sweeps: one holder at a time, and tokens rise", func(s *suite) {
		h, crowd := NewHistory(), s.h.Race
		crowd.Sweep = true
		crowd.Run(s.Context(), func(int) lease.Store { return h.Client(s.store) })
		counts := h.Counts()
		s.Logf("%+v", counts)
		require.NoError(s, h.Check(checkLimit))
		require.Positive(s, counts.Granted)
		require.Positive(s, counts.Refused)
		require.Positive(s, counts.Ended, "no lease expired under its holder")
		require.Zero(s, counts.Unknown)
	}},
}
