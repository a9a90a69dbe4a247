package cli

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/units"
)

// Loaded are the models that a server has loaded, and who uses them.
type Loaded struct {
	Status  infer.Status `json:"status"`
	Answers []struct {
		Person string `json:"person"`
		Model  string `json:"model,omitempty"`
		Key    string `json:"key,omitempty"`
		State  string `json:"state"`
	} `json:"answers"`
	Others struct {
		Running int `json:"running"`
		Waiting int `json:"waiting"`
	} `json:"others"` // answers of other people, for who may not see more
}

// AskLoaded asks the server on this machine that listens on addr, with or without TLS. key is its
// API key; empty: none.
func AskLoaded(ctx context.Context, addr, key string) (l Loaded, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	url := runningAt(ctx, addr)
	if url == "" {
		return l, fmt.Errorf("no m40-llm listens on %s; start one with m40-llm serve, or give its address with --addr", reachable(addr))
	}
	// The certificate may be self-signed, and the key must not go to another machine.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: isLoopbackURL(url)}}
	defer transport.CloseIdleConnections()
	for path, into := range map[string]any{"/v1/status": &l.Status, "/v1/activity": &l} {
		if err := getJSON(ctx, transport, url+path, key, into); err != nil {
			return l, fmt.Errorf("failed to ask %s: %w", url, err)
		}
	}
	return l, nil
}

func isLoopbackURL(url string) bool {
	_, rest, _ := strings.Cut(url, "://")
	host := rest[:max(0, strings.LastIndexByte(rest, ':'))]
	return isLoopback(strings.Trim(host, "[]"))
}

// getJSON decodes the response of a GET request, of a megabyte at most.
func getJSON(ctx context.Context, transport *http.Transport, url, key string, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	response, err := transport.RoundTrip(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
		return json.NewDecoder(io.LimitReader(response.Body, 1<<20)).Decode(into)
	case http.StatusUnauthorized, http.StatusForbidden:
		return errors.New("it requires its key: give it with --api-key, or in M40_LLM_API_KEY")
	}
	return fmt.Errorf("it answered with status %d", response.StatusCode)
}

// PrintLoaded prints the models that are loaded as a table, or as a JSON object.
func PrintLoaded(w io.Writer, l Loaded, now time.Time, asJSON bool) error {
	if asJSON {
		return writeJSON(w, l)
	}
	s := l.Status
	rows := [][]string{{"MODEL", "STATE", "SIZE", "ON", "CONTEXT", "CACHE", "USED BY", "UNTIL"}}
	loaded := s.Loaded()
	if len(loaded) == 0 && s.Model.Name != "" {
		loaded = []infer.Status{s}
	}
	for _, s := range loaded {
		context, cache := "", ""
		if s.State == infer.StateReady {
			context = fmt.Sprint(s.ContextLength)
			cache = fmt.Sprintf("%s, %s of %s", s.CacheType, units.ByteSize(s.Cache.Used), units.ByteSize(s.Cache.Planned))
		}
		rows = append(rows, []string{Line(s.Model.Name), string(s.State), units.ByteSize(s.Model.Size), Line(s.Device.Name), context, cache, l.users(s.Model.Name), until(s, now)})
	}
	return writeColumns(w, rows)
}

// users names the people whose answers a model writes, or who wait for it.
func (l Loaded) users(model string) string {
	var names []string
	for _, a := range l.Answers {
		if a.Model != "" && a.Model != model {
			continue
		}
		name := Line(a.Person)
		if a.Key != "" {
			name += " (" + Line(a.Key) + ")"
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if n := l.Others.Running + l.Others.Waiting; n > 0 {
		names = append(names, fmt.Sprintf("others (%d)", n))
	}
	if len(names) == 0 {
		return "nobody"
	}
	return units.List(names)
}

// until says when the model is unloaded.
func until(s infer.Status, now time.Time) string {
	switch {
	case s.State == infer.StateUnloaded, s.State == infer.StateFailed:
		return ""
	case s.Pinned:
		return "pinned"
	case s.UnloadUnix > 0:
		at := time.Unix(s.UnloadUnix, 0)
		return fmt.Sprintf("%s, in %s", at.Format("15:04:05"), units.Roughly(max(0, at.Sub(now).Seconds())))
	case s.KeepAliveS > 0:
		return units.Roughly(s.KeepAliveS) + " after its last answer"
	}
	return "its memory is needed"
}
