// Kubernetes runs work on one pod of a Deployment: the pod that holds a Lease. deploy.yaml
// has everything that the cluster needs.
//
//	CGO_ENABLED=0 go build -trimpath -o pglatch-example .
//	./pglatch-example -kubeconfig ~/.kube/config   # outside of a cluster; several may run
//
// README.md explains how to build the image of Containerfile and how to deploy it.
package main

import (
	"cmp"
	"context"
	"flag"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/kubernetes"
)

// options are the values of the flags.
type options struct {
	lease      string
	kubeconfig string
	listen     string
	duration   time.Duration
	interval   time.Duration
}

func parse(args []string) (o options) {
	flags := flag.NewFlagSet("kubernetes", flag.ExitOnError)
	flags.StringVar(&o.lease, "lease", "pglatch-example", "the Lease object's name")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "file that says where the cluster is; empty = this is a pod of it")
	flags.StringVar(&o.listen, "listen", ":8080", "address for /leader, /readyz and /livez")
	flags.DurationVar(&o.duration, "lease-duration", driver.DefaultLeaseDuration, "whole seconds")
	flags.DurationVar(&o.interval, "interval", time.Second, "time between two pieces of work")
	_ = flags.Parse(args) // ends the process on an error
	return o
}

func main() {
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	// Kubernetes stops a pod with SIGTERM. Then leadership is released when work has ended.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, parse(os.Args[1:]), logger); err != nil {
		logger.Error("stopped", slog.Any("error", err))
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, logger *slog.Logger) error {
	backend, err := newBackend(o)
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	backend.Logger = logger
	elector, err := leader.New(leader.Config{
		Name: o.lease, Backend: backend, LeaseDuration: o.duration, Logger: logger,
		// In a pod both names are the same unless its spec says otherwise. The holderIdentity in the Lease begins with
		// this name: the backend adds a suffix that is new in each process.
		Identity: cmp.Or(os.Getenv("POD_NAME"), host),
	})
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: elector.Handler(), ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }()
	defer func() { _ = server.Close() }()
	logger.Info("listening", slog.String("address", listener.Addr().String()))
	return elector.Run(ctx, func(ctx context.Context) error { return work(ctx, o.interval, logger) })
}

// newBackend connects to the cluster that the program runs in, or to the one of -kubeconfig.
func newBackend(o options) (*kubernetes.Backend, error) {
	if o.kubeconfig == "" {
		return kubernetes.NewFromEnv(o.lease)
	}
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewFromConfig(config, cmp.Or(os.Getenv(kubernetes.NamespaceVariable), kubernetes.DefaultNamespace), o.lease)
}

// work runs on the leader only. It checks its context before each step.
func work(ctx context.Context, interval time.Duration, logger *slog.Logger) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		logger.Info("working", slog.String("term", leader.TermOfContext(ctx).String()))
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return nil
}
