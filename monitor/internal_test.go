package monitor

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/internal/test/configdoc"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/monitor/fleet"
	"github.com/pglatch/pglatch/namespace"
)

// Each case is a hold of the session 7, in the name of a process that is silent, and differs from the first.
func TestWhoseSessionASilentProcessHas(t *testing.T) {
	t.Parallel()
	asked := time.Now()
	tag := namespace.Pair(1, 2).Tag()
	other := introspect.Answer{Session: 91, AllLocks: 0}
	for name, c := range map[string]struct {
		lock   func(*Lock)
		answer []introspect.Answer
		last   map[uint32]memo
		silent bool
	}{
		"taken after its last answer":            {silent: true},
		"of another name":                        {lock: func(l *Lock) { l.ApplicationName = "psql" }},
		"of another name, which it said":         {lock: func(l *Lock) { l.ApplicationName = "psql" }, silent: true, last: map[uint32]memo{90: {answer: introspect.Answer{Locks: []introspect.Lock{{Tag: tag, Session: 7}}}}}},
		"of another name, of its shards":         {lock: func(l *Lock) { l.ApplicationName = "psql" }, silent: true, last: map[uint32]memo{90: {answer: introspect.Answer{Groups: []introspect.Group{{Session: 7}}}}}},
		"of another name, which it led on":       {lock: func(l *Lock) { l.ApplicationName = "psql" }, silent: true, last: map[uint32]memo{90: {answer: introspect.Answer{Elections: []introspect.Election{{Session: 7}}}}}},
		"a prepared transaction":                 {lock: func(l *Lock) { l.PID = 0 }},
		"idle, beside one that answers":          {answer: []introspect.Answer{other}, silent: true},
		"new, beside one that answers":           {answer: []introspect.Answer{other}, lock: func(l *Lock) { after := asked.Add(time.Second); l.stateChange = &after }},
		"busy, beside one that answers":          {answer: []introspect.Answer{other}, lock: func(l *Lock) { active := "active"; l.State = &active }},
		"hidden, beside one that answers":        {answer: []introspect.Answer{other}, lock: func(l *Lock) { l.State, l.stateChange = nil, nil }},
		"beside one that has more than it said":  {answer: []introspect.Answer{{Session: 91, AllLocks: 9}}},
		"claimed by one that answers":            {answer: []introspect.Answer{{Session: 91, AllLocks: 1, Locks: []introspect.Lock{{Tag: tag, Session: 7}}}}},
		"of an election of one that answers":     {answer: []introspect.Answer{{Session: 91, Elections: []introspect.Election{{Session: 7}}}}},
		"of the shards of one that answers":      {answer: []introspect.Answer{{Session: 91, Groups: []introspect.Group{{Session: 7}}}}},
		"busy, beside an answer of another name": {answer: []introspect.Answer{{Session: 92}}, lock: func(l *Lock) { active := "active"; l.State = &active }, silent: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			idle, before := "idle", asked.Add(-time.Minute)
			l := Lock{PID: 7, Tag: tag, ApplicationName: "billing", State: &idle, stateChange: &before, Granted: true}
			if c.lock != nil {
				c.lock(&l)
			}
			answers := introspect.Answers{Answers: c.answer, Silent: []introspect.Silent{{Session: 90, ApplicationName: "billing"}}}
			s := newSilence(asked, answers, map[uint32]string{90: "billing", 91: "billing", 92: "shipping"}, c.last)
			assert.Equal(t, c.silent, s.by(&l, asked.Add(time.Second), asked.Add(time.Second)) != 0)
		})
	}
}

func TestAProcessThatDidNotAnswerIsAwaitedForLongerOnce(t *testing.T) {
	t.Parallel()
	silent := introspect.Answers{Silent: []introspect.Silent{{Session: 90}}}
	m := &Monitor{}
	after := func(a introspect.Answers, problem string) (int, time.Duration) {
		m.heard = heard{answers: a, problem: problem}
		m.remember()
		return m.unanswered[90], m.askTimeout()
	}
	for _, c := range []struct {
		answers introspect.Answers
		problem string
		n       int
		timeout time.Duration
	}{
		{silent, "", 1, askLonger},
		{introspect.Answers{}, "could not be asked", 1, askLonger},
		{silent, "", 2, askTimeout},
		{silent, "", 3, askTimeout},
		{introspect.Answers{Answers: []introspect.Answer{{Session: 90}}}, "", 0, askTimeout},
		{silent, "", 1, askLonger},
		{introspect.Answers{}, "", 0, askTimeout}, // it has ended
	} {
		n, timeout := after(c.answers, c.problem)
		assert.Equal(t, c.n, n)
		assert.Equal(t, c.timeout, timeout)
	}
}

func TestTablesThatNoLongerAnswerAreAProblemUntilTheyDo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("no connection")
		m := &Monitor{lifetime: t.Context(), config: Config{Logger: background.Logger(nil), Fleet: func(context.Context) (fleet.Fleet, error) {
			return fleet.Fleet{Jobs: []fleet.Job{{Name: "nightly"}}, Problems: []string{"denied"}}, away
		}}}
		read := func() *fleet.Fleet {
			bubble.Sleep(fleetEvery)
			m.fleetNow()
			m.work.Wait()
			f, _ := m.fleetNow()
			return f
		}
		assert.Nil(t, read(), "nothing was read yet")
		for range 2 {
			away = nil
			f := read()
			require.NotNil(t, f)
			assert.Equal(t, []string{"denied"}, f.Problems, "control: they answer")
			away = errors.New("no connection")
			for range 2 {
				f = read()
				assert.Equal(t, []string{"denied", notRead}, f.Problems)
				assert.Len(t, f.Jobs, 1, "what they had before")
			}
		}
	})
}

func TestAQueueOfTwentyThousandIsNotPairedOut(t *testing.T) {
	t.Parallel()
	const n = 20_000
	locks := make([]Lock, n)
	for i := range locks {
		locks[i] = Lock{PID: uint32(i + 1), Mode: exclusive, Granted: i == 0, Tag: namespace.Pair(1, 1).Tag()}
	}
	fillQueues(locks)
	assert.Same(t, &locks[n-2].BlockedBy[0], &locks[n-1].BlockedBy[0], "a list for each waiter has n²/2 entries")
	assert.Same(t, &locks[0].Blocks[n-2], &locks[1].Blocks[n-3])
	assert.Len(t, locks[n-1].BlockedBy, n-1)
	assert.Len(t, locks[0].Blocks, n-1)
	assert.Equal(t, []uint32{1, 2, 3}, locks[3].BlockedBy)
	assert.Equal(t, uint32(5), locks[3].Blocks[0])
}

func TestALockIsEncodedOnceForAllViewersAndOnlyIfSomebodyAsks(t *testing.T) {
	t.Parallel()
	f := &flight{}
	for i := range 10 {
		f.snapshot.Locks = append(f.snapshot.Locks, Lock{PID: uint32(i), Tag: namespace.Pair(1, int32(i)).Tag()})
	}
	first, second := f.answer(nil, page{limit: 3}), f.answer(nil, page{limit: 4})
	require.Len(t, first.Locks, 3)
	for i := range first.Locks {
		assert.Same(t, &first.Locks[i][0], &second.Locks[i][0])
	}
	for i, body := range f.encoded {
		assert.Equal(t, i < 4, body != nil, i)
	}
	assert.Equal(t, 10, first.Total)
	assert.NotEmpty(t, first.Next)
}

func TestCommentsOfTheConfigSayItsDefaults(t *testing.T) {
	t.Parallel()
	config, err := Config{}.withDefaults()
	require.NoError(t, err)
	configdoc.Check(t, config)
}
