//go:build linux

package kubernetes

import (
	"context"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
)

// createLeases makes Lease a custom resource, with the fields that it has as a
// built-in one, and waits until it is served.
func createLeases(ctx context.Context, config *rest.Config) error {
	client, err := clientset.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	crds := client.ApiextensionsV1().CustomResourceDefinitions()
	ready := false
	created := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		_, err := crds.Create(ctx, leaseDefinition(), metav1.CreateOptions{})
		return err == nil, nil // it may not serve yet
	})
	if created != nil {
		return created
	}
	return wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		crd, err := crds.Get(ctx, "leases.coordination.k8s.io", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, c := range crd.Status.Conditions {
			if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
				// For two seconds after that every write takes two seconds.
				ready = time.Since(c.LastTransitionTime.Time) > 3*time.Second
			}
		}
		return ready, nil
	})
}

func leaseDefinition() *apiextensionsv1.CustomResourceDefinition {
	field := func(kind, format string) apiextensionsv1.JSONSchemaProps {
		return apiextensionsv1.JSONSchemaProps{Type: kind, Format: format}
	}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "leases.coordination.k8s.io",
			Annotations: map[string]string{"api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/70344"},
		},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "coordination.k8s.io", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "leases", Singular: "lease", Kind: "Lease", ListKind: "LeaseList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object",
					Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {
						Type: "object",
						Properties: map[string]apiextensionsv1.JSONSchemaProps{
							"holderIdentity":       field("string", ""),
							"leaseDurationSeconds": field("integer", "int32"),
							"acquireTime":          field("string", "date-time"),
							"renewTime":            field("string", "date-time"),
							"leaseTransitions":     field("integer", "int32"),
						},
					}},
				}},
			}},
		},
	}
}
