package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"m40-llm/infer"
	"m40-llm/infer/units"
)

// layer is a file of a model in the Ollama library.
type layer struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"` // sha256: and hexadecimal
	Size      int64  `json:"size"`
}

const (
	manifestType = "application/vnd.docker.distribution.manifest.v2+json"
	layerPrefix  = "application/vnd.ollama.image."
)

// kind returns what the layer is: model, template, params, system, license, projector, adapter.
func (l layer) kind() string {
	kind, _, _ := strings.Cut(strings.TrimPrefix(l.MediaType, layerPrefix), ";")
	return kind
}

// sha256 returns the digest in hexadecimal, or "" if it is not one.
func (l layer) sha256() string {
	sum, ok := strings.CutPrefix(l.Digest, "sha256:")
	if !ok || !digest.MatchString(sum) {
		return ""
	}
	return sum
}

// parseLibraryManifest returns the layers of a model, with exactly one of the kind model.
func parseLibraryManifest(data []byte) ([]layer, error) {
	var m struct {
		Layers []layer `json:"layers"`
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, errors.New("the library's manifest is not valid JSON")
	}
	models := 0
	for _, l := range m.Layers {
		if l.kind() != "model" {
			continue
		}
		models++
		switch {
		case l.Size <= 0 || l.Size > maxSize:
			return nil, fmt.Errorf("the library says that the model has %d bytes", l.Size)
		case l.sha256() == "":
			return nil, fmt.Errorf("the library gives no valid SHA-256 for the model")
		}
	}
	if models != 1 {
		return nil, fmt.Errorf("the library's manifest has %d model files, not one: it is not a GGUF model, or one that runs elsewhere", models)
	}
	return m.Layers, nil
}

// ignoredLayers maps the kinds of layers that are not used to what people call them.
var ignoredLayers = []struct{ kind, name string }{
	{"template", "template"}, {"system", "system prompt"}, {"params", "parameters"}, {"messages", "messages"}, {"projector", "part for images"},
}

// libraryNotice says which layers are not used; "" if none.
func libraryNotice(layers []layer) string {
	var ignored []string
	for _, i := range ignoredLayers {
		if slices.ContainsFunc(layers, func(l layer) bool { return l.kind() == i.kind }) {
			ignored = append(ignored, i.name)
		}
	}
	if len(ignored) == 0 {
		return ""
	}
	return fmt.Sprintf("what the library has in addition to the model is not used: %s; the chat template and the settings in the model's own file are", units.List(ignored))
}

// resolveLibrary looks up a model of the Ollama library.
func (p *Puller) resolveLibrary(ctx context.Context, c *client, n name) (infer.Download, error) {
	var body []byte
	at := join(p.library, "v2", n.org, n.repo, "manifests", n.tag).String()
	err := p.tryLookup(ctx, func(ctx context.Context) (err error) {
		body, _, err = c.fetch(ctx, at, http.Header{"Accept": {manifestType}}, maxManifest)
		return err
	})
	if err != nil {
		return infer.Download{}, p.explainLibrary(n, err)
	}
	layers, err := parseLibraryManifest(body)
	if err != nil {
		return infer.Download{}, fmt.Errorf("failed to look up %s: %w", n, err)
	}
	model := layers[slices.IndexFunc(layers, func(l layer) bool { return l.kind() == "model" })]
	d := infer.Download{
		File:   n.folder() + "/" + n.libraryFile(),
		Source: p.blobAddress(n, model.sha256()),
		Size:   model.Size,
		SHA256: model.sha256(),
		Quant:  quantOf(n.libraryFile()),
		Notice: libraryNotice(layers),
	}
	if slices.ContainsFunc(layers, func(l layer) bool { return l.kind() == "adapter" }) {
		d.Problem = "it consists of a model and an adapter, which is not supported yet"
	}
	return d, nil
}

// blobAddress returns the address of a file of the library with that SHA-256.
func (p *Puller) blobAddress(n name, sum string) string {
	return join(p.library, "v2", n.org, n.repo, "blobs").String() + "/sha256:" + sum
}

// explainLibrary turns an error of the library into one that says what the user can do.
func (p *Puller) explainLibrary(n name, err error) error {
	status := (*statusError)(nil)
	if !errors.As(err, &status) {
		return fmt.Errorf("failed to look up %s: %w", n, err)
	}
	switch status.status {
	case http.StatusNotFound:
		if n.org == defaultNamespace {
			return nameNotFound("the Ollama library has no model %s with the tag %s: check both, or pull from Hugging Face as org/repo:quant, %s", n.repo, n.tag, nameExample)
		}
		return nameNotFound("the Ollama library has no model %s of %s with the tag %s: check the name", n.repo, n.org, n.tag)
	case http.StatusUnauthorized, http.StatusForbidden:
		return nameNotFound("%s is not public at %s, and logging in there is not supported", n, p.library.Hostname())
	case http.StatusTooManyRequests:
		return errors.New("the Ollama library limits requests at the moment (status 429); try again later")
	}
	return fmt.Errorf("failed to look up %s: %w", n, err)
}
