package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"m40-llm/infer"
)

// Limits on what a registry may answer.
const (
	maxManifest = 1 << 20
	maxListing  = 16 << 20 // of all pages together
	maxPages    = 100
	maxSize     = 1 << 46 // bytes of a file; more is no file but a mistake
)

// listed is a file as a repository lists it.
type listed struct {
	Path string
	Size int64
	SHA  string
}

func (f listed) check() error {
	switch {
	case f.Size <= 0 || f.Size > maxSize:
		return fmt.Errorf("the registry says that %q has %d bytes", path.Base(f.Path), f.Size)
	case !digest.MatchString(f.SHA):
		return fmt.Errorf("the registry gives no valid SHA-256 for %q", path.Base(f.Path))
	}
	return nil
}

// manifest is the registry's own choice for a tag.
type manifest struct {
	GGUFFile *struct {
		Name string `json:"rfilename"`
		Size int64  `json:"size"`
		LFS  struct {
			SHA256 string `json:"sha256"`
		} `json:"lfs"`
	} `json:"ggufFile"`
}

// parseManifest returns the model file of a manifest, ok false if it has none that can
// be pulled.
func parseManifest(data []byte) (f listed, ok bool, err error) {
	var m manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return listed{}, false, errors.New("the registry's manifest is not valid JSON")
	}
	if m.GGUFFile == nil {
		return listed{}, false, nil
	}
	f = listed{m.GGUFFile.Name, m.GGUFFile.Size, m.GGUFFile.LFS.SHA256}
	if err := checkFile(f.Path); err != nil {
		if splitFile.MatchString(strings.ToLower(f.Path)) {
			return listed{}, false, nil // the listing has others, or says so
		}
		return listed{}, false, fmt.Errorf("the registry's manifest names no model: %w", err)
	}
	return f, true, f.check()
}

// parseListing returns the model files of one page of a listing, and how many are
// parts of split ones.
func parseListing(data []byte) (files []listed, split int, err error) {
	var entries []struct {
		Type string `json:"type"`
		Path string `json:"path"`
		Size int64  `json:"size"`
		LFS  *struct {
			OID  string `json:"oid"`
			Size int64  `json:"size"`
		} `json:"lfs"`
	}
	if err := json.Unmarshal(data, &entries); err != nil {
		return nil, 0, errors.New("the registry's listing is not valid JSON")
	}
	for _, e := range entries {
		base := strings.ToLower(path.Base(e.Path))
		switch {
		case e.Type != "file" || !strings.HasSuffix(base, ".gguf") || strings.Contains(base, "mmproj") || strings.Contains(base, "imatrix"):
		case splitFile.MatchString(base):
			split++
		case checkFile(e.Path) == nil:
			f := listed{Path: e.Path, Size: e.Size}
			if e.LFS != nil {
				f.SHA = e.LFS.OID
				if e.LFS.Size > 0 {
					f.Size = e.LFS.Size
				}
			}
			files = append(files, f)
		}
	}
	return files, split, nil
}

// nextPage returns the address in a Link header that continues a listing, or "".
func nextPage(header http.Header) string {
	for _, line := range header.Values("Link") {
		for _, link := range strings.Split(line, ",") {
			target, params, ok := strings.Cut(strings.TrimSpace(link), ">")
			if ok && strings.HasPrefix(target, "<") && strings.Contains(strings.ReplaceAll(params, " ", ""), `rel="next"`) {
				return target[1:]
			}
		}
	}
	return ""
}

// registry is what answers for repositories.
type registry struct {
	*client
	try func(ctx context.Context, ask func(context.Context) error) error // retries ask
}

// address joins elem, each one part of a path, to the endpoint.
func (r registry) address(elem ...string) *url.URL { return join(r.endpoint, elem...) }

func join(endpoint *url.URL, elem ...string) *url.URL {
	for i := range elem {
		elem[i] = url.PathEscape(elem[i])
	}
	return endpoint.JoinPath(elem...)
}

// fileAddress is where the bytes of a file of a repository are asked for.
func fileAddress(endpoint *url.URL, n name, file string) *url.URL {
	return join(endpoint, append([]string{n.org, n.repo, "resolve", n.revisionOrMain()}, strings.Split(file, "/")...)...)
}

// chosen asks for the registry's own choice of a file. ok is false if it has none.
func (r registry) chosen(ctx context.Context, n name) (f listed, ok bool, err error) {
	tag := n.quant
	if tag == "" {
		tag = "latest"
	}
	var body []byte
	err = r.try(ctx, func(ctx context.Context) (err error) {
		body, _, err = r.fetch(ctx, r.address("v2", n.org, n.repo, "manifests", tag).String(), http.Header{"Accept": {"application/json"}}, maxManifest)
		return err
	})
	var status *statusError
	if errors.As(err, &status) && status.status != http.StatusUnauthorized && status.status != http.StatusForbidden && status.status < 429 {
		return listed{}, false, nil // it knows no such tag; the listing tells more
	}
	if err != nil {
		return listed{}, false, r.explain(n, err)
	}
	return parseManifest(body)
}

// list returns the model files of a repository, and how many of its files are parts of
// split ones.
func (r registry) list(ctx context.Context, n name) (files []listed, split int, err error) {
	at := r.address("api", "models", n.org, n.repo, "tree", n.revisionOrMain())
	at.RawQuery = "recursive=1"
	left := int64(maxListing)
	for range maxPages {
		var body []byte
		var header http.Header
		err := r.try(ctx, func(ctx context.Context) (err error) {
			body, header, err = r.fetch(ctx, at.String(), nil, left)
			return err
		})
		if err != nil {
			return nil, 0, r.explain(n, err)
		}
		found, parts, err := parseListing(body)
		if err != nil {
			return nil, 0, err
		}
		files, split, left = append(files, found...), split+parts, left-int64(len(body))
		link := nextPage(header)
		if link == "" {
			return files, split, nil
		}
		next, err := at.Parse(link)
		if err != nil || next.Scheme != at.Scheme || next.Host != at.Host {
			return nil, 0, refuse("the listing of %s goes on at another host", n.repository())
		}
		at = next
	}
	return nil, 0, refuse("the listing of %s has more than %d pages", n.repository(), maxPages)
}

func (n name) revisionOrMain() string {
	if n.revision == "" {
		return "main"
	}
	return n.revision
}

// explain turns the registry's answer into what a person can do about it.
func (r registry) explain(n name, err error) error {
	var status *statusError
	if !errors.As(err, &status) {
		return fmt.Errorf("failed to look up %s: %w", n.repository(), err)
	}
	denied := status.status == http.StatusUnauthorized || status.status == http.StatusForbidden
	switch {
	case status.code == "GatedRepo":
		return notPulled("%s asks for consent: accept its terms at %s, then set HF_TOKEN in the environment to a token of your account", n.repository(), r.address(n.org, n.repo))
	case status.code == "RepoNotFound" || status.code == "" && (denied || status.status == http.StatusNotFound):
		return notPulled("there is no repository %s at %s, or it is private: check the name, or set HF_TOKEN in the environment to a token that may read it", n.repository(), r.endpoint.Hostname())
	case status.code == "RevisionNotFound":
		return notPulled("the repository %s has no revision %q", n.repository(), n.revisionOrMain())
	case status.code == "EntryNotFound":
		return notPulled("the repository %s has no file %q", n.repository(), n.file)
	case denied:
		return notPulled("the registry does not let %s be read (status %d): check HF_TOKEN in the environment", n.repository(), status.status)
	case status.status == http.StatusTooManyRequests:
		return fmt.Errorf("the registry answers too many requests at the moment; try again later, or set HF_TOKEN in the environment")
	}
	return fmt.Errorf("failed to look up %s: %w", n.repository(), err)
}

func notPulled(format string, args ...any) error {
	return &infer.Error{Code: infer.CodeNotFound, Message: fmt.Sprintf(format, args...), Param: "name"}
}

// choice is a file and how it came to be chosen.
type choice struct {
	listed
	notice  string
	problem string
	works   []string
}

// choose finds the file of a repository that n asks for.
func (p *Puller) choose(ctx context.Context, r registry, n name) (choice, error) {
	if n.file == "" {
		f, ok, err := r.chosen(ctx, n)
		if err != nil {
			return choice{}, err
		}
		if ok && suits(quantOf(f.Path), p.hub.types) == works {
			return choice{listed: f}, nil
		}
		files, split, err := r.list(ctx, n)
		if err != nil {
			return choice{}, err
		}
		return p.chooseListed(n, f, files, split)
	}
	files, _, err := r.list(ctx, n)
	if err != nil {
		return choice{}, err
	}
	i := slices.IndexFunc(files, func(f listed) bool { return f.Path == n.file })
	if i < 0 {
		return choice{}, notPulled("the repository %s has no file %q; it has %s", n.repository(), n.file, fileNames(files))
	}
	return p.judge(choice{listed: files[i]}, files), files[i].check()
}

// chooseListed chooses among the files of a repository. first is the registry's own
// choice, without a path if it made none.
func (p *Puller) chooseListed(n name, first listed, files []listed, split int) (choice, error) {
	var matching []listed
	for _, f := range files {
		if n.quant != "" && isQuant(f.Path, n.quant) {
			matching = append(matching, f)
		}
	}
	quants := strings.Join(quantsOf(files, nil), ", ")
	switch {
	case len(files) == 0 && first.Path == "" && split > 0:
		return choice{}, unusable("all models of %s are split into several files, which cannot be pulled yet; look for a repository with single files", n.repository())
	case len(files) == 0 && first.Path == "":
		return choice{}, notPulled("the repository %s has no .gguf files; look for one with GGUF in its name", n.repository())
	case n.quant == "":
		return p.chooseFreely(first, files)
	case first.Path != "":
		return p.judge(choice{listed: first}, files), nil
	case len(matching) == 1:
		return p.judge(choice{listed: matching[0]}, files), matching[0].check()
	case len(matching) > 1:
		return choice{}, invalid("%s has %d files of the quantisation %s: pull one by its address, such as %s", n.repository(), len(matching), n.quant,
			fileAddress(p.endpoint, n, matching[0].Path))
	case split > 0:
		return choice{}, notPulled("%s has no %s in one file, and files in parts cannot be pulled yet; single files are there of %s", n.repository(), n.quant, quants)
	}
	return choice{}, notPulled("%s has no quantisation %s; it has %s", n.repository(), n.quant, quants)
}

// chooseFreely takes what can be computed with, though the registry would choose first.
func (p *Puller) chooseFreely(first listed, files []listed) (choice, error) {
	f, ok := best(files, p.hub.types)
	switch {
	case !ok && first.Path == "":
		return p.judge(choice{listed: files[0]}, files), files[0].check()
	case !ok || first.Path != "" && suits(quantOf(first.Path), p.hub.types) >= suits(quantOf(f.Path), p.hub.types):
		return p.judge(choice{listed: first}, files), nil
	}
	c := choice{listed: f}
	if usual := quantOf(first.Path); usual != "" && usual != quantOf(f.Path) {
		c.notice = fmt.Sprintf("%s is chosen because the usual %s cannot be computed with yet", quantOf(f.Path), usual)
	}
	return c, f.check()
}

// judge says so if the file is of a quantisation that cannot be computed with.
func (p *Puller) judge(c choice, files []listed) choice {
	quant := quantOf(c.Path)
	if suits(quant, p.hub.types) != useless {
		return c
	}
	c.works = quantsOf(files, p.hub.types)
	c.problem = fmt.Sprintf("weights in %s cannot be computed with yet", quant)
	return c
}

// fileNames lists files, not too many.
func fileNames(files []listed) string {
	var list []string
	for i, f := range files {
		if i == 10 {
			list = append(list, fmt.Sprintf("and %d more", len(files)-i))
			break
		}
		list = append(list, f.Path)
	}
	if len(list) == 0 {
		return "no .gguf files"
	}
	return strings.Join(list, ", ")
}
