//go:build linux

package kubernetes

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"debug/elf"
	"encoding/pem"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/proctest"
)

const nobody = 65532 // of the images

// containerfile are the instructions of deploy/Containerfile.
func containerfile(t *testing.T) (instructions []string) {
	t.Helper()
	file, err := os.ReadFile(filepath.Join(deployDir, "Containerfile"))
	require.NoError(t, err)
	for line := range strings.Lines(string(file)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			instructions = append(instructions, line)
		}
	}
	return instructions
}

// An image is the directory that the Containerfile makes: the root of its containers.
type image struct{ root string }

func buildImage(t *testing.T) image {
	t.Helper()
	require.Equal(t, []string{
		"FROM scratch", "ARG TARGETARCH", "ARG PROGRAM=pglatch", "COPY dist/${PROGRAM}-linux-${TARGETARCH} /program",
		"USER 65532:65532", `ENTRYPOINT ["/program"]`,
	}, containerfile(t), "what this does")
	root := t.TempDir()
	require.NoError(t, os.Chmod(root, 0o755))
	build := exec.CommandContext(t.Context(), "go", "build", "-C", "../../..", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(root, "program"), "./cmd/pglatch")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	output, err := build.CombinedOutput()
	require.NoError(t, err, string(output))
	return image{root}
}

// mount puts a file where the container has a volume, for the group of the pod.
func (i image) mount(t *testing.T, name string, content []byte) {
	t.Helper()
	name = filepath.Join(i.root, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(t, os.WriteFile(name, content, 0o440))
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(name, 0, nobody))
	}
}

// run runs a container's command line until the test ends, and returns the address that it logs. Its
// environment is empty, and so is all else but the volumes. Without root's rights it is not confined.
func (i image) run(t *testing.T, container corev1.Container) string {
	t.Helper()
	args := append([]string(nil), container.Args...)
	program := "/program"
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 {
		attr.Chroot, attr.Credential = i.root, &syscall.Credential{Uid: nobody, Gid: nobody}
	} else {
		program = filepath.Join(i.root, program)
		for n, arg := range args {
			args[n] = strings.ReplaceAll(arg, "=/etc/", "="+i.root+"/etc/")
		}
	}
	cmd := &exec.Cmd{Path: program, Args: append(append([]string{program}, args...), "--listen=127.0.0.1:0"), Dir: "/", Env: []string{}, SysProcAttr: attr}
	p := proctest.Start(t, cmd)
	t.Cleanup(func() {
		p.Signal(syscall.SIGTERM)
		assert.Zero(t, p.Wait())
	})
	return p.Match(&p.Stderr, `"address":"([^"]+)"`)[1]
}

// certificate is one that nobody checks, as the kubelet's probes do not.
func certificate(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"pglatch-locks"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}

// get asks as the kubelet does.
func get(t *testing.T, url string) int {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // as the kubelet
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	_ = response.Body.Close()
	return response.StatusCode
}

// What the manifests deploy is run as they say: the file of the image alone, as nobody, with the secrets
// mounted. Probes succeed from 200 to 399 (Kubernetes, "Configure Liveness, Readiness and Startup Probes").
func TestTheImageServesWhatTheManifestsDeploy(t *testing.T) {
	i := buildImage(t)
	file, err := elf.Open(filepath.Join(i.root, "program"))
	require.NoError(t, err)
	for _, p := range file.Progs {
		assert.NotEqual(t, elf.PT_INTERP, p.Type, "it needs a loader")
	}
	require.NoError(t, file.Close())
	server := pgtest.StartServer(t, pgserver.Options{})
	i.mount(t, "/etc/pglatch/database/url", []byte(server.DSN("")+"\n"))
	i.mount(t, "/etc/pglatch/tokens/tokens", []byte("a-token-of-some-length\n"))
	cert, key := certificate(t)
	i.mount(t, "/etc/pglatch/tls/tls.crt", cert)
	i.mount(t, "/etc/pglatch/tls/tls.key", key)

	locks := object[appsv1.Deployment](t, "locks.yaml", "Deployment").Spec.Template.Spec.Containers[0]
	address := i.run(t, locks)
	for _, probe := range []*corev1.Probe{locks.LivenessProbe, locks.ReadinessProbe} {
		status := get(t, strings.ToLower(string(probe.HTTPGet.Scheme))+"://"+address+probe.HTTPGet.Path)
		assert.True(t, status >= 200 && status < 400, "%s: %d", probe.HTTPGet.Path, status)
	}
	assert.Equal(t, http.StatusUnauthorized, get(t, "https://"+address+"/v1/locks"), "what is no probe")
	assert.Equal(t, http.StatusBadRequest, get(t, "http://"+address+locks.LivenessProbe.HTTPGet.Path), "without TLS")

	monitor := object[appsv1.Deployment](t, "monitor.yaml", "Deployment").Spec.Template.Spec.Containers[0]
	address = i.run(t, monitor)
	assert.Equal(t, http.StatusOK, get(t, "http://"+address+"/"))
}
