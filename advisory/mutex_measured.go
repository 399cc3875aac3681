//go:build pglatch_mutex

package advisory

import (
	"sync"
	"time"
)

// A mutex guards the lock table. It measures how long it is held, for BenchmarkMutex.
type mutex struct {
	sync.Mutex
	locked time.Time // since when it is held
	holds  holds
}

// A holds counts the times for which a mutex was held. The mutex guards it.
type holds struct {
	total time.Duration
	count int
	long  int // holds of a millisecond and more, in which the thread probably had no processor; not in total and count
}

func (m *mutex) Lock() {
	m.Mutex.Lock()
	m.locked = time.Now()
}

func (m *mutex) Unlock() {
	if held := time.Since(m.locked); held < time.Millisecond {
		m.holds.total += held
		m.holds.count++
	} else {
		m.holds.long++
	}
	m.Mutex.Unlock()
}
