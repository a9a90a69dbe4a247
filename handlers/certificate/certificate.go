// Package certificate provides the TLS certificate of a server: one of the owner's, or a
// self-signed one that is stored in the data folder.
package certificate

import (
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Browsers refuse self-signed certificates that are valid for more than 825 days, and some those
// of more than 398.
const (
	validity    = 397 * 24 * time.Hour
	renewBefore = 30 * 24 * time.Hour
)

// file is the name of the self-signed certificate and its key in the data folder, both as PEM.
const file = "certificate.pem"

// Load reads a certificate and its key from PEM files.
func Load(certFile, keyFile string) (tls.Certificate, error) {
	c, err := tls.Certificate{}, cmp.Or(checkRegular(certFile), checkRegular(keyFile))
	if err == nil {
		c, err = tls.LoadX509KeyPair(certFile, keyFile)
	}
	if err != nil {
		return c, fmt.Errorf("failed to load the certificate %s with the key %s: %w", certFile, keyFile, err)
	}
	return c, nil
}

// checkRegular returns an error unless path is a regular file: opening a named pipe would wait for a
// writer, and a device may have no end.
func checkRegular(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	return err
}

// SelfSigned returns the self-signed certificate in the data folder for the given host names and
// addresses. It makes a new one if there is none, if one of the names is not in it, or a month
// before it expires; then the fingerprint changes. An unreadable file is an error.
func SelfSigned(folder string, names []string, addresses []netip.Addr, now time.Time) (tls.Certificate, error) {
	path := filepath.Join(folder, file)
	var data []byte
	err := checkRegular(path)
	if err == nil {
		data, err = os.ReadFile(path)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return tls.Certificate{}, fmt.Errorf("failed to read the certificate: %w", err)
	default:
		c, err := tls.X509KeyPair(data, data)
		if err != nil {
			return c, fmt.Errorf("%s is not a certificate with its key: %w; delete it to have a new one made", path, err)
		}
		if serves(c.Leaf, names, addresses, now) {
			return c, nil
		}
	}
	if data, err = generate(names, addresses, now); err != nil {
		return tls.Certificate{}, fmt.Errorf("failed to make a certificate: %w", err)
	}
	if err := write(path, data); err != nil {
		return tls.Certificate{}, fmt.Errorf("failed to store the certificate: %w", err)
	}
	return tls.X509KeyPair(data, data)
}

// serves reports whether a certificate is valid for a while and for all names and addresses.
func serves(c *x509.Certificate, names []string, addresses []netip.Addr, now time.Time) bool {
	for _, name := range names {
		if !slices.Contains(c.DNSNames, strings.ToLower(name)) {
			return false
		}
	}
	for _, addr := range addresses {
		if !slices.ContainsFunc(c.IPAddresses, func(ip net.IP) bool { return ip.Equal(addr.AsSlice()) }) {
			return false
		}
	}
	return !now.Before(c.NotBefore) && now.Add(renewBefore).Before(c.NotAfter)
}

// generate returns a new certificate and its key as PEM.
func generate(names []string, addresses []netip.Addr, now time.Time) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "m40-llm"},
		NotBefore:             now.Add(-time.Hour), // clocks differ
		NotAfter:              now.Add(validity),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	for _, name := range names {
		template.DNSNames = append(template.DNSNames, strings.ToLower(name))
	}
	for _, addr := range addresses {
		template.IPAddresses = append(template.IPAddresses, addr.AsSlice())
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: der}) // a buffer does not fail
	_ = pem.Encode(&out, &pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	return out.Bytes(), nil
}

// write replaces the file at path as a whole; only its owner can read it.
func write(path string, data []byte) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+file) // with mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name())
	_, err = temporary.Write(data)
	if err = errors.Join(err, temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), path)
}

// Fingerprint returns the SHA-256 fingerprint of a certificate as browsers show it: 3A:0F:…
func Fingerprint(c tls.Certificate) string {
	sum := sha256.Sum256(c.Certificate[0])
	return strings.ReplaceAll(fmt.Sprintf("% X", sum[:]), " ", ":")
}
