//go:build linux

package kubernetes

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	crdoptions "k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	"k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/compatibility"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/pglatch/pglatch/internal/test/electiontest"
	"github.com/pglatch/pglatch/leader"
)

// A library is the machinery of a kube-apiserver in this process, without its
// built-in types. It lets everybody do everything, on the loopback interface.
type library struct {
	etcd    *embed.Etcd
	dir     string
	address string
	handler http.Handler
	http    *http.Server // nil while it is stopped
	cancel  context.CancelFunc
}

func startLibrary(ctx context.Context) (_ *library, err error) {
	l := &library{}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if err := l.startEtcd(); err != nil {
		return nil, err
	}
	listener, err := listen(ctx, "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l.address = listener.Addr().String()
	server, err := newAPIServer(l.etcd.Clients[0].Addr().String(), l.address)
	if err != nil {
		_ = listener.Close()
		return nil, err
	}
	prepared := server.GenericAPIServer.PrepareRun()
	l.handler = prepared.Handler
	l.serve(listener)
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l.cancel = cancel
	if _, _, err := prepared.NonBlockingRunWithContext(running, time.Second); err != nil {
		return nil, err
	}
	return l, createLeases(ctx, l.config())
}

func (l *library) startEtcd() (err error) {
	if l.dir, err = os.MkdirTemp("", "pglatch-etcd-"); err != nil {
		return err
	}
	config := embed.NewConfig()
	config.Dir, config.LogLevel = l.dir, "fatal"
	anyPort := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	config.ListenPeerUrls, config.ListenClientUrls = []url.URL{anyPort}, []url.URL{anyPort}
	config.UnsafeNoFsync = true // nobody cuts the power
	if l.etcd, err = embed.StartEtcd(config); err != nil {
		return err
	}
	select {
	case <-l.etcd.Server.ReadyNotify():
		return nil
	case <-time.After(patience):
		return errors.New("etcd does not start")
	}
}

func newAPIServer(etcd, address string) (*apiserver.CustomResourceDefinitions, error) {
	etcdOptions := crdoptions.NewCustomResourceDefinitionsServerOptions(os.Stderr, os.Stderr).RecommendedOptions.Etcd
	etcdOptions.StorageConfig.Transport.ServerList = []string{"http://" + etcd}
	etcdOptions.SkipHealthEndpoints = true
	generic := genericapiserver.NewRecommendedConfig(apiserver.Codecs)
	generic.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	generic.ExternalAddress = address
	generic.LoopbackClientConfig = &rest.Config{Host: "http://" + address, QPS: -1}
	generic.Authentication.Authenticator = anonymous.NewAuthenticator(nil)
	generic.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
	generic.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(openapi.GetOpenAPIDefinitions, openapinamer.NewDefinitionNamer(apiserver.Scheme, scheme.Scheme))
	generic.MergedResourceConfig = apiserver.DefaultAPIResourceConfigSource()
	if err := etcdOptions.ApplyTo(&generic.Config); err != nil {
		return nil, err
	}
	config := &apiserver.Config{GenericConfig: generic, ExtraConfig: apiserver.ExtraConfig{
		CRDRESTOptionsGetter: crdoptions.NewCRDRESTOptionsGetter(*etcdOptions, generic.ResourceTransformers, generic.StorageObjectCountTracker),
		MasterCount:          1,
	}}
	return config.Complete().New(genericapiserver.NewEmptyDelegate())
}

func listen(ctx context.Context, address string) (net.Listener, error) {
	return new(net.ListenConfig).Listen(ctx, "tcp", address)
}

func (l *library) serve(listener net.Listener) {
	l.http = &http.Server{Handler: l.handler, ReadHeaderTimeout: patience}
	go func() { _ = l.http.Serve(listener) }()
}

// stop ends all connections and refuses new ones.
func (l *library) stop() {
	_ = l.http.Close()
	l.http = nil
}

func (l *library) start() error {
	return wait.PollUntilContextTimeout(context.Background(), 10*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		listener, err := listen(ctx, l.address)
		if err != nil {
			return false, nil //nolint:nilerr // the port is not free yet
		}
		l.serve(listener)
		return true, nil
	})
}

func (l *library) config() *rest.Config { return &rest.Config{Host: "http://" + l.address, QPS: -1} }

func (l *library) close() {
	if l.cancel != nil {
		l.cancel()
	}
	if l.http != nil {
		l.stop()
	}
	if l.etcd != nil {
		l.etcd.Close()
	}
	_ = os.RemoveAll(l.dir)
}

// A stranger is one elector of client-go at work, until it loses or resigns.
type stranger struct {
	*electiontest.Child
	once   sync.Once
	quit   chan struct{} // closed when it resigns
	worked chan struct{} // closed when its work has ended
}

func (s *stranger) resign() { s.once.Do(func() { close(s.quit) }) }

func (s *stranger) resigned() bool {
	select {
	case <-s.quit:
		return true
	default:
		return false
	}
}

func (s *stranger) stand(ctx context.Context, client clientset.Interface) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lock := &observedLock{Child: s.Child, Interface: &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: s.Settings["namespace"], Name: s.Settings["lease"]}, Client: client.CoordinationV1(),
		// Another elector of the same identity would go on with the term of this one.
		LockConfig: resourcelock.ResourceLockConfig{Identity: s.Identity() + "_" + string(uuid.NewUUID())},
	}}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: theirLease, RenewDeadline: theirRenewDeadline, RetryPeriod: theirRetry, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				defer close(s.worked)
				s.work(leading, leader.Term{N: uint64(lock.term.Load())})
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return err
	}
	var ending sync.WaitGroup
	ending.Go(func() {
		select {
		case <-ctx.Done():
			return
		case <-s.quit:
		}
		if lock.term.Load() != 0 {
			<-s.worked
		}
		cancel()
	})
	elector.Run(ctx)
	if lock.term.Load() != 0 {
		<-s.worked
		if s.resigned() {
			s.Say("released")
		} else {
			s.Say("lost")
		}
	}
	cancel()
	ending.Wait()
	return nil
}

// work acts until it leads no more, or it resigns.
func (s *stranger) work(leading context.Context, term leader.Term) {
	ctx, cancel := context.WithCancel(leading)
	var ending sync.WaitGroup
	ending.Go(func() {
		select {
		case <-s.quit:
			cancel()
		case <-ctx.Done():
		}
	})
	s.Say("acquired", term)
	s.Lead(ctx, term)
	cancel()
	ending.Wait()
}

// An observedLock notes the term of its elector, and reports when somebody else leads.
type observedLock struct {
	*electiontest.Child
	resourcelock.Interface
	term atomic.Int64
}

func (l *observedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil && record.HolderIdentity != "" && record.HolderIdentity != l.Interface.Identity() {
		l.Say("follows")
	}
	return record, raw, err
}

func (l *observedLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := l.Interface.Update(ctx, record)
	if err == nil && record.HolderIdentity == l.Interface.Identity() {
		l.term.Store(int64(record.LeaderTransitions))
	}
	return err
}

func (l *observedLock) Identity() string { return l.Interface.Identity() }
