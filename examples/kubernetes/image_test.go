package main

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// instructions returns the instructions of the Containerfile.
func instructions(t *testing.T) map[string]string {
	t.Helper()
	file, err := os.ReadFile("Containerfile")
	require.NoError(t, err)
	all := make(map[string]string)
	for line := range strings.Lines(string(file)) {
		if name, rest, _ := strings.Cut(strings.TrimSpace(line), " "); name != "" && name != "#" {
			require.NotContains(t, all, name)
			all[name] = rest
		}
	}
	return all
}

func TestTheImageIsTheOneThatIsDeployed(t *testing.T) {
	t.Parallel()
	pod := read(t).deployment.Spec.Template.Spec
	container := pod.Containers[0]
	assert.Equal(t, corev1.PullIfNotPresent, container.ImagePullPolicy, "latest would be pulled from a registry")
	uid := *container.SecurityContext.RunAsUser
	assert.Positive(t, uid)
	assert.Equal(t, map[string]string{
		"FROM": "scratch", "COPY": "pglatch-example /pglatch-example", "USER": "65532:65532", "ENTRYPOINT": `["/pglatch-example"]`,
	}, instructions(t))
	assert.EqualValues(t, 65532, uid)

	manual, err := os.ReadFile("README.md")
	require.NoError(t, err)
	containerfile, err := os.ReadFile("Containerfile")
	require.NoError(t, err)
	for _, text := range []string{string(manual), string(containerfile)} {
		assert.Contains(t, text, "podman build -t "+container.Image+" examples/kubernetes")
		assert.Contains(t, text, "CGO_ENABLED=0 go build -C examples/kubernetes -trimpath -o pglatch-example .")
	}
}

// The binary is copied into an empty image and must run there, without a loader and without libraries.
func TestTheBinaryOfTheImageIsStatic(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "pglatch-example")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	output, err := build.CombinedOutput()
	require.NoError(t, err, string(output))
	file, err := elf.Open(binary)
	require.NoError(t, err)
	defer file.Close()
	for _, p := range file.Progs {
		assert.NotEqual(t, elf.PT_INTERP, p.Type, "it needs a loader")
		assert.NotEqual(t, elf.PT_DYNAMIC, p.Type, "it needs libraries")
	}
}
