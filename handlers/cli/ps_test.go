package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/device"
)

func TestPrintLoaded(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	status := infer.Status{State: infer.StateReady, Model: infer.ModelInfo{Name: "m\x1b[2J", Size: 2e9}, Device: device.Info{Name: "a GPU"}, ContextLength: 4096,
		CacheType: "f16", Cache: infer.Cache{Used: 1e6, Planned: 5e8}}
	users := Loaded{Status: status}
	users.Status.KeepAliveS = 1800
	users.Answers = append(users.Answers, struct {
		Person string `json:"person"`
		Model  string `json:"model,omitempty"`
		Key    string `json:"key,omitempty"`
		State  string `json:"state"`
	}{"Ann", "", "laptop", "writing"})
	users.Others.Running, users.Others.Waiting = 1, 1
	idle := Loaded{Status: status}
	idle.Status.KeepAliveS, idle.Status.UnloadUnix = 1800, now.Unix()+40
	pinned := status
	pinned.Pinned = true
	several := Loaded{Status: status, Answers: slices.Clone(users.Answers)}
	several.Answers[0].Model = status.Model.Name
	several.Status.Models = []infer.Status{status, {State: infer.StateReady, Model: infer.ModelInfo{Name: "embedder", Size: 1e9}, Device: status.Device, ContextLength: 512}}
	unloaded := Loaded{Status: status}
	unloaded.Status.State = infer.StateUnloaded
	for _, c := range []struct {
		name   string
		loaded Loaded
		want   string
	}{
		{"a model that is used", users, "m      ready  2.0 GB  a GPU  4096     f16, 1.0 MB of 500 MB  Ann (laptop) and others (2)  30 min after its last answer\n"},
		{"a model that is not used", idle, "nobody   " + now.Add(40*time.Second).Format("15:04:05") + ", in 40 s\n"},
		{"a model that stays", Loaded{Status: status}, "nobody   its memory is needed\n"},
		{"a pinned model", Loaded{Status: pinned}, "nobody   pinned\n"},
		{"a model that another one is beside", several, "embedder  ready  1.0 GB  a GPU  512      , 0 B of 0 B           nobody        its memory is needed\n"},
		{"a model that was unloaded", unloaded, " nobody\n"},
		{"no model", Loaded{}, "UNTIL\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			if err := PrintLoaded(&out, c.loaded, now, false); err != nil || !strings.HasSuffix(out.String(), c.want) {
				t.Errorf("wrote\n%s, %v; want\n%s", &out, err, c.want)
			}
		})
	}
}

func TestAskLoaded(t *testing.T) {
	server := httptest.NewTLSServer(withServerName(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/health" && r.Header.Get("Authorization") != "Bearer key":
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/v1/status":
			io.WriteString(w, `{"state":"ready","model":{"name":"m"}}`)
		case r.URL.Path == "/v1/activity":
			io.WriteString(w, `{"answers":[{"person":"Ann"}],"others":{"running":2}}`)
		}
	})))
	defer server.Close()
	addr := server.Listener.Addr().String()
	l, err := AskLoaded(t.Context(), addr, "key")
	if err != nil || l.Status.Model.Name != "m" || len(l.Answers) != 1 || l.Others.Running != 2 {
		t.Errorf("got %+v, %v", l, err)
	}
	if _, err := AskLoaded(t.Context(), addr, ""); err == nil || !strings.Contains(err.Error(), "it requires its key") {
		t.Errorf("without the key: %v", err)
	}
	if _, err := AskLoaded(t.Context(), "127.0.0.1:1", ""); err == nil || !strings.Contains(err.Error(), "no m40-llm listens on 127.0.0.1:1") {
		t.Errorf("without a server: %v", err)
	}
}
