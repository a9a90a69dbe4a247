package hub

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"m40-llm/infer/model"
)

const (
	detailsTimeout = 5 * time.Second
	maxDetails     = 1 << 20 // bytes; a chat template is the largest part
)

// unsupported returns an error if the registry says that the models of a repository have an architecture that is not supported, and
// nil if it does not say: Inspect reads the header of the file.
func (p *Puller) unsupported(ctx context.Context, r *registry, n name) error {
	ctx, cancel := context.WithTimeout(ctx, min(detailsTimeout, p.options.Stall))
	defer cancel()
	at := r.address("api", "models", n.org, n.repo)
	if n.revision != "" {
		at = r.address("api", "models", n.org, n.repo, "revision", n.revision)
	}
	at.RawQuery = url.Values{"expand[]": {"gguf"}}.Encode()
	body, _, err := r.fetch(ctx, at.String(), http.Header{"Accept": {"application/json"}}, maxDetails)
	if err != nil {
		return nil
	}
	var details struct {
		GGUF struct {
			Architecture string `json:"architecture"`
		} `json:"gguf"`
	}
	if json.Unmarshal(body, &details) != nil || details.GGUF.Architecture == "" || details.GGUF.Architecture == model.Companion {
		return nil
	}
	return model.CheckArchitecture(details.GGUF.Architecture)
}
