// Package pgserver runs a real PostgreSQL server for tests and demonstrations.
//
// [Start] finds the server programs (or fetches them, see [Find]) and creates a database cluster in a temporary
// directory (on Linux in /dev/shm, if that has room). It starts the server on a free port of the loopback interface.
// Durability is switched off. When the process runs as root, the server runs as the user postgres or nobody,
// because PostgreSQL refuses root.
//
// Nothing survives the process that called Start. A watchdog, which is a shell, blocks on a pipe whose write end
// only this process holds. As soon as the pipe closes, it stops the server and removes the directory, whether the
// cause is [Server.Close], a panic, Ctrl-C or kill -9.
//
// The package does not import testing; package pgtest adds the helpers for tests.
package pgserver
