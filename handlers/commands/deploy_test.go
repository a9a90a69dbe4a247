package commands

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"m40-llm/handlers/cli"
)

// deployFolder has the files with which the program is installed.
const deployFolder = "../../deploy"

func deployFile(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(deployFolder, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// checkFlags reports an error for each of args that is no flag of serve, and returns the value of --addr.
func checkFlags(t *testing.T, args []string) (addr string) {
	t.Helper()
	known := flagsOf()["serve"].Names()
	for i, arg := range args {
		name, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if !strings.HasPrefix(arg, "--") {
			continue
		}
		if !slices.Contains(known, name) {
			t.Errorf("%s is no flag of serve", arg)
		}
		if value == "" && i+1 < len(args) {
			value = args[i+1]
		}
		if name == "addr" {
			addr = value
		}
	}
	return addr
}

// checkImage reports an error unless an image is named without the host of a registry, and by a version.
func checkImage(t *testing.T, image string) {
	t.Helper()
	first, _, several := strings.Cut(image, "/")
	if several && strings.ContainsAny(first, ".:") {
		t.Errorf("the image %s names a host", image)
	}
	if strings.Contains(image, "/") && !strings.Contains(image, ":") {
		t.Errorf("the image %s has no version", image)
	}
}

func TestEnvironmentVariablesInDeployedFilesAreThoseOfFlags(t *testing.T) {
	known := []string{upstreamKeyEnv}
	for _, flags := range flagsOf() {
		for _, name := range flags.Names() {
			known = append(known, cli.EnvName(name))
		}
	}
	names := regexp.MustCompile(`M40_LLM_[A-Z_]*[A-Z]`)
	files := 0
	err := filepath.WalkDir(deployFolder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		files++
		for _, name := range names.FindAllString(string(text), -1) {
			if !slices.Contains(known, name) {
				t.Errorf("%s: %s is no flag's", path, name)
			}
		}
		return err
	})
	if err != nil || files < 8 {
		t.Errorf("%d files, %v", files, err)
	}
}

func TestTheServiceOfSystemdIsHardenedAndStartsTheProgram(t *testing.T) {
	text := deployFile(t, "m40-llm.service")
	values := map[string][]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(line, "#") {
			values[key] = append(values[key], value)
		}
	}
	args := strings.Fields(values["ExecStart"][0])
	if addr := checkFlags(t, args); args[1] != "serve" || !strings.HasPrefix(addr, "127.0.0.1:") {
		t.Errorf("it starts %q", args)
	}
	if data := args[slices.Index(args, "--data")+1]; data != "/var/lib/"+values["StateDirectory"][0] || values["WorkingDirectory"][0] != data {
		t.Errorf("the data folder is %s", data)
	}
	for key, want := range map[string]string{
		"DynamicUser": "yes", "NoNewPrivileges": "yes", "ProtectSystem": "strict", "ProtectHome": "yes", "PrivateTmp": "yes", "CapabilityBoundingSet": "",
		"RestrictNamespaces": "yes", "LockPersonality": "yes", "SystemCallArchitectures": "native", "KillMode": "mixed", "UMask": "0077",
	} {
		if len(values[key]) != 1 || values[key][0] != want {
			t.Errorf("%s is %q, want %q", key, values[key], want)
		}
	}
	if verifier, err := exec.LookPath("systemd-analyze"); err == nil {
		path := filepath.Join(t.TempDir(), "m40-llm.service")
		text = strings.Replace(text, "/usr/local/bin/m40-llm", "/bin/true", 1)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(verifier, "verify", path).CombinedOutput(); err != nil || bytes.Contains(out, []byte("m40-llm.service:")) {
			t.Errorf("systemd-analyze: %v\n%s", err, out)
		}
	}
}

func TestLitestreamCopiesTheDatabaseOfTheService(t *testing.T) {
	var litestream struct {
		DBs []struct {
			Path     string
			Replicas []map[string]any
		}
	}
	parseYAML(t, deployFile(t, "litestream.yml"), &litestream)
	if len(litestream.DBs) != 1 || litestream.DBs[0].Path != "/var/lib/m40-llm/chats.db" || len(litestream.DBs[0].Replicas) != 1 || litestream.DBs[0].Replicas[0]["type"] != "s3" {
		t.Errorf("Litestream copies %+v", litestream)
	}
}

func parseYAML(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), into); err != nil {
		t.Fatal(err)
	}
}

func TestTheImageRunsTheProgramAndNotAsRoot(t *testing.T) {
	var stages []string
	last := map[string]string{} // instructions of the last stage
	for line := range strings.Lines(strings.ReplaceAll(deployFile(t, "Dockerfile"), "\\\n", "")) {
		instruction, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch instruction {
		case "", "#":
			continue
		case "FROM":
			image := strings.Fields(rest)[0]
			checkImage(t, image)
			stages, last = append(stages, image), map[string]string{}
		}
		last[instruction] = rest
	}
	excluded := strings.Fields(deployFile(t, "Dockerfile.dockerignore"))
	for _, name := range strings.Fields(deployFile(t, ".gitignore")) {
		if !slices.Contains(excluded, "deploy/"+name) {
			t.Errorf("%s, which is not in the repository, gets into the image's build", name)
		}
	}
	module, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	goVersion := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(module)[1]
	if len(stages) != 2 || !strings.HasPrefix(stages[0], "golang:"+string(goVersion)+"-") {
		t.Errorf("the stages are %q, and the module is for Go %s", stages, goVersion)
	}
	if user := last["USER"]; user == "" || strings.HasPrefix(user, "0") || strings.HasPrefix(user, "root") {
		t.Errorf("it runs as %q", user)
	}
	var entry, args []string
	parseYAML(t, last["ENTRYPOINT"], &entry) // JSON is YAML
	parseYAML(t, last["CMD"], &args)
	addr := checkFlags(t, args)
	if _, port, _ := net.SplitHostPort(addr); len(entry) != 1 || args[0] != "serve" || port != last["EXPOSE"] {
		t.Errorf("it runs %q %q, and exposes %s", entry, args, last["EXPOSE"])
	}
	if args[slices.Index(args, "--data")+1] != last["VOLUME"] {
		t.Errorf("the data of %q are not in the volume %s", args, last["VOLUME"])
	}
}

func TestComposeHasVLLMAsTheUpstream(t *testing.T) {
	var file struct {
		Services map[string]struct {
			Image       string
			Command     []string
			Ports       []string
			Environment map[string]string
			Secrets     []string
			Volumes     []string
			ReadOnly    bool     `yaml:"read_only"`
			CapDrop     []string `yaml:"cap_drop"`
		}
		Secrets map[string]any
		Volumes map[string]any
	}
	parseYAML(t, deployFile(t, "compose.yaml"), &file)
	front := file.Services["m40-llm"]
	for _, s := range file.Services {
		checkImage(t, s.Image)
	}
	at, err := url.Parse(front.Environment["M40_LLM_UPSTREAM"])
	if err != nil {
		t.Fatal(err)
	}
	upstream, ok := file.Services[at.Hostname()]
	if i := slices.Index(upstream.Command, "--port"); !ok || i < 0 || upstream.Command[i+1] != at.Port() {
		t.Errorf("the upstream %s is no service of the file: %+v", at, upstream)
	}
	if i := slices.Index(upstream.Command, "--model"); i < 0 || front.Environment["M40_LLM_MODEL"] != upstream.Command[i+1]+"@"+at.Host {
		t.Errorf("chats begin with %s, and the upstream runs %q", front.Environment["M40_LLM_MODEL"], upstream.Command)
	}
	if len(upstream.Ports) != 0 {
		t.Error("the upstream can be reached from outside")
	}
	if len(front.Secrets) != 1 || front.Environment["M40_LLM_UPSTREAM_KEYS"] != "/run/secrets/"+front.Secrets[0] || file.Secrets[front.Secrets[0]] == nil {
		t.Errorf("the keys are %q, and the secrets %q", front.Environment["M40_LLM_UPSTREAM_KEYS"], front.Secrets)
	}
	if !front.ReadOnly || !slices.Equal(front.CapDrop, []string{"ALL"}) || !strings.HasSuffix(front.Volumes[0], ":/data") || !slices.Equal(front.Ports, []string{"127.0.0.1:8080:8080"}) {
		t.Errorf("the playground is %+v", front)
	}
}

func TestTheManifestsOfKubernetesFitTogether(t *testing.T) {
	var set struct {
		Kind string
		Spec struct {
			Replicas int
			Template struct {
				Spec struct {
					SecurityContext map[string]any `yaml:"securityContext"`
					Containers      []struct {
						Image           string
						Args            []string
						Ports           []struct{ ContainerPort int }
						SecurityContext map[string]any                     `yaml:"securityContext"`
						VolumeMounts    []struct{ Name, MountPath string } `yaml:"volumeMounts"`
					}
				}
			}
			VolumeClaimTemplates []struct{ Metadata struct{ Name string } } `yaml:"volumeClaimTemplates"`
		}
	}
	manifests := strings.SplitN(deployFile(t, "kubernetes/m40-llm.yaml"), "\n---\n", 2)
	// The library lowers the names of fields, Kubernetes has some capitals.
	parseYAML(t, strings.NewReplacer("containerPort", "containerport", "mountPath", "mountpath").Replace(manifests[0]), &set)
	pod := set.Spec.Template.Spec
	c := pod.Containers[0]
	addr := checkFlags(t, c.Args)
	if set.Kind != "StatefulSet" || set.Spec.Replicas != 1 || pod.SecurityContext["runAsNonRoot"] != true || c.SecurityContext["readOnlyRootFilesystem"] != true || c.SecurityContext["allowPrivilegeEscalation"] != false {
		t.Errorf("the pod is %+v", set)
	}
	if addr != fmt.Sprint(":", c.Ports[0].ContainerPort) {
		t.Errorf("it listens on %s, and its port is %d", addr, c.Ports[0].ContainerPort)
	}
	if set.Spec.VolumeClaimTemplates[0].Metadata.Name != c.VolumeMounts[0].Name || !slices.Contains(c.Args, "--data="+c.VolumeMounts[0].MountPath) {
		t.Errorf("the data folder is not the volume: %+v, %q", c.VolumeMounts, c.Args)
	}
	var service struct {
		Metadata struct{ Name string }
		Spec     struct{ Selector map[string]string }
	}
	parseYAML(t, manifests[1], &service)
	if service.Spec.Selector["app"] != "m40-llm" || !slices.Contains(c.Args, "--allow-host="+service.Metadata.Name) {
		t.Errorf("the service is %+v", service)
	}

	var ray struct {
		Metadata struct{ Name string }
		Spec     struct {
			Applications string `yaml:"serveConfigV2"`
		}
	}
	rayText := deployFile(t, "kubernetes/rayservice.yaml")
	parseYAML(t, rayText, &ray)
	if !slices.Contains(c.Args, "--upstream=http://"+ray.Metadata.Name+"-serve-svc:8000") || !strings.Contains(rayText, "{name: serve, containerPort: 8000}") {
		t.Errorf("the upstream is not the service that KubeRay makes of %s", ray.Metadata.Name)
	}
	var serve struct{ Applications []map[string]any }
	if parseYAML(t, ray.Spec.Applications, &serve); len(serve.Applications) != 1 || serve.Applications[0]["import_path"] != "ray.serve.llm:build_openai_app" {
		t.Errorf("Ray Serve runs %+v", serve)
	}
	served := regexp.MustCompile(`model_id: (\S+)`).FindStringSubmatch(ray.Spec.Applications)
	if len(served) != 2 || !slices.Contains(c.Args, "--model="+served[1]+"@"+ray.Metadata.Name+"-serve-svc:8000") {
		t.Errorf("chats begin with another model than that of Ray Serve, %q: %q", served, c.Args)
	}
	for _, image := range regexp.MustCompile(`image: (\S+)`).FindAllStringSubmatch(rayText, -1) {
		checkImage(t, image[1])
	}
	if kubectl, err := exec.LookPath("kubectl"); err == nil {
		out, err := exec.Command(kubectl, "kustomize", filepath.Join(deployFolder, "kubernetes")).CombinedOutput()
		if kinds := kindsOf(t, out); err != nil || !slices.Equal(kinds, []string{"RayService", "Service", "StatefulSet"}) {
			t.Errorf("kubectl kustomize: %v, %q\n%s", err, kinds, out)
		}
	}
}

// kindsOf returns the kinds of the documents of a stream of YAML in alphabetical order.
func kindsOf(t *testing.T, stream []byte) (kinds []string) {
	t.Helper()
	for documents := yaml.NewDecoder(bytes.NewReader(stream)); ; {
		var document struct{ Kind string }
		if err := documents.Decode(&document); err == io.EOF {
			slices.Sort(kinds)
			return kinds
		} else if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, document.Kind)
	}
}
