package commands

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"nhooyr.io/websocket"

	"m40-llm/handlers/cli"
)

// serveOnce runs the server with args until stop is called, and returns its URL and what it says
// on stderr.
func serveOnce(t *testing.T, args ...string) (url string, stop func() (errs string)) {
	t.Helper()
	out, in := io.Pipe()
	var errs strings.Builder
	var mu sync.Mutex
	signals := make(chan os.Signal, 1)
	home := t.TempDir()
	terminal := &cli.Terminal{In: strings.NewReader(""), Out: in, Signals: signals,
		Err: writerFunc(func(p []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return errs.Write(p)
		}),
		Env: func(name string) string { return map[string]string{"HOME": home}[name] },
	}
	code := make(chan int, 1)
	go func() {
		code <- run(context.Background(), terminal, append([]string{"--addr", "127.0.0.1:0"}, args...))
		in.Close()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the server ended with code %d: %s", <-code, errs.String())
	}
	return strings.TrimPrefix(strings.TrimSpace(line), "m40-llm listening on "), func() string {
		signals <- syscall.SIGTERM
		if got := <-code; got != cli.ExitOK {
			t.Errorf("the server ended with code %d", got)
		}
		mu.Lock()
		defer mu.Unlock()
		return errs.String()
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// trusting returns a client that trusts the certificate in a file and no other.
func trusting(t *testing.T, file string) *http.Client {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		t.Fatalf("%s has no certificate", file)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// leafOf returns the certificate in a file.
func leafOf(t *testing.T, file string) *x509.Certificate {
	t.Helper()
	c, err := tls.LoadX509KeyPair(file, file)
	if err != nil {
		t.Fatal(err)
	}
	return c.Leaf
}

func TestTLS_EncryptsPagesAndStreams(t *testing.T) {
	data := t.TempDir()
	url, stop := serveOnce(t, "--tls", "--data", data)
	client := trusting(t, filepath.Join(data, "certificate.pem"))
	for _, name := range []string{"m40-llm.local", "m40-llm-2.local", "localhost"} {
		if err := leafOf(t, filepath.Join(data, "certificate.pem")).VerifyHostname(name); err != nil {
			t.Errorf("the certificate is not for %s: %v", name, err)
		}
	}
	if !strings.HasPrefix(url, "https://127.0.0.1:") {
		t.Errorf("the server says that it listens on %s", url)
	}
	response, err := client.Get(url + "/")
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(page), "m40-llm") {
		t.Errorf("the page: status %d, %v", response.StatusCode, err)
	}
	conn, _, err := websocket.Dial(t.Context(), "wss"+strings.TrimPrefix(url, "https")+"/ws", &websocket.DialOptions{
		HTTPClient: client, HTTPHeader: http.Header{"Origin": {url}},
	})
	if err != nil {
		t.Errorf("the websocket: %v", err)
	} else {
		conn.CloseNow()
	}
	plain, err := http.Get("http" + strings.TrimPrefix(url, "https") + "/health")
	if err == nil {
		plain.Body.Close()
	}
	http.DefaultClient.CloseIdleConnections()
	if err != nil || plain.StatusCode != http.StatusBadRequest {
		t.Errorf("without encryption: %v, %v", plain, err)
	}
	first := stop()
	if !strings.Contains(first, "SHA-256 fingerprint is\n  ") {
		t.Errorf("the fingerprint is not said: %s", first)
	}
	_, stop = serveOnce(t, "--tls", "--data", data)
	if second := stop(); fingerprintIn(second) != fingerprintIn(first) {
		t.Errorf("the next start has another certificate: %s, before %s", second, first)
	}

	t.Run("with a certificate of one's own", func(t *testing.T) {
		file := filepath.Join(data, "certificate.pem")
		url, stop := serveOnce(t, "--tls-cert", file, "--tls-key", file)
		response, err := trusting(t, file).Get(url + "/models")
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("%v, %v", response, err)
		}
		response.Body.Close()
		if errs := stop(); strings.Contains(errs, "fingerprint") {
			t.Errorf("it speaks of a fingerprint: %s", errs)
		}
	})
}

func fingerprintIn(errs string) string {
	_, rest, _ := strings.Cut(errs, "SHA-256 fingerprint is\n  ")
	line, _, _ := strings.Cut(rest, "\n")
	return line
}

func TestTLS_FlagsThatDoNotFitAreWrongUsage(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.pem")
	if err := os.WriteFile(file, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"a certificate without its key", []string{"--tls-cert", file}, cli.ExitUsage, "--tls-cert and --tls-key need each other"},
		{"a key without its certificate", []string{"--tls-key", file}, cli.ExitUsage, "--tls-cert and --tls-key need each other"},
		{"two certificates", []string{"--tls", "--tls-cert", file, "--tls-key", file}, cli.ExitUsage, "use it, or --tls-cert"},
		{"files that are no certificate", []string{"--tls-cert", file, "--tls-key", file}, cli.ExitFailed, file},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := execute(t, nil, "", append([]string{"--addr", "127.0.0.1:0"}, c.args...)...)
			if got.code != c.code || !strings.Contains(got.errs, c.says) {
				t.Errorf("got %+v, want code %d and %q", got, c.code, c.says)
			}
		})
	}
}
