package commands

import (
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"

	"m40-llm/infer"
)

// setUp changes on the page how models are loaded.
func (s *testServer) setUp(form url.Values) (status int) {
	s.t.Helper()
	r, err := http.NewRequest(http.MethodPost, s.url+"/models/setup", strings.NewReader(form.Encode()))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", s.url)
	response, err := http.DefaultTransport.RoundTrip(r) // not redirected
	if err != nil {
		s.t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

func TestASetupThatIsChangedOutlivesTheWorker(t *testing.T) {
	s := startServer(t, t.TempDir(), "--model", tinyModel(t), "--device", "test", "--keep-alive", "5s")
	eventually(t, "the model is ready", func() bool { return s.status().State == infer.StateReady })
	first := s.worker()
	want := infer.Setup{ContextLength: 64, CacheType: "f32", Threads: 2, Draft: "off"}
	if got := s.setUp(url.Values{"context": {"64"}, "cache": {"f32"}, "threads": {"2"}, "draft": {"off"}}); got != http.StatusSeeOther {
		t.Fatalf("status %d", got)
	}
	loaded := func() bool {
		now := s.status()
		return now.Setup == want && (now.State == infer.StateUnloaded || now.State == infer.StateReady && now.ContextLength == 64 && now.CacheType == "f32")
	}
	eventually(t, "the model is loaded with the setup", loaded)
	if got := s.setUp(url.Values{"context": {"64"}, "cache": {"q4"}}); got != http.StatusBadRequest {
		t.Errorf("with an unknown format: status %d", got)
	}
	if got := s.setUp(url.Values{"draft": {"nobody"}}); got != http.StatusBadRequest {
		t.Errorf("with an unknown draft model: status %d", got)
	}
	eventually(t, "the model is unloaded", func() bool { return s.status().State == infer.StateUnloaded })
	if status, failure, _ := s.ask(100); status != http.StatusOK || failure.Code != "" {
		t.Errorf("an unloaded model answers with status %d, %+v", status, failure)
	}
	process, err := os.FindProcess(first)
	if err == nil {
		err = process.Signal(syscall.SIGKILL)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.worker(first)
	eventually(t, "the next worker has the setup", loaded)
}
