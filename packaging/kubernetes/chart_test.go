// Package kubernetes has the tests of the chart beside it.
package kubernetes

import (
	"bytes"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

var write = flag.Bool("write", false, "write daemonset.yaml")

// manifest is what the chart gives with its own values.
const manifest = "daemonset.yaml"

// render returns the documents that the chart gives with values.
func render(t *testing.T, values map[string]any) []byte {
	t.Helper()
	chart, err := loader.Load("unifiedd")
	if err != nil {
		t.Fatal(err)
	}
	all, err := chartutil.ToRenderValues(chart, values, chartutil.ReleaseOptions{Name: "unifiedd", Namespace: "unifiedd", IsInstall: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	e := engine.Engine{Strict: true}
	files, err := e.Render(chart, all)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	var b bytes.Buffer
	for _, name := range names {
		b.WriteString("---\n" + strings.TrimSpace(files[name]) + "\n")
	}
	return b.Bytes()
}

// decode reads documents as the API's server does that refuses unknown fields (kubectl apply --validate=strict).
func decode(text []byte) (all []runtime.Object, err error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	for _, one := range bytes.Split(text, []byte("---\n")) {
		if len(bytes.TrimSpace(one)) == 0 {
			continue
		}
		object, _, err := decoder.Decode(one, nil, nil)
		if err != nil {
			return nil, err
		}
		all = append(all, object)
	}
	return all, nil
}

// parts returns the configuration and the daemon set among documents.
func parts(t *testing.T, text []byte) (*corev1.ConfigMap, *appsv1.DaemonSet) {
	t.Helper()
	all, err := decode(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if len(all) != 2 {
		t.Fatalf("%d documents, want 2", len(all))
	}
	return all[0].(*corev1.ConfigMap), all[1].(*appsv1.DaemonSet)
}

// TestChart: what the chart gives is in daemonset.yaml, and is what the API takes.
func TestChart(t *testing.T) {
	text := render(t, nil)
	head := []byte("# Made of the chart with its own values: make generate\n# Put ../seccomp.json on each node as /var/lib/kubelet/seccomp/unifiedd.json.\napiVersion: v1\nkind: Namespace\nmetadata: {name: unifiedd}\n")
	want := append(head, text...)
	if *write {
		if err := os.WriteFile(manifest, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(manifest); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not what the chart gives (%v): make generate", manifest, err)
	}
	if _, err := decode(want); err != nil {
		t.Error(err)
	}
	config, set := parts(t, text)
	pod := set.Spec.Template.Spec
	c := pod.Containers[0]
	for key, value := range set.Spec.Selector.MatchLabels {
		if set.Spec.Template.Labels[key] != value {
			t.Errorf("the pods are not selected: they have no label %s=%s", key, value)
		}
	}
	for _, m := range c.VolumeMounts {
		if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name }) {
			t.Errorf("there is no volume %s", m.Name)
		}
	}
	if !strings.Contains(config.Data["unifiedd.yaml"], "region: {size: 254MiB, pages: 2MiB}") {
		t.Errorf("the configuration is\n%s", config.Data["unifiedd.yaml"])
	}
	huge := c.Resources.Limits["hugepages-2Mi"]
	if least := resource.MustParse("256Mi"); huge.Cmp(least) < 0 || huge.Cmp(c.Resources.Requests["hugepages-2Mi"]) != 0 {
		t.Errorf("the pod may take %v of huge pages, want %v or more, and as many as it asks for", huge, least)
	}
	if _, limited := c.Resources.Limits[corev1.ResourceCPU]; limited {
		t.Error("the pod has a quota of processors' time")
	}
}

// TestValues: values reach the pod, and what they say is what the API takes.
func TestValues(t *testing.T) {
	_, set := parts(t, render(t, map[string]any{
		"seccomp": "", "capabilities": []any{"NET_ADMIN", "BPF"}, "hugepages": "1Gi", "nodeSelector": map[string]any{"captures": "yes"},
		"tolerations": []any{map[string]any{"key": "dedicated", "operator": "Exists"}}, "image": map[string]any{"repository": "r.example/u", "tag": "1"},
	}))
	pod := set.Spec.Template.Spec
	c := pod.Containers[0]
	huge := c.Resources.Limits["hugepages-2Mi"]
	if c.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault || !slices.Equal(c.SecurityContext.Capabilities.Add, []corev1.Capability{"NET_ADMIN", "BPF"}) ||
		huge.String() != "1Gi" || pod.NodeSelector["captures"] != "yes" || pod.Tolerations[0].Key != "dedicated" || c.Image != "r.example/u:1" {
		t.Errorf("the pod is %+v", pod)
	}
}

// TestStrict: a field that the API does not have is refused, so these tests would find one.
func TestStrict(t *testing.T) {
	text := render(t, nil)
	for from, to := range map[string]string{"hostNetwork: true": "hostNetworks: true", "localhostProfile:": "localHostProfile:", "maxUnavailable: 1": "maxUnavailable: [1]"} {
		wrong := bytes.Replace(text, []byte(from), []byte(to), 1)
		if bytes.Equal(wrong, text) {
			t.Fatalf("there is no %s", from)
		}
		if _, err := decode(wrong); err == nil {
			t.Errorf("%s is taken", to)
		}
	}
}
