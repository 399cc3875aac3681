package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/pglatch/pglatch/leader/kubernetes"
)

// manifests are the objects of deploy.yaml.
type manifests struct {
	account    corev1.ServiceAccount
	role       rbacv1.Role
	binding    rbacv1.RoleBinding
	deployment appsv1.Deployment
	service    corev1.Service
}

func read(t *testing.T) *manifests {
	t.Helper()
	file, err := os.ReadFile("deploy.yaml")
	require.NoError(t, err)
	var m manifests
	objects := map[string]any{
		"v1 ServiceAccount":                        &m.account,
		"rbac.authorization.k8s.io/v1 Role":        &m.role,
		"rbac.authorization.k8s.io/v1 RoleBinding": &m.binding,
		"apps/v1 Deployment":                       &m.deployment,
		"v1 Service":                               &m.service,
	}
	for document := range bytes.SplitSeq(file, []byte("\n---\n")) {
		var kind struct{ APIVersion, Kind string }
		require.NoError(t, yaml.Unmarshal(document, &kind))
		name := kind.APIVersion + " " + kind.Kind
		require.Contains(t, objects, name, "once")
		require.NoError(t, yaml.UnmarshalStrict(document, objects[name]), name)
		delete(objects, name)
	}
	require.Empty(t, objects)
	return &m
}

func TestTheManifestsFitEachOther(t *testing.T) {
	t.Parallel()
	m := read(t)
	pod := m.deployment.Spec.Template
	assert.Equal(t, m.account.Name, pod.Spec.ServiceAccountName)
	assert.Equal(t, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: m.role.Name}, m.binding.RoleRef)
	assert.Equal(t, []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: m.account.Name}}, m.binding.Subjects)
	assert.Equal(t, m.deployment.Spec.Selector.MatchLabels, pod.Labels)
	assert.Equal(t, pod.Labels, m.service.Spec.Selector)
	require.Len(t, pod.Spec.Containers, 1)
	ports := pod.Spec.Containers[0].Ports
	require.Len(t, ports, 1)
	assert.Equal(t, ports[0].Name, m.service.Spec.Ports[0].TargetPort.String())
}

func TestTheManifestsFitTheProgram(t *testing.T) {
	t.Parallel()
	m := read(t)
	container := m.deployment.Spec.Template.Spec.Containers[0]
	o, err := parse(container.Args)
	require.NoError(t, err)
	assert.Empty(t, o.kubeconfig)
	assert.Equal(t, ":8080", o.listen)
	assert.EqualValues(t, 8080, container.Ports[0].ContainerPort)
	assert.Equal(t, "/livez", container.LivenessProbe.HTTPGet.Path)
	assert.Equal(t, "/leader", container.ReadinessProbe.HTTPGet.Path)
	for _, probe := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe} {
		assert.Equal(t, container.Ports[0].Name, probe.HTTPGet.Port.String())
	}
	fields := make(map[string]string)
	for _, v := range container.Env {
		fields[v.Name] = v.ValueFrom.FieldRef.FieldPath
	}
	assert.Equal(t, map[string]string{"POD_NAME": "metadata.name", kubernetes.NamespaceVariable: "metadata.namespace"}, fields)

	leases := rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}}
	create, rest := leases, leases
	create.Verbs = []string{"create"}
	rest.Verbs, rest.ResourceNames = []string{"get", "update", "watch"}, []string{o.lease}
	assert.Equal(t, []rbacv1.PolicyRule{create, rest}, m.role.Rules)
}
