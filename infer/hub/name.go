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
)

// name is a parsed name of something to pull: a repository with the wanted
// quantisation or file, or an address outside of the registry.
type name struct {
	org, repo string
	quant     string // empty: any
	revision  string // empty: main
	file      string // path in the repository; empty: to be chosen

	address *url.URL // nil for a repository
}

var (
	repoPart  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$`)
	quantPart = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	splitFile = regexp.MustCompile(`-[0-9]{5}-of-[0-9]{5}\.gguf$`)
	digest    = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// registryHosts are the names of the default registry, which names and addresses may
// begin with.
var registryHosts = map[string]bool{"hf.co": true, "huggingface.co": true, "www.huggingface.co": true}

const (
	maxName     = 2048
	nameExample = "such as Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q8_0"
)

// parseName reads org/repo[:quant], the same behind hf.co/, or the address of a file.
func parseName(s string) (name, error) {
	switch {
	case s == "":
		return name{}, invalid("say what to pull: org/repo:quant, %s, or the https address of a .gguf file", nameExample)
	case len(s) > maxName || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl):
		return name{}, invalid("the name %.80q is too long or has characters that no name has", s)
	case strings.Contains(s, "://"):
		return parseAddress(s)
	}
	rest, quant, hasQuant := strings.Cut(s, ":")
	if host, path, ok := strings.Cut(rest, "/"); ok && registryHosts[strings.ToLower(host)] {
		rest = path
	}
	parts := strings.Split(rest, "/")
	if len(parts) == 1 || isOllamaHost(parts[0]) {
		return name{}, invalid("%q is a name of the Ollama library, which cannot be pulled from yet; take the model from Hugging Face as org/repo:quant, %s", s, nameExample)
	}
	if len(parts) != 2 || !validRepoPart(parts[0]) || !validRepoPart(parts[1]) {
		return name{}, invalid("%q is not org/repo or org/repo:quant, %s, and no address that begins with https://", s, nameExample)
	}
	if hasQuant && !quantPart.MatchString(quant) {
		return name{}, invalid("%q is no quantisation; ask for org/repo:quant, %s", quant, nameExample)
	}
	return name{org: parts[0], repo: parts[1], quant: quant}, nil
}

func isOllamaHost(s string) bool {
	return strings.EqualFold(s, "ollama.com") || strings.EqualFold(s, "registry.ollama.ai")
}

func validRepoPart(s string) bool {
	return repoPart.MatchString(s) && !strings.Contains(s, "..") && !strings.HasSuffix(s, ".")
}

// parseAddress reads the address of a file, or of a repository's page.
func parseAddress(s string) (name, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return name{}, invalid("%.200q is not an address", s)
	case u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.Opaque != "":
		return name{}, invalid("%.200q is not an address that begins with https://", s)
	case u.User != nil:
		return name{}, invalid("an address must not hold a password; set HF_TOKEN in the environment instead")
	case isOllamaHost(u.Hostname()):
		return name{}, invalid("the Ollama library cannot be pulled from yet; take the model from Hugging Face as org/repo:quant, %s", nameExample)
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

// parseRepoAddress reads an address of the registry's website: that of a repository, or
// of a file as its page or its download link has it.
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

// checkFile reports why file, a path of a server, cannot be a model's. Only its last
// part ever names a file here.
func checkFile(file string) error {
	if len(file) > 1024 || !utf8.ValidString(file) || strings.ContainsFunc(file, func(r rune) bool { return !unicode.IsPrint(r) || r == '\\' }) {
		return fmt.Errorf("its file name %.80q has characters that are not allowed", file)
	}
	for _, part := range strings.Split(file, "/") {
		if part == "" || part == "." || part == ".." {
			return fmt.Errorf("its file name %.80q is no path inside a repository", file)
		}
	}
	base := path.Base(file)
	switch {
	case len(base) > 200:
		return fmt.Errorf("its file name %.80q is too long", base)
	case strings.HasPrefix(base, ".") || !strings.HasSuffix(strings.ToLower(base), ".gguf"):
		return fmt.Errorf("its file name %.80q does not end in .gguf", base)
	case splitFile.MatchString(strings.ToLower(base)):
		return fmt.Errorf("%.120q is one part of a split model, which cannot be pulled yet; choose a quantisation that is one file", base)
	}
	return nil
}

// folder returns where the files of n go in the models folder.
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
	return "from-" + host // no host can hide the folder by a leading dot
}

func (n name) repository() string { return n.org + "/" + n.repo }

func invalid(format string, args ...any) error {
	return &infer.Error{Code: infer.CodeInvalid, Message: fmt.Sprintf(format, args...), Param: "name"}
}

func unusable(format string, args ...any) error {
	return &infer.Error{Code: infer.CodeModelFile, Message: fmt.Sprintf(format, args...)}
}
