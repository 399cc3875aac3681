// Package incident has a drill: faults are injected into a running fleet of processes, and whoever is
// on call must be told what is wrong.
package incident
