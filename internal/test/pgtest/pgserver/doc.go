// Package pgserver runs a real PostgreSQL server for tests and demonstrations.
//
// [Start] finds the server programs (or fetches them, see [Find]), makes a database cluster in a temporary
// directory (on Linux in /dev/shm, if that has room), and starts it on a free port of the loopback interface.
// Durability is switched off. When the process runs as root, the server runs as the user postgres or nobody,
// because PostgreSQL refuses root.
//
// Nothing survives the process that called Start: a watchdog, a shell that blocks on a pipe whose write end
// only this process holds, stops the server and removes the directory as soon as the pipe closes, whether by
// [Server.Close], a panic, Ctrl-C or kill -9.
//
// The package does not import testing; package pgtest adds the helpers for tests.
package pgserver
