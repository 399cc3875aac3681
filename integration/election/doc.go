// Package election has tests of elections among processes that are killed,
// stopped, cut off and restarted, with their server too. Acts are checked where
// they arrive: at an observer outside of all candidates, and in the database. They
// need the build tag integration.
package election
