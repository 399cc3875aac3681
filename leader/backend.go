package leader

import "github.com/pglatch/pglatch/leader/driver"

// A Backend stores the leadership of one election. leader/postgres, leader/leased, leader/file and
// leader/kubernetes have one each, and leader/leadertest has one for tests. Package driver documents how to
// write another.
type Backend = driver.Backend

// A Holder describes a leader.
type Holder = driver.Holder
