// Command cluster shows, with real processes, that leases in an etcd cluster outlive any one of them:
//
//	make demo-cluster                   # and stay until Ctrl-C
//	go run . -once                      # in this directory; exit 1 if a claim fails
//	go run . -once -break               # the control: clients ignore that their leases end, and a claim fails
//
// Three etcd members and two lock servers start, each a process of its own on a loopback
// address. 40 clients acquire leases through both servers, are inside for a moment, and
// release: 24 share four locks, 12 have one each, and four more stay in theirs, by renewing. All of them report to one witness when they
// go in and out, with the token of their lease. It knows nothing of leases: it finds two
// clients that are inside one lock, and tokens that do not rise.
//
// Then the etcd leader, a lock server, and the other lock server are killed with kill -9, one
// after the other, and come back. The demo prints for how long nobody was served.
package main
