// Command multus stands in for the thin plugin of Multus v4.2.2, which is not to be had as a module. It does for a pod what its
// source does: the cluster's network first, then each network of the pod's annotation, through libcni and with the same CNI_ARGS.
// It writes the pod's network-status, and to a file each exchange with a plugin.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
)

const (
	networks = "k8s.v1.cni.cncf.io/networks"
	status   = "k8s.v1.cni.cncf.io/network-status"
)

// What the testbed configures.
type conf struct {
	types.PluginConf
	// The API server and a token of it.
	Server string `json:"server"`
	Token  string `json:"token"`
	// The network that every pod has.
	ClusterNetwork json.RawMessage `json:"clusterNetwork"`
	// A folder for what is kept from ADD to DEL.
	CNIDir string `json:"cniDir"`
	// The file that exchanges are appended to.
	Record string `json:"record"`
}

// One network of a pod.
type delegate struct {
	Name      string          `json:"name"`
	Interface string          `json:"interface"`
	Config    json.RawMessage `json:"config"`
}

type pod struct {
	Metadata struct {
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
}

type attachment struct {
	Spec struct {
		Config string `json:"config"`
	} `json:"spec"`
}

func main() {
	skel.PluginMainFuncs(skel.CNIFuncs{Add: add, Del: del, Check: check}, version.All, "stands in for multus v4.2.2")
}

func add(args *skel.CmdArgs) error {
	c, err := load(args)
	if err != nil {
		return err
	}
	of := arguments()
	namespace, name := of["K8S_POD_NAMESPACE"], of["K8S_POD_NAME"]
	path := fmt.Sprintf("/api/v1/namespaces/%s/pods/%s", namespace, name)
	var p pod
	if err := c.api("GET", path, nil, &p); err != nil {
		return err
	}
	delegates, err := c.delegates(args, namespace, p.Metadata.Annotations[networks])
	if err != nil {
		return err
	}
	if err := keep(c.kept(args), delegates); err != nil {
		return err
	}
	results := make([]*types100.Result, 0, len(delegates))
	for i, one := range delegates {
		result, err := c.attach(args, one)
		if err != nil {
			_ = c.detach(args, delegates[:i+1])
			return fmt.Errorf("[%s/%s/%s:%s]: error adding container to network %q: %w", namespace, name, of["K8S_POD_UID"], one.Name, one.Name, err)
		}
		results = append(results, result)
	}
	if err := c.report(path, namespace, delegates, results); err != nil {
		return err
	}
	return types.PrintResult(results[0], c.CNIVersion)
}

func del(args *skel.CmdArgs) error {
	c, err := load(args)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(c.kept(args))
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	var delegates []delegate
	if err := json.Unmarshal(text, &delegates); err != nil {
		return err
	}
	if err := c.detach(args, delegates); err != nil {
		return err
	}
	return os.Remove(c.kept(args))
}

func check(*skel.CmdArgs) error { return nil }

func load(args *skel.CmdArgs) (*conf, error) {
	c := &conf{}
	return c, json.Unmarshal(args.StdinData, c)
}

func (c *conf) kept(args *skel.CmdArgs) string {
	return filepath.Join(c.CNIDir, args.ContainerID)
}

func keep(path string, delegates []delegate) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	text, err := json.Marshal(delegates)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

// The networks of a pod, the cluster's first.
func (c *conf) delegates(args *skel.CmdArgs, namespace, wanted string) ([]delegate, error) {
	var named struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal(c.ClusterNetwork, &named); err != nil {
		return nil, err
	}
	all := []delegate{{Name: named.Name, Interface: args.IfName, Config: c.ClusterNetwork}}
	if wanted == "" {
		return all, nil
	}
	var elements []struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
		Interface string `json:"interface"`
	}
	if err := json.Unmarshal([]byte(wanted), &elements); err != nil {
		return nil, err
	}
	for i, element := range elements {
		if element.Namespace == "" {
			element.Namespace = namespace
		}
		if element.Interface == "" {
			element.Interface = fmt.Sprintf("net%d", i+1)
		}
		path := fmt.Sprintf("/apis/k8s.cni.cncf.io/v1/namespaces/%s/network-attachment-definitions/%s", element.Namespace, element.Name)
		var found attachment
		if err := c.api("GET", path, nil, &found); err != nil {
			return nil, err
		}
		config, err := withName(found.Spec.Config, element.Name)
		if err != nil {
			return nil, err
		}
		all = append(all, delegate{Name: element.Namespace + "/" + element.Name, Interface: element.Interface, Config: config})
	}
	return all, nil
}

// A definition without a name has its object's.
func withName(config, name string) (json.RawMessage, error) {
	var fields map[string]any
	if err := json.Unmarshal([]byte(config), &fields); err != nil {
		return nil, err
	}
	if said, _ := fields["name"].(string); said == "" {
		fields["name"] = name
	}
	return json.Marshal(fields)
}

func (c *conf) attach(args *skel.CmdArgs, one delegate) (*types100.Result, error) {
	parsed, err := libcni.ConfFromBytes(one.Config)
	if err != nil {
		return nil, err
	}
	result, err := c.libcni().AddNetwork(context.Background(), parsed, runtimeConf(args, one.Interface))
	if err != nil {
		return nil, err
	}
	return types100.NewResultFromResult(result)
}

// Detaches in reverse order; the first error, after all were tried.
func (c *conf) detach(args *skel.CmdArgs, delegates []delegate) error {
	var first error
	for _, one := range slices.Backward(delegates) {
		parsed, err := libcni.ConfFromBytes(one.Config)
		if err == nil {
			err = c.libcni().DelNetwork(context.Background(), parsed, runtimeConf(args, one.Interface))
		}
		if err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (c *conf) libcni() *libcni.CNIConfig {
	exec := recorder{&invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: os.Stderr}}, c.Record}
	return libcni.NewCNIConfigWithCacheDir(filepath.SplitList(os.Getenv("CNI_PATH")), c.CNIDir, exec)
}

// Multus names its own arguments first and appends all of the runtime's whose key has a value already, so most keys come twice.
func runtimeConf(args *skel.CmdArgs, ifname string) *libcni.RuntimeConf {
	of := arguments()
	own := [][2]string{{"IgnoreUnknown", "true"}}
	for _, key := range []string{"K8S_POD_NAMESPACE", "K8S_POD_NAME", "K8S_POD_INFRA_CONTAINER_ID", "K8S_POD_UID"} {
		own = append(own, [2]string{key, of[key]})
	}
	for _, pair := range strings.Split(os.Getenv("CNI_ARGS"), ";") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			own = append(own, [2]string{key, value})
		}
	}
	return &libcni.RuntimeConf{
		ContainerID: args.ContainerID, NetNS: args.Netns, IfName: ifname, Args: own,
		CapabilityArgs: map[string]any{},
	}
}

func arguments() map[string]string {
	of := map[string]string{}
	for _, pair := range strings.Split(os.Getenv("CNI_ARGS"), ";") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			of[key] = value
		}
	}
	return of
}

// Writes the network-status annotation.
func (c *conf) report(path, namespace string, delegates []delegate, results []*types100.Result) error {
	all := []map[string]any{}
	for i, result := range results {
		ips := []string{}
		for _, ip := range result.IPs {
			ips = append(ips, ip.Address.IP.String())
		}
		mac := ""
		for _, one := range result.Interfaces {
			if one.Sandbox != "" {
				mac = one.Mac
			}
		}
		all = append(all, map[string]any{
			"name": delegates[i].Name, "interface": delegates[i].Interface, "ips": ips, "mac": mac,
			"default": i == 0, "dns": map[string]any{},
		})
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	patch := map[string]any{"metadata": map[string]any{"annotations": map[string]string{status: string(text)}}}
	return c.api("PATCH", path, patch, nil)
}

func (c *conf) api(method, path string, body, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequest(method, c.Server+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+c.Token)
	request.Header.Set("Content-Type", "application/merge-patch+json")
	client := &http.Client{
		Timeout:   20 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s: %s", method, path, response.Status, answer)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer, into)
}

// Appends each exchange to a file, as a line of JSON.
type recorder struct {
	*invoke.DefaultExec
	file string
}

func (r recorder) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	out, failed := r.DefaultExec.ExecPlugin(ctx, path, stdin, environ)
	environment := map[string]string{}
	for _, pair := range environ {
		if key, value, ok := strings.Cut(pair, "="); ok && strings.HasPrefix(key, "CNI_") {
			environment[key] = value
		}
	}
	said := ""
	if failed != nil {
		said = failed.Error()
	}
	line, err := json.Marshal(map[string]any{
		"plugin": filepath.Base(path), "environment": environment, "stdin": string(stdin), "stdout": string(out), "error": said,
	})
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(r.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if _, err := file.Write(append(line, '\n')); err != nil {
		return nil, err
	}
	return out, failed
}
