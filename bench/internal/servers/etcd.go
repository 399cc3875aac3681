package servers

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/api/v3/version"
	"go.etcd.io/etcd/server/v3/embed"
)

// startEtcd runs an etcd with one member in this process.
func startEtcd(dir string, noFsync bool) (running, func() error, error) {
	c := embed.NewConfig()
	c.Dir = filepath.Join(dir, "etcd")
	c.LogLevel = "fatal"
	c.UnsafeNoFsync = noFsync
	anyPort := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	c.ListenPeerUrls = []url.URL{anyPort}
	c.ListenClientUrls = []url.URL{anyPort}
	server, err := embed.StartEtcd(c)
	if err != nil {
		return running{}, nil, err
	}
	stop := func() error {
		server.Close()
		return nil
	}
	select {
	case <-server.Server.ReadyNotify():
	case <-time.After(time.Minute):
		return running{}, nil, errors.Join(errors.New("etcd does not start"), stop())
	}
	return running{Address: "http://" + server.Clients[0].Addr().String(), PID: os.Getpid(), Version: version.Version}, stop, nil
}
