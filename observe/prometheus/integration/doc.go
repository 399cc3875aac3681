// Package integration tests the alert rules: a real Prometheus scrapes real elections and locks. It
// is a separate module because of the dependencies of Prometheus.
package integration
