// Command cluster shows, with real processes, that leases in an etcd cluster survive the death of any single process:
//
//	make demo-cluster                   # and stay until Ctrl-C
//	go run . -once                      # in this directory; exit 1 if a claim fails
//	go run . -once -break               # the control: clients ignore that their leases end, and a claim fails
//
// Three etcd members and two lock servers start, each as a process of its own on a loopback
// address. 40 clients acquire leases through both servers, stay inside for a moment, and
// release: 24 share four locks, 12 have one each, and four more stay in theirs, by renewing.
// All of them report to one witness when they enter and leave, with the token of their lease.
// The witness knows nothing of leases: it detects two clients inside one lock, and tokens that
// do not rise.
//
// Then the demo kills the etcd leader, one lock server, and the other lock server with kill -9,
// one after the other, and restarts each. It prints for how long nobody was served.
package main
