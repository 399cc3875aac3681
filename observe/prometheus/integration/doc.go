// Package integration has a real Prometheus scrape real elections and locks, and looks at what the
// alert rules say. It is a module of its own because of what a Prometheus needs.
package integration
