// Package lease is the contract of fenced leases: exclusive rights with an end,
// for clients that cannot keep a database session open.
package lease
