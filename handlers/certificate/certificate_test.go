package certificate_test

import (
	"crypto/x509"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"m40-llm/handlers/certificate"
)

var (
	now        = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	loopback   = netip.MustParseAddr("127.0.0.1")
	lan        = netip.MustParseAddr("192.168.1.20")
	withColons = regexp.MustCompile(`^([0-9A-F]{2}:){31}[0-9A-F]{2}$`)
)

func TestSelfSigned_IsReusedUntilItNoLongerServes(t *testing.T) {
	for _, c := range []struct {
		name      string
		names     []string
		addresses []netip.Addr
		at        time.Time
		reused    bool
	}{
		{"at the next start", []string{"box"}, []netip.Addr{loopback, lan}, now.AddDate(0, 1, 0), true},
		{"with an address less", []string{"box"}, []netip.Addr{loopback}, now, true},
		{"with a name in another case", []string{"Box"}, []netip.Addr{loopback}, now, true},
		{"with another address", []string{"box"}, []netip.Addr{netip.MustParseAddr("10.0.0.7")}, now, false},
		{"with another name", []string{"box", "box.local"}, nil, now, false},
		{"a year later", []string{"box"}, nil, now.AddDate(1, 0, 5), false},
		{"after the clock was set back", []string{"box"}, nil, now.AddDate(-1, 0, 0), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			first, err := certificate.SelfSigned(dir, []string{"box"}, []netip.Addr{loopback, lan}, now)
			if err != nil {
				t.Fatal(err)
			}
			second, err := certificate.SelfSigned(dir, c.names, c.addresses, c.at)
			if err != nil {
				t.Fatal(err)
			}
			a, b := certificate.Fingerprint(first), certificate.Fingerprint(second)
			if !withColons.MatchString(a) || (a == b) != c.reused {
				t.Errorf("the fingerprints are %s and %s, reused should be %v", a, b, c.reused)
			}
			pool := x509.NewCertPool()
			pool.AddCert(second.Leaf)
			for _, name := range append(c.names, texts(c.addresses)...) {
				if _, err := second.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: pool, CurrentTime: c.at}); err != nil {
					t.Errorf("for %s: %v", name, err)
				}
			}
		})
	}
}

func texts(addresses []netip.Addr) (list []string) {
	for _, a := range addresses {
		list = append(list, a.String())
	}
	return list
}

func TestSelfSigned_KeepsItsKeyFromOthers(t *testing.T) {
	dir := t.TempDir()
	if _, err := certificate.SelfSigned(dir, []string{"box"}, nil, now); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("got files %v, %v", entries, err)
	}
	info, err := entries[0].Info()
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key's file has mode %v, %v", info.Mode(), err)
	}
}

func TestSelfSigned_ReplacesNoFileThatItDoesNotUnderstand(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "certificate.pem")
	if err := os.WriteFile(path, []byte("my notes"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := certificate.SelfSigned(dir, []string{"box"}, nil, now); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "delete it") {
		t.Errorf("got %v", err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "my notes" {
		t.Errorf("the file is %q now, %v", data, err)
	}
}

func TestLoad_NamesTheFilesThatDoNotServe(t *testing.T) {
	dir := t.TempDir()
	if _, err := certificate.SelfSigned(dir, []string{"box"}, nil, now); err != nil {
		t.Fatal(err)
	}
	both := filepath.Join(dir, "certificate.pem")
	if c, err := certificate.Load(both, both); err != nil || c.Leaf == nil {
		t.Errorf("a certificate with its key: %v", err)
	}
	missing := filepath.Join(dir, "none.pem")
	if _, err := certificate.Load(both, missing); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("a key that is not there: %v", err)
	}
	pipe := filepath.Join(t.TempDir(), "certificate.pem")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, "/dev/zero"} {
		if _, err := certificate.Load(path, both); err == nil || !strings.Contains(err.Error(), path+" is not a regular file") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := certificate.SelfSigned(filepath.Dir(pipe), []string{"box"}, nil, now); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a pipe in the place of the certificate: %v", err)
	}
}
