// Package failover has tests of leases in PostgreSQL while the primary is killed and a
// streaming standby is promoted: what was acknowledged is there, or, with an
// asynchronous standby, what is lost and that tokens rise all the same. They need the build
// tag integration.
package failover
