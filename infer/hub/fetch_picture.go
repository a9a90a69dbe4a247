package hub

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Fetcher fetches pictures that requests name by their addresses. Only https addresses of public hosts are requested, also
// after redirects, as by a Puller; but no host is an exception.
type Fetcher struct{ client *client }

// NewFetcher returns a Fetcher of this program.
func NewFetcher(version string) *Fetcher {
	return &Fetcher{newClient(&url.URL{}, nil, "", "m40-llm/"+version, 15*time.Second, nil, http.ProxyFromEnvironment)}
}

// Fetch returns the file at an address, which must have at most most bytes.
func (f *Fetcher) Fetch(ctx context.Context, address string, most int64) ([]byte, error) {
	data, _, err := f.client.fetch(ctx, address, nil, most)
	if refused := (*permanentError)(nil); errors.As(err, &refused) {
		reason, _, _ := strings.Cut(refused.reason, ";") // what follows names the exceptions of a Puller
		return nil, errors.New(reason)
	}
	return data, err
}
