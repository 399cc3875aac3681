// Package prometheus tests the alert rules: a real Prometheus scrapes real elections and locks.
package prometheus
