package hub

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"m40-llm/infer/hub/hubtest"
)

// through makes a puller use the proxy at address.
func through(t *testing.T, address string) func(*PullOptions) {
	t.Helper()
	proxy, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return func(o *PullOptions) {
		o.Proxy = func(*http.Request) (*url.URL, error) { return proxy, nil }
	}
}

func TestModelsArePulledThroughAProxy(t *testing.T) {
	registry := hubtest.New(t, map[string][]byte{modelFile: testModel}, "")
	registry.CDNHost = "registry.example:8081"
	var mu sync.Mutex
	passed := map[string]int{} // requests by host
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to := map[string]string{"registry.example": registry.API.URL, registry.CDNHost: registry.CDN.URL}[r.URL.Host]
		mu.Lock()
		passed[r.URL.Host]++
		mu.Unlock()
		at, err := url.Parse(to)
		if err != nil || to == "" {
			t.Errorf("%s was asked for, %v", r.URL, err)
		}
		httputil.NewSingleHostReverseProxy(at).ServeHTTP(w, r)
	}))
	defer proxy.Close()
	dir := t.TempDir()
	p := newPuller(t, dir, "http://registry.example", through(t, proxy.URL))
	if err := p.pull(t.Context(), "org/repo", false); err != nil {
		t.Fatal(err)
	}
	if files := filesIn(t, dir); len(passed) != 2 || len(files) != 1 {
		t.Errorf("the requests %v went through the proxy, and the folder has %q", passed, files)
	}
}

func TestErrorsOfAProxyNameIt(t *testing.T) {
	status := func(code int) string {
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(code) }))
		t.Cleanup(proxy.Close)
		return proxy.URL
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	for _, c := range []struct {
		name, proxy, pull, want string
	}{
		{"a proxy that forbids the host", status(http.StatusForbidden), "org/repo", "PROXY refuses to connect to registry.example with status 403"},
		{"a proxy that cannot reach the host now", status(http.StatusServiceUnavailable), "org/repo", "failed to reach registry.example through the proxy PROXY: it answers with status 503"},
		{"a proxy that wants a password", status(http.StatusProxyAuthRequired), "org/repo", "PROXY asks for a user and a password; set HTTPS_PROXY"},
		{"a proxy that does not answer", gone.URL, "org/repo", "failed to reach registry.example through the proxy PROXY"},
		{"a proxy without an address", "http://proxy.invalid:3128", "org/repo", "the proxy PROXY"},
		{"an address with two schemes, as one that cannot be parsed gets", "http://http:", "org/repo", "is not the address of a proxy; write it as http://HOST:PORT"},
		{"an address without a host", "http://:3128", "org/repo", "is not the address of a proxy"},
		{"a private address behind a proxy", status(http.StatusOK), "https://10.0.0.1/a/b.gguf", "10.0.0.1:443 is not on the public internet"},
		{"a password in the address of the proxy is not repeated", strings.Replace(gone.URL, "http://", "http://user:secret@", 1), "org/repo", "through the proxy PROXY"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPuller(t, t.TempDir(), "https://registry.example", through(t, c.proxy))
			err := p.pull(t.Context(), c.pull, false)
			address := c.proxy[strings.LastIndexAny(c.proxy, "/@")+1:]
			if want := strings.Replace(c.want, "PROXY", address, 1); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("got %v, want an error with %q", err, want)
			}
		})
	}
}
