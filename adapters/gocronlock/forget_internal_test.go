package gocronlock

import (
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
)

type jobOf struct {
	gocron.Job

	id uuid.UUID
}

func (j jobOf) ID() uuid.UUID { return j.id }

func TestJobsThatAreGoneAreForgotten(t *testing.T) {
	t.Parallel()
	l := NewLocker(nil, nil)
	stays := jobOf{id: uuid.New()}
	l.last[stays.id] = time.Now()
	for range 1000 { // that ran once
		l.last[uuid.New()] = time.Now()
	}
	l.forget([]gocron.Job{stays, jobOf{id: uuid.New()}})
	assert.Len(t, l.last, 1)
	assert.Contains(t, l.last, stays.id)
}
