package hub

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

func TestFetch_OnlyPublicAddressesAreRequested(t *testing.T) {
	asked := 0
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer server.Close()
	f := NewFetcher("test")
	for name, tc := range map[string]struct{ address, want string }{
		"this machine":              {server.URL + "/a.png", "is not on the public internet"},
		"a private network":         {"https://10.0.0.1/a.png", "10.0.0.1:443 is not on the public internet"},
		"an address of the link":    {"https://169.254.169.254/latest/", "is not on the public internet"},
		"IPv4 in IPv6":              {"https://[::ffff:127.0.0.1]/a.png", "is not on the public internet"},
		"a number as an address":    {"https://2130706433/a.png", ""},
		"what is not encrypted":     {"http://example.com/a.png", "does not begin with https://"},
		"another scheme":            {"file:///etc/passwd", "not a host"},
		"a name and a password":     {"https://anna:secret@example.com/a.png", "not a host"},
		"what is no address at all": {"https://%zz", "not an address"},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := f.Fetch(t.Context(), tc.address, 1<<20)
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "HF_ENDPOINT") || strings.Contains(err.Error(), "secret") {
				t.Errorf("got %d bytes, %v, want an error with %q", len(data), err, tc.want)
			}
		})
	}
	if asked > 0 {
		t.Errorf("a server of this machine was asked %d times", asked)
	}
}

func TestFetch_BytesAndRedirectsAreLimited(t *testing.T) {
	var server *httptest.Server
	server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/picture":
			_, _ = w.Write([]byte("twelve bytes"))
		case "/moved":
			http.Redirect(w, r, "/picture", http.StatusFound)
		case "/away":
			http.Redirect(w, r, "https://10.0.0.1/picture", http.StatusFound)
		case "/plain":
			http.Redirect(w, r, strings.Replace(server.URL, "https", "http", 1)+"/picture", http.StatusFound)
		case "/round":
			http.Redirect(w, r, "/round", http.StatusFound)
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	// The test's server is on this machine, which a Fetcher never asks: its client alone trusts it.
	f := &Fetcher{newClient(&url.URL{}, []string{"127.0.0.1"}, "", "test", time.Minute, server.Client().Transport.(*http.Transport).TLSClientConfig, func(*http.Request) (*url.URL, error) { return nil, nil })}
	for name, tc := range map[string]struct {
		path string
		most int64
		want string // of the error; empty: there is none
	}{
		"a file":                           {"/picture", 12, ""},
		"a file that moved":                {"/moved", 12, ""},
		"a file of a byte more":            {"/picture", 11, "larger than 11 bytes"},
		"a redirect to a private network":  {"/away", 12, "not on the public internet"},
		"a redirect that is not encrypted": {"/plain", 12, "not encrypted"},
		"redirects without an end":         {"/round", 12, "redirects more than"},
		"a file that is not there":         {"/gone", 12, "status 404"},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := f.Fetch(t.Context(), server.URL+tc.path, tc.most)
			if tc.want == "" && (err != nil || string(data) != "twelve bytes") || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %q, %v, want the error %q", data, err, tc.want)
			}
		})
	}
}
