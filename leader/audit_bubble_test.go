package leader_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/leader"
)

// audited is a script whose store can be unfit.
type audited struct {
	able
	unfit atomic.Pointer[error]
}

func (a *audited) Audit() error {
	if err := a.unfit.Load(); err != nil {
		return *err
	}
	return nil
}

func TestAStoreThatIsNotFitIsReportedAndLeadershipGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("leader: the table is gone")
		backend := &audited{}
		var reported atomic.Int32
		s := prepare(t, leader.Config{Backend: backend, MaxRenewFailures: 1, Callbacks: leader.Callbacks{OnError: func(err error) {
			assert.Equal(t, gone, err)
			reported.Add(1)
		}}},
			acquires(1), renews(), renews(), renews(), renews(), renews(), releases(), closes())
		backend.able = able{s.script}
		assert.NoError(t, s.Start(t.Context()))
		s.at(6 * time.Second)
		assert.Zero(t, reported.Load())
		backend.unfit.Store(&gone)
		s.at(11 * time.Second)
		assert.EqualValues(t, 1, reported.Load())
		s.at(16 * time.Second)
		assert.EqualValues(t, 2, reported.Load(), "each renewal reports it")
		backend.unfit.Store(nil)
		s.at(26 * time.Second)
		assert.EqualValues(t, 2, reported.Load())
		assert.True(t, s.IsLeader(), "no renewal has failed")
		s.finish()
	})
}

func TestAStoreThatStaysUnfitIsLoggedOnceAMinuteAndThatItIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("the table is gone")
		calls := []call{acquires(1)}
		for range 30 {
			calls = append(calls, renews())
		}
		backend := &audited{}
		logger, log := textLog()
		s := prepare(t, leader.Config{Backend: backend, Logger: logger}, append(calls, releases(), closes())...)
		backend.able = able{s.script}
		backend.unfit.Store(&gone)
		assert.NoError(t, s.Start(t.Context()))
		s.at(131 * time.Second)
		backend.unfit.Store(nil)
		s.at(151 * time.Second)
		s.finish()
		const wrong = `level=WARN msg="something is wrong with the election, which goes on" election=scheduler error="the table is gone"`
		assert.Equal(t, []string{
			wrong, wrong + " for=1m0s", wrong + " for=2m0s", `level=INFO msg="nothing is wrong with the election any more" election=scheduler`,
		}, about(log, "wrong with the election"))
	})
}
