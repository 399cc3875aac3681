package leak

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestAGoroutineThatEndsLateIsNoLeakAndOneThatStaysIs(t *testing.T) {
	others := goleak.IgnoreCurrent()
	end := make(chan struct{})
	go func() { <-end }()
	require.ErrorContains(t, find(time.Millisecond, others), "found unexpected goroutines")

	require.ErrorContains(t, goleak.Find(others), "found unexpected goroutines", "the control: one look does not wait for it")
	go func() { close(end) }()
	require.NoError(t, find(time.Minute, others))
}

func TestAFailureIsNotHiddenByWhatItLeaves(t *testing.T) {
	end := make(chan struct{})
	defer close(end)
	go func() { <-end }()
	require.Equal(t, 2, Check(2))
}
