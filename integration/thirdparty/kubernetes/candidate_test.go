//go:build linux

package kubernetes

import (
	"context"
	"net/url"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/pglatch/pglatch/internal/test/electiontest"
	"github.com/pglatch/pglatch/leader/kubernetes"
)

// The times of client-go's electors. They see the record of a lease change in whole
// seconds: the lease is longer than the others by more than one.
const (
	theirLease         = 3 * time.Second
	theirRenewDeadline = 1200 * time.Millisecond
	theirRetry         = 200 * time.Millisecond
)

// prepare gives a node its role, and a way of its own to the API.
func prepare(n *electiontest.Node, lease, role string) {
	n.Job.Role = role
	n.Job.Settings = map[string]string{
		"kubeconfig": cluster.kubeconfig, "namespace": cluster.namespace, "lease": lease,
		"host": n.Through(cluster.config.Host),
	}
}

// plain is a config whose clients do not wait for each other, and speak JSON, as
// custom resources do.
func plain(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS, config.ContentType, config.AcceptContentTypes = -1, runtime.ContentTypeJSON, runtime.ContentTypeJSON
	return config
}

// reach is what the settings of a job say of the API.
func reach(c *electiontest.Child) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Settings["kubeconfig"])
	if err != nil {
		return nil, err
	}
	if _, config.ServerName, err = hostOf(config); err != nil {
		return nil, err
	}
	config.Host = c.Settings["host"]
	return plain(config), nil
}

// ours is a candidate with an Elector of package leader.
func ours(ctx context.Context, c *electiontest.Child) error {
	config, err := reach(c)
	if err != nil {
		return err
	}
	b, err := kubernetes.NewFromConfig(config, c.Settings["namespace"], c.Settings["lease"])
	if err != nil {
		return err
	}
	return c.Stand(ctx, b, nil)
}

// theirs is a candidate with electors of client-go, one after the other. It is
// careful: when it gives leadership up, its work ends first.
func theirs(ctx context.Context, c *electiontest.Child) error {
	config, err := reach(c)
	if err != nil {
		return err
	}
	client, err := clientset.NewForConfig(config)
	if err != nil {
		return err
	}
	stopped, stop := context.WithCancel(ctx)
	defer stop()
	var current atomic.Pointer[stranger]
	resign := func(context.Context) error { current.Load().resign(); return nil }
	halt := func(ctx context.Context) error { stop(); return resign(ctx) }
	for first := true; stopped.Err() == nil; first = false {
		s := &stranger{Child: c, quit: make(chan struct{}), worked: make(chan struct{})}
		current.Store(s)
		if first {
			go c.Obey(ctx, resign, halt)
		}
		if stopped.Err() != nil {
			break // it was reported before there was s
		}
		if err := s.stand(ctx, client); err != nil {
			return err
		}
		if s.resigned() { // others may lead now
			electiontest.Pause(stopped, 2*time.Second)
		}
	}
	c.Say("stopped")
	return nil
}

// hostOf is the address of an API, and the name in its certificate, "" if it has none.
func hostOf(config *rest.Config) (address, name string, err error) {
	server, err := url.Parse(config.Host)
	if err != nil {
		return "", "", err
	}
	if server.Scheme == "https" {
		name = server.Hostname()
	}
	return server.Host, name, nil
}
