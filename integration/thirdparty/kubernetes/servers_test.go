//go:build linux

package kubernetes

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// servers are a kube-apiserver and an etcd of their own.
type servers struct {
	dir       string
	apiserver func() *exec.Cmd
	running   []*exec.Cmd // etcd, and the kube-apiserver unless it is stopped
	config    *rest.Config
}

const token = "test-token"

func startServers(ctx context.Context, apiserver, etcd string) (_ *api, err error) {
	dir, err := os.MkdirTemp("", "pglatch-kube-")
	if err != nil {
		return nil, err
	}
	s := &servers{dir: dir}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	ports, err := freePorts(ctx, 3)
	if err != nil {
		return nil, err
	}
	client, peer := "http://127.0.0.1:"+ports[0], "http://127.0.0.1:"+ports[1]
	etcdCmd := exec.CommandContext(context.WithoutCancel(ctx), etcd, "--data-dir="+filepath.Join(dir, "etcd"), "--log-level=fatal", "--unsafe-no-fsync",
		"--listen-client-urls="+client, "--advertise-client-urls="+client, "--listen-peer-urls="+peer,
		"--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer)
	if err := s.run(etcdCmd); err != nil {
		return nil, err
	}
	if err := s.writeCredentials(); err != nil {
		return nil, err
	}
	s.apiserver = func() *exec.Cmd {
		return exec.CommandContext(context.WithoutCancel(ctx), apiserver, "--etcd-servers="+client, "--cert-dir="+dir, //nolint:gosec // a test's
			"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port="+ports[2], "--authorization-mode=RBAC",
			"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+filepath.Join(dir, "sa.pub"),
			"--service-account-signing-key-file="+filepath.Join(dir, "sa.key"), "--token-auth-file="+filepath.Join(dir, "tokens.csv"),
			"--service-cluster-ip-range=10.0.0.0/24", "--disable-admission-plugins=ServiceAccount", "--anonymous-auth=false", "--profiling=false")
	}
	s.config = &rest.Config{
		Host: "https://127.0.0.1:" + ports[2], BearerToken: token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(dir, "apiserver.crt")},
	}
	if err := s.start(); err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	return &api{
		name: "kube-apiserver", kubeconfig: kubeconfig, config: s.config, namespace: metav1.NamespaceDefault,
		stop: s.stop, start: s.start, close: s.close,
	}, writeKubeconfig(kubeconfig, s.config)
}

func (s *servers) run(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.running = append(s.running, cmd)
	return nil
}

// start starts the kube-apiserver and waits until it serves Leases.
func (s *servers) start() error {
	if err := s.run(s.apiserver()); err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(context.Background(), 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		client, err := clientset.NewForConfig(plain(s.config))
		if err != nil {
			return false, nil //nolint:nilerr // it has not written its certificate yet
		}
		_, err = client.CoordinationV1().Leases(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, nil //nolint:nilerr // it does not serve yet
		}
		_, err = client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
		return err == nil, nil
	})
}

// stop ends the kube-apiserver as kill -9 does.
func (s *servers) stop() {
	last := len(s.running) - 1
	_ = s.running[last].Process.Kill()
	_ = s.running[last].Wait() // killed
	s.running = s.running[:last]
}

func (s *servers) close() {
	for len(s.running) > 0 {
		s.stop()
	}
	_ = os.RemoveAll(s.dir)
}

// writeCredentials writes an administrator's token, and the key of service accounts.
func (s *servers) writeCredentials() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"sa.key":     pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}),
		"sa.pub":     pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}),
		"tokens.csv": fmt.Appendf(nil, "%s,admin,1,\"system:masters\"\n", token),
	} {
		if err := os.WriteFile(filepath.Join(s.dir, name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// freePorts are ports that nobody uses now.
func freePorts(ctx context.Context, n int) (ports []string, err error) {
	for range n {
		listener, err := listen(ctx, "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = listener.Close() }()
		_, port, err := net.SplitHostPort(listener.Addr().String())
		if err != nil {
			return nil, err
		}
		ports = append(ports, port)
	}
	return ports, nil
}
