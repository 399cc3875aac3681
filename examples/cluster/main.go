package main

import (
	"flag"
	"os"

	"github.com/pglatch/pglatch/examples/internal/demokit"
	"github.com/pglatch/pglatch/lease/etcd/integration/etcdtest"
)

func main() {
	etcdtest.Main() // does not return if this process is a member
	if address := os.Getenv(listenVariable); address != "" {
		demokit.Exit(serveLocks(address))
		return
	}
	broken := flag.Bool("break", false, "the control: clients of shared locks ignore that their leases end, so that a claim must fail")
	demokit.Main(func(n *demokit.Narrator) demokit.Story { return &story{Narrator: n, broken: *broken} })
}
