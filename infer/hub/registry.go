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
	"m40-llm/infer/fault"
	"m40-llm/infer/gguf"
)

// Limits of the responses of a registry.
const (
	maxManifest = 1 << 20
	maxListing  = 16 << 20 // bytes of all pages
	maxPages    = 100
	maxSize     = 1 << 46 // bytes of a file
)

// listedFile is a model in the listing of a repository.
type listedFile struct {
	Path  string       // of a split model, that of its first file
	Size  int64        // bytes of all files
	SHA   string       // empty for a split model
	Parts []listedFile // the files of a split model; none for a model in one file
}

// has reports whether the file at path belongs to the model.
func (f listedFile) has(path string) bool {
	return f.Path == path || slices.ContainsFunc(f.Parts, func(part listedFile) bool { return part.Path == path })
}

func (f listedFile) check() error {
	for _, part := range f.Parts {
		if err := part.check(); err != nil {
			return err
		}
	}
	if len(f.Parts) > 0 {
		return nil
	}
	switch {
	case f.Size <= 0 || f.Size > maxSize:
		return fmt.Errorf("the registry says that %q has %d bytes", path.Base(f.Path), f.Size)
	case !digest.MatchString(f.SHA):
		return fmt.Errorf("the registry gives no valid SHA-256 for %q", path.Base(f.Path))
	}
	return nil
}

// manifest names the file that the registry chooses for a tag.
type manifest struct {
	GGUFFile *struct {
		Name string `json:"rfilename"`
		Size int64  `json:"size"`
		LFS  struct {
			SHA256 string `json:"sha256"`
		} `json:"lfs"`
	} `json:"ggufFile"`
}

// parseManifest returns the model file of a manifest; ok is false if it has none or a split
// one.
func parseManifest(data []byte) (f listedFile, ok bool, err error) {
	var m manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return listedFile{}, false, errors.New("the registry's manifest is not valid JSON")
	}
	if m.GGUFFile == nil {
		return listedFile{}, false, nil
	}
	f = listedFile{Path: m.GGUFFile.Name, Size: m.GGUFFile.Size, SHA: m.GGUFFile.LFS.SHA256}
	if len(gguf.Parts(f.Path)) > 1 {
		return listedFile{}, false, nil // the listing has the other files
	}
	if err := checkFile(f.Path); err != nil {
		return listedFile{}, false, fmt.Errorf("the registry's manifest does not name a model: %w", err)
	}
	return f, true, f.check()
}

// parseListing returns the model files on one page of a listing, those of split models one by one, and the companion files.
func parseListing(data []byte) (files, companions []listedFile, err error) {
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
		return nil, nil, errors.New("the registry's listing is not valid JSON")
	}
	for _, e := range entries {
		base := strings.ToLower(path.Base(e.Path))
		switch {
		case e.Type != "file" || !strings.HasSuffix(base, ".gguf") || strings.Contains(base, "imatrix"):
		case checkFile(e.Path) == nil:
			f := listedFile{Path: e.Path, Size: e.Size}
			if e.LFS != nil {
				f.SHA = e.LFS.OID
				if e.LFS.Size > 0 {
					f.Size = e.LFS.Size
				}
			}
			if _, ok := companionStem(base); ok {
				companions = append(companions, f)
			} else {
				files = append(files, f)
			}
		}
	}
	return files, companions, nil
}

// joinParts joins the files of each split model into one entry, in the place of its first file. It
// leaves out split models of which files are missing.
func joinParts(files []listedFile) (models []listedFile) {
	type split struct {
		name  string
		count int
	}
	parts := map[split]map[int]listedFile{} // by number
	for _, f := range files {
		if name, part, count, ok := gguf.PartName(f.Path); ok {
			key := split{name, count}
			if parts[key] == nil {
				parts[key] = map[int]listedFile{}
			}
			parts[key][part] = f
		}
	}
	for _, f := range files {
		name, part, count, ok := gguf.PartName(f.Path)
		switch {
		case !ok || count == 1:
			models = append(models, f)
		case part == 1 && len(parts[split{name, count}]) == count:
			models = append(models, joined(parts[split{name, count}]))
		}
	}
	return models
}

// joined returns the split model with these files, by number from 1.
func joined(parts map[int]listedFile) listedFile {
	model := listedFile{Path: parts[1].Path}
	for i := range len(parts) {
		part := parts[i+1]
		model.Parts, model.Size = append(model.Parts, part), model.Size+part.Size
	}
	return model
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

// registry requests manifests and listings of repositories.
type registry struct {
	*client
	try func(ctx context.Context, ask func(context.Context) error) error // retries ask

	listed     bool
	companions []listedFile // of the repository, once it is listed
}

// address appends elem, each escaped as one path element, to the endpoint.
func (r registry) address(elem ...string) *url.URL { return join(r.endpoint, elem...) }

func join(endpoint *url.URL, elem ...string) *url.URL {
	for i := range elem {
		elem[i] = url.PathEscape(elem[i])
	}
	return endpoint.JoinPath(elem...)
}

// fileAddress returns the download address of a file of a repository.
func fileAddress(endpoint *url.URL, n name, file string) *url.URL {
	return join(endpoint, append([]string{n.org, n.repo, "resolve", n.revisionOrMain()}, strings.Split(file, "/")...)...)
}

// registryChoice returns the file that the registry chooses for n; ok is false if it has
// none.
func (r registry) registryChoice(ctx context.Context, n name) (f listedFile, ok bool, err error) {
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
		return listedFile{}, false, nil // an unknown tag; the listing says more
	}
	if err != nil {
		return listedFile{}, false, r.explain(n, err)
	}
	return parseManifest(body)
}

// companionOf returns the file with which a model of the repository reads pictures; ok is false if there is none.
func (r *registry) companionOf(ctx context.Context, n name, model string) (f listedFile, ok bool) {
	if !r.listed {
		_, _ = r.list(ctx, n) // a registry that names its files in no list has no companions
	}
	names := make([]string, len(r.companions))
	for i, f := range r.companions {
		names[i] = path.Base(f.Path)
	}
	best := bestCompanion(path.Base(model), names)
	if best < 0 || r.companions[best].check() != nil {
		return listedFile{}, false
	}
	return r.companions[best], true
}

// list returns the models of a repository.
func (r *registry) list(ctx context.Context, n name) ([]listedFile, error) {
	var files, companions []listedFile
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
			return nil, r.explain(n, err)
		}
		found, foundCompanions, err := parseListing(body)
		if err != nil {
			return nil, err
		}
		files, companions, left = append(files, found...), append(companions, foundCompanions...), left-int64(len(body))
		link := nextPage(header)
		if link == "" {
			r.listed, r.companions = true, companions
			return joinParts(files), nil
		}
		next, err := at.Parse(link)
		if err != nil || next.Scheme != at.Scheme || next.Host != at.Host {
			return nil, permanent("the listing of %s continues on another host", n.repository())
		}
		at = next
	}
	return nil, permanent("the listing of %s has more than %d pages", n.repository(), maxPages)
}

func (n name) revisionOrMain() string {
	if n.revision == "" {
		return "main"
	}
	return n.revision
}

// explain turns an error of the registry into one that says what the user can do.
func (r registry) explain(n name, err error) error {
	var status *statusError
	if !errors.As(err, &status) {
		return fmt.Errorf("failed to look up %s: %w", n.repository(), err)
	}
	denied := status.status == http.StatusUnauthorized || status.status == http.StatusForbidden
	switch {
	case status.code == "GatedRepo":
		return nameNotFound("%s requires consent: accept its terms at %s, then set HF_TOKEN in the environment to a token of your account", n.repository(), r.address(n.org, n.repo))
	case status.code == "RepoNotFound" || status.code == "" && (denied || status.status == http.StatusNotFound):
		return nameNotFound("the repository %s does not exist at %s, or is private: check the name, or set HF_TOKEN in the environment to a token that may read it", n.repository(), r.endpoint.Hostname())
	case status.code == "RevisionNotFound":
		return nameNotFound("the repository %s has no revision %q", n.repository(), n.revisionOrMain())
	case status.code == "EntryNotFound":
		return nameNotFound("the repository %s has no file %q", n.repository(), n.file)
	case denied:
		return nameNotFound("the registry denied access to %s (status %d): check HF_TOKEN in the environment", n.repository(), status.status)
	case status.status == http.StatusTooManyRequests:
		return fmt.Errorf("the registry limits requests at the moment (status 429); try again later, or set HF_TOKEN in the environment")
	}
	return fmt.Errorf("failed to look up %s: %w", n.repository(), err)
}

func nameNotFound(format string, args ...any) error {
	return &fault.Error{Code: fault.CodeNotFound, Message: fmt.Sprintf(format, args...), Param: "name"}
}

// choice is the chosen file with the Notice, Problem and Works of its infer.Download.
type choice struct {
	listedFile
	notice    string
	problem   string
	supported []string
	choices   []infer.Quantisation
}

// choose returns the file of a repository that n names. Without compares it reads no header to compare quantisations.
func (p *Puller) choose(ctx context.Context, r *registry, n name, compares bool) (choice, error) {
	if n.file == "" && n.quant == "" && p.hub.machine != nil && compares {
		files, err := r.list(ctx, n)
		if err != nil {
			return choice{}, err
		}
		if choices, f, why := p.compare(ctx, r.client, n, files); len(choices) > 0 {
			return p.withProblem(choice{listedFile: f, notice: why, choices: choices}, files), nil
		}
	}
	if n.file == "" {
		f, ok, err := r.registryChoice(ctx, n)
		if err != nil {
			return choice{}, err
		}
		if ok && supportOf(quantOf(f.Path), p.hub.types) == supported {
			return choice{listedFile: f}, nil
		}
		files, err := r.list(ctx, n)
		if err != nil {
			return choice{}, err
		}
		return p.chooseListed(n, f, files)
	}
	files, err := r.list(ctx, n)
	if err != nil {
		return choice{}, err
	}
	i := slices.IndexFunc(files, func(f listedFile) bool { return f.has(n.file) })
	if i < 0 {
		return choice{}, nameNotFound("the repository %s has no file %q; it has %s", n.repository(), n.file, fileNames(files))
	}
	return p.withProblem(choice{listedFile: files[i]}, files), files[i].check()
}

// chooseListed chooses among the files of a repository. first is the registry's choice, with
// an empty path if it has none.
func (p *Puller) chooseListed(n name, first listedFile, files []listedFile) (choice, error) {
	var matching []listedFile
	for _, f := range files {
		if n.quant != "" && isQuant(f.Path, n.quant) {
			matching = append(matching, f)
		}
	}
	quants := strings.Join(quantsOf(files, nil), ", ")
	switch {
	case len(files) == 0 && first.Path == "":
		return choice{}, nameNotFound("the repository %s has no .gguf files; choose one with GGUF in its name", n.repository())
	case n.quant == "":
		return p.chooseAnyQuant(first, files)
	case first.Path != "":
		return p.withProblem(choice{listedFile: first}, files), nil
	case len(matching) == 1:
		return p.withProblem(choice{listedFile: matching[0]}, files), matching[0].check()
	case len(matching) > 1:
		return choice{}, invalidName("%s has %d files of the quantisation %s: pull one by its address, such as %s", n.repository(), len(matching), n.quant,
			fileAddress(p.endpoint, n, matching[0].Path))
	}
	return choice{}, nameNotFound("%s has no quantisation %s; it has %s", n.repository(), n.quant, quants)
}

// chooseAnyQuant chooses the best supported file, unless that of the registry is as well
// supported.
func (p *Puller) chooseAnyQuant(first listedFile, files []listedFile) (choice, error) {
	f, ok := bestFile(files, p.hub.types)
	switch {
	case !ok && first.Path == "":
		return p.withProblem(choice{listedFile: files[0]}, files), files[0].check()
	case !ok || first.Path != "" && supportOf(quantOf(first.Path), p.hub.types) >= supportOf(quantOf(f.Path), p.hub.types):
		return p.withProblem(choice{listedFile: first}, files), nil
	}
	c := choice{listedFile: f}
	if usual := quantOf(first.Path); usual != "" && usual != quantOf(f.Path) {
		c.notice = fmt.Sprintf("%s was chosen because the usual %s is not supported yet", quantOf(f.Path), usual)
	}
	return c, f.check()
}

// withProblem sets the problem of c if its quantisation is not supported.
func (p *Puller) withProblem(c choice, files []listedFile) choice {
	quant := quantOf(c.Path)
	if supportOf(quant, p.hub.types) != unsupported {
		return c
	}
	c.supported = quantsOf(files, p.hub.types)
	c.problem = fmt.Sprintf("weights in %s are not supported yet", quant)
	return c
}

// fileNames returns the names of up to ten files.
func fileNames(files []listedFile) string {
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
