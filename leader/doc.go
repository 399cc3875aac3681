// Package leader elects one leader among the processes that take part in an
// election, tells each of them where it stands, and runs work while it leads.
package leader
