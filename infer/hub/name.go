package hub

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"m40-llm/infer/fault"
	"m40-llm/infer/gguf"
)

// name is the parsed name of a model to pull: a repository of Hugging Face with a quantisation or
// file, a model of the Ollama library with a tag, or an address outside of both.
type name struct {
	org, repo string // in the library: the namespace and the model
	quant     string // empty: any
	revision  string // empty: main
	file      string // path in the repository; empty: choose one
	tag       string // of a model of the Ollama library; empty: the name is none

	address *url.URL // nil for a repository and for the library
}

var (
	repoPart  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$`)
	quantPart = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	digest    = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// registryHosts and libraryHosts are the hosts with which names and addresses of the two default
// registries may begin.
var (
	registryHosts = map[string]bool{"hf.co": true, "huggingface.co": true, "www.huggingface.co": true}
	libraryHosts  = map[string]bool{"ollama.com": true, "www.ollama.com": true, "registry.ollama.ai": true}
)

const (
	maxName        = 2048
	nameExample    = "such as Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q8_0"
	libraryExample = "such as llama3.2:1b"

	// Of a name of the library: the namespace and the tag of names without.
	defaultNamespace = "library"
	defaultTag       = "latest"
)

// parseName parses org/repo[:quant], hf.co/org/repo[:quant], model[:tag],
// ollama.com/namespace/model[:tag] or the address of a file.
func parseName(s string) (name, error) {
	switch {
	case s == "":
		return name{}, invalidName("the name is empty; give org/repo:quant, %s, a model of the Ollama library, %s, or the https address of a .gguf file", nameExample, libraryExample)
	case len(s) > maxName || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl):
		return name{}, invalidName("the name %.80q is too long or has invalid characters", s)
	case strings.Contains(s, "://"):
		return parseAddress(s)
	}
	rest, quant, hasQuant := strings.Cut(s, ":")
	host, path, hasHost := strings.Cut(rest, "/")
	switch host = strings.ToLower(host); {
	case !hasHost:
		return parseLibraryName(s, s)
	case libraryHosts[host]:
		return parseLibraryName(s, s[len(host)+1:])
	case registryHosts[host]:
		rest = path
	}
	parts := strings.Split(rest, "/")
	if len(parts) != 2 || !validRepoPart(parts[0]) || !validRepoPart(parts[1]) {
		return name{}, invalidName("%q is neither org/repo nor org/repo:quant, %s, nor a model of the Ollama library, %s, nor an address that begins with https://", s, nameExample, libraryExample)
	}
	if hasQuant && !quantPart.MatchString(quant) {
		return name{}, invalidName("%q is not a quantisation; give org/repo:quant, %s", quant, nameExample)
	}
	return name{org: parts[0], repo: parts[1], quant: quant}, nil
}

// parseLibraryName parses [namespace/]model[:tag], the part of whole after its host.
func parseLibraryName(whole, s string) (name, error) {
	path, tag, hasTag := strings.Cut(s, ":")
	namespace, model, hasNamespace := strings.Cut(path, "/")
	if !hasNamespace {
		namespace, model = defaultNamespace, path
	}
	switch {
	case !validRepoPart(namespace) || !validRepoPart(model):
		return name{}, invalidName("%q is not a name of the Ollama library; give model or model:tag, %s, or for Hugging Face org/repo:quant, %s", whole, libraryExample, nameExample)
	case !hasTag:
		tag = defaultTag
	case !quantPart.MatchString(tag):
		return name{}, invalidName("%q is not a tag of the Ollama library; give model:tag, %s", tag, libraryExample)
	}
	n := name{org: namespace, repo: model, tag: tag}
	if len(gguf.Parts(n.libraryFile())) > 1 {
		return name{}, invalidName("%q looks like a file of a split model, and not like a name of the Ollama library", whole)
	}
	return n, nil
}

// String returns the shortest name that parseName turns into n.
func (n name) String() string {
	switch {
	case n.address != nil:
		return n.address.String()
	case n.tag != "":
		s := n.repo
		if n.org != defaultNamespace {
			s = "ollama.com/" + n.org + "/" + n.repo
		}
		if n.tag != defaultTag {
			s += ":" + n.tag
		}
		return s
	case n.file != "":
		return defaultEndpoint + "/" + n.org + "/" + n.repo + "/resolve/" + n.revision + "/" + (&url.URL{Path: n.file}).EscapedPath()
	case n.quant != "":
		return n.repository() + ":" + n.quant
	}
	return n.repository()
}

func validRepoPart(s string) bool {
	return repoPart.MatchString(s) && !strings.Contains(s, "..") && !strings.HasSuffix(s, ".")
}

// parseAddress parses the address of a file or of a repository's page.
func parseAddress(s string) (name, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return name{}, invalidName("%.200q is not an address", s)
	case u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.Opaque != "":
		return name{}, invalidName("%.200q is not an address that begins with https://", s)
	case u.User != nil:
		return name{}, invalidName("an address must not contain a password; set HF_TOKEN in the environment instead")
	}
	u.Fragment, u.RawFragment = "", ""
	if registryHosts[strings.ToLower(u.Hostname())] && u.Scheme == "https" && u.Port() == "" {
		return parseRepoAddress(s, u)
	}
	if libraryHosts[strings.ToLower(u.Hostname())] && u.Scheme == "https" && u.Port() == "" {
		return parseLibraryName(s, strings.Trim(u.Path, "/"))
	}
	if err := checkFile(path.Base(u.Path)); err != nil {
		return name{}, invalidName("%.200q is not the address of a model: %v", s, err)
	}
	return name{address: u}, nil
}

// parseRepoAddress parses an address of the registry's website: that of a repository, of a
// file's page or of its download.
func parseRepoAddress(s string, u *url.URL) (name, error) {
	parts := strings.Split(strings.Trim(u.Path, "/"), "/")
	if len(parts) < 2 || !validRepoPart(parts[0]) || !validRepoPart(parts[1]) {
		return name{}, invalidName("%.200q is not the address of a repository or of a .gguf file in one", s)
	}
	n := name{org: parts[0], repo: parts[1]}
	if len(parts) == 2 {
		return n, nil
	}
	if len(parts) < 5 || parts[2] != "resolve" && parts[2] != "blob" || !quantPart.MatchString(parts[3]) {
		return name{}, invalidName("%.200q is not the address of a .gguf file; it looks like https://huggingface.co/org/repo/resolve/main/file.gguf", s)
	}
	n.revision, n.file = parts[3], strings.Join(parts[4:], "/")
	if err := checkFile(n.file); err != nil {
		return name{}, invalidName("%.200q is not the address of a model: %v", s, err)
	}
	return n, nil
}

// checkFile returns an error if file, a path that a server gave, is not that of a model. Only
// its last element is used as a file name here.
func checkFile(file string) error {
	if len(file) > 1024 || !utf8.ValidString(file) || strings.ContainsFunc(file, func(r rune) bool { return !unicode.IsPrint(r) || r == '\\' }) {
		return fmt.Errorf("its file name %.80q has characters that are not allowed", file)
	}
	for _, part := range strings.Split(file, "/") {
		if part == "" || part == "." || part == ".." {
			return fmt.Errorf("its file name %.80q is not a path inside a repository", file)
		}
	}
	base := path.Base(file)
	switch {
	case len(base) > 200:
		return fmt.Errorf("its file name %.80q is too long", base)
	case strings.HasPrefix(base, ".") || !strings.HasSuffix(strings.ToLower(base), ".gguf"):
		return fmt.Errorf("its file name %.80q does not end in .gguf", base)
	}
	return nil
}

// addresses returns the addresses of the model's files.
func (n name) addresses() (list []*url.URL) {
	parts := gguf.Parts(n.address.Path)
	if len(parts) == 1 {
		return []*url.URL{n.address}
	}
	for _, part := range parts {
		address := *n.address
		address.Path, address.RawPath = part, ""
		list = append(list, &address)
	}
	return list
}

// folder returns the folder for the files of n, relative to the models folder.
func (n name) folder() string {
	switch {
	case n.tag != "":
		return hostFolder("ollama.com") + "/" + n.org
	case n.address == nil:
		return n.org + "/" + n.repo
	}
	return hostFolder(n.address.Hostname())
}

// hostFolder returns the folder for files of a host outside of the default registry.
func hostFolder(hostname string) string {
	host := strings.Map(func(r rune) rune {
		if r == '.' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' {
			return r
		}
		return '_'
	}, strings.ToLower(hostname))
	return "from-" + host // the prefix also prevents a hidden folder for a host with a leading dot
}

// libraryFile returns the file for the model of a name of the library: model.gguf, or
// model-tag.gguf for another tag than the default one.
func (n name) libraryFile() string {
	if n.tag == defaultTag {
		return n.repo + ".gguf"
	}
	return n.repo + "-" + n.tag + ".gguf"
}

func (n name) repository() string { return n.org + "/" + n.repo }

func invalidName(format string, args ...any) error {
	return fault.Invalid("name", format, args...)
}

func unusable(format string, args ...any) error {
	return &fault.Error{Code: fault.CodeModelFile, Message: fmt.Sprintf(format, args...)}
}
