package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

func TestListenAddr(t *testing.T) {
	for _, c := range []struct {
		name, addr string
		lan        bool
		key        string
		want       string // address
		err        string // what the error says
	}{
		{"the loopback address is taken", "127.0.0.1:8080", false, "", "127.0.0.1:8080", ""},
		{"the IPv6 loopback address is taken", "[::1]:8080", false, "", "[::1]:8080", ""},
		{"localhost is taken", "localhost:8080", false, "", "localhost:8080", ""},
		{"no host means this machine alone", ":0", false, "", "127.0.0.1:0", ""},
		{"all networks are refused", "0.0.0.0:8080", false, "k", "", "--lan"},
		{"all IPv6 networks are refused", "[::]:8080", false, "k", "", "--lan"},
		{"a network address is refused", "192.168.1.5:8080", false, "k", "", "--lan"},
		{"a name is refused, whatever it may resolve to", "myhost:8080", false, "k", "", "--lan"},
		{"with --lan and no key people log in with codes", "0.0.0.0:8080", true, "", "0.0.0.0:8080", ""},
		{"with --lan and no key no host means all networks", ":8080", true, "", ":8080", ""},
		{"a key alone lets no other machine in", "0.0.0.0:8080", false, "0123456789abcdef", "", "--lan"},
		{"with --lan and a key no host means all networks", ":8080", true, "0123456789abcdef", ":8080", ""},
		{"with --lan and a key a network address is taken", "192.168.1.5:8080", true, "0123456789abcdef", "192.168.1.5:8080", ""},
		{"with --lan a key that others could guess is refused", ":8080", true, "abc", "", "openssl rand -hex 16"},
		{"the length of a key counts characters, not bytes", ":8080", true, strings.Repeat("é", 15), "", "--api-key has 15 characters"},
		{"a key of sixteen characters that are not ASCII is long enough", ":8080", true, strings.Repeat("é", 16), ":8080", ""},
		{"an address without a port is refused", "127.0.0.1", false, "", "", "host:port"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ListenAddr(c.addr, c.lan, c.key)
			if c.err == "" {
				if got != c.want || err != nil {
					t.Errorf("got %q, %v, want %q", got, err, c.want)
				}
				return
			}
			var usage *UsageError
			if !errors.As(err, &usage) || !strings.Contains(err.Error(), c.err) {
				t.Errorf("got %q, %v, want wrong usage that says %q", got, err, c.err)
			}
		})
	}
}

func TestCheckNames(t *testing.T) {
	for _, c := range []struct {
		name, host, origin string
		says               string // of the error; empty: none
	}{
		{"nothing at all will do", "", "", ""},
		{"a name will do", "llm.example.org", "", ""},
		{"a name with a port will do", "llm.example.org:443", "", ""},
		{"an IPv6 address will do", "[fd00::1]:8080", "", ""},
		{"an address of a page is no host", "https://llm.example.org", "", "--allow-host"},
		{"a pattern is no host", "*.example.org", "", "--allow-host"},
		{"an origin will do", "", "https://example.org:8443", ""},
		{"a bare name is no origin", "", "example.org", "--cors-origin"},
		{"any origin is none", "", "*", "--cors-origin"},
		{"an origin has no path", "", "https://example.org/", "--cors-origin"},
		{"a file is no origin", "", "file:///index.html", "--cors-origin"},
		{"an app has an origin", "", "app://obsidian.md", ""},
		{"an editor has one", "", "vscode-file://vscode-app", ""},
		{"an extension has one", "", "moz-extension://0c1ab5bb-7b3f-4c0b-9d5e-2f6d0a1b2c3d", ""},
		{"files and sandboxes have one together", "", "null", ""},
		{"browsers write small letters", "", "https://Example.org", "--cors-origin"},
		{"browsers leave out the usual port", "", "https://example.org:443", "--cors-origin"},
		{"a pattern of origins is none", "", "https://*.example.org", "--cors-origin"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var hosts, origins []string
			if c.host != "" {
				hosts = []string{"localhost", c.host}
			}
			if c.origin != "" {
				origins = []string{"https://example.com", c.origin}
			}
			err := CheckNames(hosts, origins)
			var usage *UsageError
			if c.says == "" && err != nil || c.says != "" && (!errors.As(err, &usage) || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestNetworks(t *testing.T) {
	got, err := Networks([]string{"127.0.0.1", "172.16.5.4/12", "::1", "::ffff:10.0.0.1", "fd00::/8"})
	if want := "[127.0.0.1/32 172.16.0.0/12 ::1/128 10.0.0.1/32 fd00::/8]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("got %v, %v, want %s", got, err, want)
	}
	for _, value := range []string{"proxy.example.org", "10.0.0.0/33", "", "127.0.0.1:80", "fe80::1%eth0"} {
		var usage *UsageError
		if _, err := Networks([]string{value}); !errors.As(err, &usage) || !strings.Contains(err.Error(), "--trusted-proxy") {
			t.Errorf("%q: got %v", value, err)
		}
	}
}

// server runs Serve with handler and returns its address, its signals, and its result.
func server(t *testing.T, handler http.Handler, stop func()) (url string, signals chan<- os.Signal, result <-chan error) {
	t.Helper()
	l, err := Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	term, _, _ := terminal("")
	ch, res := make(chan os.Signal, 2), make(chan error, 1)
	term.Signals = ch
	go func() {
		res <- Serve(context.Background(), term, &http.Server{Handler: handler}, []net.Listener{l}, URL("http", l), stop)
	}()
	return URL("http", l), ch, res
}

func TestListen(t *testing.T) {
	t.Run("an address that another m40-llm has gives exit code 3", func(t *testing.T) {
		url, signals, result := server(t, http.NotFoundHandler(), func() {})
		_, err := Listen(context.Background(), strings.TrimPrefix(url, "http://"))
		if !errors.Is(err, ErrRunning) || !strings.Contains(err.Error(), url) {
			t.Errorf("got %v", err)
		}
		signals <- os.Interrupt
		if err := <-result; err != nil {
			t.Error(err)
		}
	})
	t.Run("an address that another program has is an error that says what to do", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		other := &http.Server{Handler: http.NotFoundHandler()}
		go other.Serve(l)
		defer other.Close()
		_, err = Listen(context.Background(), l.Addr().String())
		if err == nil || errors.Is(err, ErrRunning) || !strings.Contains(err.Error(), "choose another address") {
			t.Errorf("got %v", err)
		}
	})
}

func TestServe(t *testing.T) {
	t.Run("it says where it listens, once it answers there", func(t *testing.T) {
		l, err := Listen(context.Background(), "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		r, w := io.Pipe()
		signals := make(chan os.Signal, 1)
		result := make(chan error, 1)
		go func() {
			result <- Serve(context.Background(), &Terminal{Out: w, Err: io.Discard, Signals: signals}, &http.Server{Handler: http.NotFoundHandler()}, []net.Listener{l}, URL("http", l), func() {})
		}()
		line := make([]byte, 200)
		n, _ := r.Read(line)
		url, ok := strings.CutPrefix(string(line[:n]), "m40-llm listening on ")
		if !ok || !strings.HasSuffix(url, "\n") {
			t.Fatalf("it says %q", line[:n])
		}
		response, err := http.Get(strings.TrimSpace(url))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		signals <- os.Interrupt
		if err := <-result; err != nil {
			t.Error(err)
		}
	})
	t.Run("an answer that is being written may end after the signal", func(t *testing.T) {
		started, finish := make(chan bool), make(chan bool)
		stopped := false
		url, signals, result := server(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			started <- true
			<-finish
			io.WriteString(w, "whole")
		}), func() { stopped = true })
		body := make(chan string)
		go func() {
			response, err := http.Get(url)
			if err != nil {
				body <- err.Error()
				return
			}
			defer response.Body.Close()
			text, _ := io.ReadAll(response.Body)
			body <- string(text)
		}()
		<-started
		signals <- os.Interrupt
		finish <- true
		if got := <-body; got != "whole" {
			t.Errorf("the answer is %q", got)
		}
		if err := <-result; err != nil || !stopped {
			t.Errorf("ended with %v, stop called: %t", err, stopped)
		}
	})
	t.Run("an answer that does not end is cut", func(t *testing.T) {
		started := make(chan bool)
		cut := make(chan bool, 1)
		url, signals, result := server(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			started <- true
			<-r.Context().Done()
			cut <- true
		}), func() {})
		go http.Get(url)
		<-started
		signals <- os.Interrupt
		if err := <-result; err != nil {
			t.Error(err)
		}
		<-cut
	})
	t.Run("a second signal stops at once", func(t *testing.T) {
		started := make(chan bool)
		release := make(chan bool)
		defer close(release)
		url, signals, result := server(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			started <- true
			<-release // deaf to its context
		}), func() { <-release })
		go http.Get(url)
		<-started
		signals <- os.Interrupt
		signals <- os.Interrupt
		select {
		case err := <-result:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Error("it still runs")
		}
	})
}

func TestNetworkURLs(t *testing.T) {
	t.Run("a server on the loopback address has none", func(t *testing.T) {
		l, err := Listen(context.Background(), "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if got := NetworkURLs("http", l); got != nil {
			t.Errorf("got %q", got)
		}
	})
	t.Run("a server on all networks names addresses that can be dialled, and its own URL is the loopback one", func(t *testing.T) {
		l, err := Listen(context.Background(), ":0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for _, url := range append(NetworkURLs("http", l), URL("http", l)) {
			if strings.Contains(url, "0.0.0.0") || strings.Contains(url, "[::]") {
				t.Errorf("%s is not an address", url)
			}
		}
		if !strings.HasPrefix(URL("http", l), "http://127.0.0.1:") {
			t.Errorf("its URL is %s", URL("http", l))
		}
	})
}

func TestOllamasClientsFindTheServerOnTheSameHost(t *testing.T) {
	for addr, want := range map[string]string{"127.0.0.1:8080": "127.0.0.1:11434", ":8080": ":11434", "[::1]:0": "[::1]:11434", "127.0.0.1:11434": ""} {
		if got, err := OllamaAddr(addr); got != want || (err != nil) != (want == "") {
			t.Errorf("OllamaAddr(%q) = %q, %v; want %q", addr, got, err, want)
		}
	}
}

func TestAServerStopsWithinFiveSeconds(t *testing.T) {
	if drainTime >= stopTime || stopTime > 5*time.Second {
		t.Errorf("answers have %s to end, and all %s", drainTime, stopTime)
	}
}
