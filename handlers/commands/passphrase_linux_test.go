package commands

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"m40-llm/handlers/cli"
)

// A passphrase that is set before the first start lets the owner in, and is nowhere but in its hash.
func TestPassphrase_IsForTheFirstStart(t *testing.T) {
	const passphrase = "correct horse battery staple"
	data := filepath.Join(t.TempDir(), "data")
	if got := execute(t, nil, passphrase+"\n", "passphrase", "--data", data); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	address, stop := serveOnce(t, "--lan", "--data", data)
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	form := url.Values{"name": {""}, "passphrase": {passphrase}}
	r, err := http.NewRequest(http.MethodPost, address+"/login", strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "Origin": {address}, "Via": {"1.1 elsewhere"}}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusSeeOther || len(response.Cookies()) != 1 {
		t.Errorf("got %d, %v", response.StatusCode, response.Header)
	}
	if again := execute(t, nil, passphrase, "passphrase", "--data", data); again.code != cli.ExitRunning {
		t.Errorf("while the server runs: %+v", again)
	}
	log := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(log, []byte(stop()), 0o600); err != nil {
		t.Fatal(err)
	}
	nothingKeeps(t, passphrase, data, log)
}
