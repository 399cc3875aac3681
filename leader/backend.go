package leader

import "github.com/pglatch/pglatch/leader/driver"

// A Backend is where leadership of one election lives: leader/postgres, leader/leased,
// leader/file and leader/kubernetes have one each, leader/leadertest one for tests. Package
// driver says what it takes to write another.
type Backend = driver.Backend

// A Holder is what can be seen of a leader.
type Holder = driver.Holder
