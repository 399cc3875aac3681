package servers

import (
	"os"
	"path/filepath"

	"github.com/pglatch/pglatch/integration/thirdparty/etcdtest"
)

// startEtcd runs an etcd with one member in this process.
func startEtcd(dir string, noFsync bool) (running, func() error, error) {
	address, stop, err := etcdtest.Serve(etcdtest.Member{Dir: filepath.Join(dir, "etcd"), NoFsync: noFsync})
	if err != nil {
		return running{}, nil, err
	}
	return running{Address: address, PID: os.Getpid(), Version: etcdtest.Version()}, func() error {
		stop()
		return nil
	}, nil
}
