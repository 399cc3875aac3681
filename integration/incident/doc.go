// Package incident is a drill. It injects faults into a running fleet of processes, and checks that the
// tools of the person on call name each fault.
package incident
