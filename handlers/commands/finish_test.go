package commands

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// Readers of a shared chat are told that its link has ended before their connection is closed.
func TestFinish_LetsRequestsEnd(t *testing.T) {
	started, release := make(chan struct{}), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(started)
		<-release
		io.WriteString(w, "this link has ended")
	}))
	defer s.Close()
	said := make(chan string, 1)
	go func() {
		response, err := s.Client().Get(s.URL)
		if err != nil {
			said <- err.Error()
			return
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		said <- string(body)
	}()
	<-started
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		finish(s.Config)
	}()
	eventually(t, "no connection is accepted", func() bool {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	close(release)
	if got := <-said; got != "this link has ended" {
		t.Errorf("the reader gets %q", got)
	}
	<-finished
	s.Client().CloseIdleConnections()
}
