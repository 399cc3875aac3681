package actions

import (
	"crypto/rand"
	"errors"
	"maps"
	"sync"
	"time"
)

const (
	confirmWithin    = 2 * time.Minute
	maxConfirmations = 1000
)

// errConfirm is the answer to a confirmation that cannot be used.
var errConfirm = errors.New("this confirmation is used, too old, or somebody else's: ask again what the action does")

var errManyConfirmations = errors.New("too many confirmations wait: try again")

// A confirmation is what a person was shown, and has not confirmed yet.
type confirmation struct {
	database *Database
	who      string
	request  Request
	shown    *plan
	ends     time.Time
}

// confirmations are those that wait. Each can be used once.
type confirmations struct {
	mu    sync.Mutex
	known map[string]confirmation
}

// add returns the id of a new confirmation.
func (c *confirmations) add(one confirmation) (string, error) {
	now := time.Now()
	one.ends = now.Add(confirmWithin)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[string]confirmation{}
	}
	maps.DeleteFunc(c.known, func(_ string, o confirmation) bool { return o.ends.Before(now) })
	if len(c.known) >= maxConfirmations {
		return "", errManyConfirmations
	}
	id := rand.Text()
	c.known[id] = one
	return id, nil
}

// use returns a confirmation that a person was shown, and removes it.
func (c *confirmations) use(d *Database, id, who string) (confirmation, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one, ok := c.known[id]
	if !ok || one.database != d || one.who != who {
		return confirmation{}, errConfirm
	}
	delete(c.known, id)
	if time.Now().After(one.ends) {
		return confirmation{}, errConfirm
	}
	return one, nil
}

// about returns the request of a confirmation that a person can use; the zero Request if there is none.
func (c *confirmations) about(d *Database, id, who string) Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.known[id]
	if one.database != d || one.who != who || time.Now().After(one.ends) {
		return Request{}
	}
	return one.request
}
