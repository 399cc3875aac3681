// Package shards has tests of shards that are spread over processes which are killed, stopped, cut off and
// deployed, with their server too. Operations are checked where they arrive: at an observer outside of all
// nodes, and in the database. They need the build tag integration.
package shards
