package gather_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/lease/internal/gather"
)

// A sky is where flights are until a test lets them land.
type sky struct {
	gather.Group[int]

	mu    sync.Mutex
	flown [][]int
	land  chan struct{}
}

func newSky(patience time.Duration) *sky {
	s := &sky{land: make(chan struct{})}
	s.Flights, s.Most, s.Patience, s.MostPatience = 2, 3, patience, 10*patience
	s.Fly = func(take func() []int) {
		s.Settle()
		batch := take()
		if len(batch) == 0 { // another flight has taken them
			return
		}
		s.mu.Lock()
		s.flown = append(s.flown, batch)
		s.mu.Unlock()
		<-s.land
		s.Yield(len(batch))
	}
	return s
}

func (s *sky) add(t *testing.T, calls ...int) {
	t.Helper()
	for _, c := range calls {
		require.True(t, s.Add(c))
	}
	synctest.Wait()
}

func (s *sky) all() [][]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.flown)
}

func (s *sky) landOne() {
	s.land <- struct{}{}
	synctest.Wait()
}

func TestWhatComesDuringFlightsGoesOutInTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSky(0)
		s.add(t, 1)
		s.add(t, 2)
		require.Equal(t, [][]int{{1}, {2}}, s.all(), "at once")
		s.add(t, 3, 4, 5, 6, 7)
		require.Equal(t, 5, s.Length())
		require.True(t, s.Drop(4))
		require.False(t, s.Drop(1), "it is under way")
		bubble.Sleep(time.Hour)
		require.Len(t, s.all(), 2, "the control of patience")
		s.landOne()
		s.landOne()
		require.Equal(t, [][]int{{3, 5, 6}, {7}}, s.all()[2:])
		s.landOne()
		s.landOne()
		s.Close()
		require.False(t, s.Add(8))
	})
}

// A flight that nobody answers delays others for no longer than patience.
func TestNothingWaitsForAFlightThatIsOverdue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSky(time.Second)
		s.add(t, 1)
		s.add(t, 2)
		s.add(t, 3, 4)
		bubble.Sleep(time.Second - 1)
		require.Len(t, s.all(), 2)
		bubble.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Equal(t, [][]int{{3, 4}}, s.all()[2:])
		s.add(t, 5)
		require.Equal(t, [][]int{{5}}, s.all()[3:], "the overdue ones count no more")
		s.add(t, 6)
		for range 4 {
			s.landOne()
		}
		require.Equal(t, [][]int{{6}}, s.all()[4:])
		closed := make(chan struct{})
		go func() {
			s.Close()
			close(closed)
		}()
		synctest.Wait()
		select {
		case <-closed:
			require.Fail(t, "a flight is under way")
		default:
		}
		s.landOne()
		<-closed
	})
}

// Where requests take long, small ones every now and then would make them take even longer.
func TestPatienceGrowsWithTheTimeThatFlightsTake(t *testing.T) {
	t.Parallel()
	for took, patience := range map[time.Duration]time.Duration{
		time.Millisecond: time.Second, 3 * time.Second: 6 * time.Second, time.Hour: 10 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newSky(time.Second)
			s.add(t, 1)
			bubble.Sleep(took)
			s.landOne()
			s.add(t, 2)
			s.add(t, 3)
			s.add(t, 4)
			bubble.Sleep(patience - 1)
			synctest.Wait()
			require.Len(t, s.all(), 3)
			bubble.Sleep(time.Nanosecond)
			synctest.Wait()
			require.Equal(t, [][]int{{4}}, s.all()[3:])
			for range 3 {
				s.landOne()
			}
			s.Close()
		})
	}
}
