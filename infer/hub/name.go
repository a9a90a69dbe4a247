package hub

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"m40-llm/infer"
	"m40-llm/infer/gguf"
)

// name is the parsed name of a model to pull: a repository with a quantisation or file, or
// an address outside the registry.
type name struct {
	org, repo string
	quant     string // empty: any
	revision  string // empty: main
	file      string // path in the repository; empty: choose one

	address *url.URL // nil for a repository
}

var (
	repoPart  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$`)
	quantPart = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	digest    = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// registryHosts are the hosts of the default registry, with which names and addresses may
// begin.
var registryHosts = map[string]bool{"hf.co": true, "huggingface.co": true, "www.huggingface.co": true}

const (
	maxName     = 2048
	nameExample = "such as Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q8_0"
)

// parseName parses org/repo[:quant], hf.co/org/repo[:quant] or the address of a file.
func parseName(s string) (name, error) {
	switch {
	case s == "":
		return name{}, invalid("the name is empty; give org/repo:quant, %s, or the https address of a .gguf file", nameExample)
	case len(s) > maxName || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl):
		return name{}, invalid("the name %.80q is too long or has invalid characters", s)
	case strings.Contains(s, "://"):
		return parseAddress(s)
	}
	rest, quant, hasQuant := strings.Cut(s, ":")
	if host, path, ok := strings.Cut(rest, "/"); ok && registryHosts[strings.ToLower(host)] {
		rest = path
	}
	parts := strings.Split(rest, "/")
	if len(parts) == 1 || isOllamaHost(parts[0]) {
		return name{}, invalid("%q is a name of the Ollama library, which is not supported yet; pull the model from Hugging Face as org/repo:quant, %s", s, nameExample)
	}
	if len(parts) != 2 || !validRepoPart(parts[0]) || !validRepoPart(parts[1]) {
		return name{}, invalid("%q is neither org/repo nor org/repo:quant, %s, nor an address that begins with https://", s, nameExample)
	}
	if hasQuant && !quantPart.MatchString(quant) {
		return name{}, invalid("%q is not a quantisation; give org/repo:quant, %s", quant, nameExample)
	}
	return name{org: parts[0], repo: parts[1], quant: quant}, nil
}

func isOllamaHost(s string) bool {
	return strings.EqualFold(s, "ollama.com") || strings.EqualFold(s, "registry.ollama.ai")
}

func validRepoPart(s string) bool {
	return repoPart.MatchString(s) && !strings.Contains(s, "..") && !strings.HasSuffix(s, ".")
}

// parseAddress parses the address of a file or of a repository's page.
func parseAddress(s string) (name, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return name{}, invalid("%.200q is not an address", s)
	case u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.Opaque != "":
		return name{}, invalid("%.200q is not an address that begins with https://", s)
	case u.User != nil:
		return name{}, invalid("an address must not contain a password; set HF_TOKEN in the environment instead")
	case isOllamaHost(u.Hostname()):
		return name{}, invalid("the Ollama library is not supported yet; pull the model from Hugging Face as org/repo:quant, %s", nameExample)
	}
	u.Fragment, u.RawFragment = "", ""
	if registryHosts[strings.ToLower(u.Hostname())] && u.Scheme == "https" && u.Port() == "" {
		return parseRepoAddress(s, u)
	}
	if err := checkFile(path.Base(u.Path)); err != nil {
		return name{}, invalid("%.200q is not the address of a model: %v", s, err)
	}
	return name{address: u}, nil
}

// parseRepoAddress parses an address of the registry's website: that of a repository, of a
// file's page or of its download.
func parseRepoAddress(s string, u *url.URL) (name, error) {
	parts := strings.Split(strings.Trim(u.Path, "/"), "/")
	if len(parts) < 2 || !validRepoPart(parts[0]) || !validRepoPart(parts[1]) {
		return name{}, invalid("%.200q is not the address of a repository or of a .gguf file in one", s)
	}
	n := name{org: parts[0], repo: parts[1]}
	if len(parts) == 2 {
		return n, nil
	}
	if len(parts) < 5 || parts[2] != "resolve" && parts[2] != "blob" || !quantPart.MatchString(parts[3]) {
		return name{}, invalid("%.200q is not the address of a .gguf file; it looks like https://huggingface.co/org/repo/resolve/main/file.gguf", s)
	}
	n.revision, n.file = parts[3], strings.Join(parts[4:], "/")
	if err := checkFile(n.file); err != nil {
		return name{}, invalid("%.200q is not the address of a model: %v", s, err)
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
	if n.address == nil {
		return n.org + "/" + n.repo
	}
	host := strings.Map(func(r rune) rune {
		if r == '.' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' {
			return r
		}
		return '_'
	}, strings.ToLower(n.address.Hostname()))
	return "from-" + host // the prefix also prevents a hidden folder for a host with a leading dot
}

func (n name) repository() string { return n.org + "/" + n.repo }

func invalid(format string, args ...any) error {
	return &infer.Error{Code: infer.CodeInvalid, Message: fmt.Sprintf(format, args...), Param: "name"}
}

func unusable(format string, args ...any) error {
	return &infer.Error{Code: infer.CodeModelFile, Message: fmt.Sprintf(format, args...)}
}
