// Command pglatch-etcd is pglatch with one more store of leases, an etcd cluster:
//
//	pglatch-etcd serve locks --store etcd://a:2379,b:2379,c:2379
//	pglatch-etcd serve locks --store 'etcd://a:2379,b:2379,c:2379?ca=ca.pem&cert=c.pem&key=k.pem&user=locks'
//
// The user's password is in PGLATCH_ETCD_PASSWORD, or in the file of the parameter password_file.
// Other parameters are prefix, the prefix of all keys, and timeout, the timeout of one operation.
package main

import (
	"os"

	"github.com/pglatch/pglatch/cmd/internal/cli"
	"github.com/pglatch/pglatch/cmd/internal/lockserver"
)

func main() {
	os.Exit(cli.Main(cli.Options{
		Program: "pglatch-etcd",
		Stores:  []lockserver.StoreKind{{Scheme: "etcd", Usage: "etcd://HOST:PORT,…?ca=FILE&cert=FILE&key=FILE&user=NAME", Open: open}},
	}))
}
