// Package incident is a drill. It injects faults into a running fleet of processes, and checks that the
// tools of the person on call name each fault. The short form reads the verdicts of the page, and the long form all
// tools. A fleet that is busy and healthy must raise no verdict, also while it is deployed anew.
package incident
