package commands

import (
	"crypto/tls"
	"net/netip"
	"os"
	"slices"
	"time"

	"m40-llm/handlers/certificate"
	"m40-llm/handlers/cli"
	"m40-llm/handlers/mdns"
	"m40-llm/handlers/share"
)

// encryption is how connections are encrypted; the zero value: they are not.
type encryption struct {
	config      *tls.Config
	fingerprint string // of the self-signed certificate
}

// encryption returns the encryption that --tls or --tls-cert and --tls-key ask for.
func (f serveFlags) encryption(t *cli.Terminal) (e encryption, err error) {
	var c tls.Certificate
	switch {
	case (*f.certFile == "") != (*f.keyFile == ""):
		return e, cli.Usagef("--tls-cert and --tls-key need each other")
	case *f.certFile != "" && *f.tls:
		return e, cli.Usagef("--tls makes a certificate of its own: use it, or --tls-cert and --tls-key")
	case *f.certFile != "":
		c, err = certificate.Load(*f.certFile, *f.keyFile)
	case *f.tls:
		if c, err = f.selfSigned(t); err == nil {
			e.fingerprint = certificate.Fingerprint(c)
		}
	default:
		return e, nil
	}
	if err != nil {
		return encryption{}, err
	}
	// Websockets are upgraded from HTTP/1.1.
	e.config = &tls.Config{Certificates: []tls.Certificate{c}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	return e, nil
}

// selfSigned returns the certificate in the data folder for the names and addresses of this
// machine.
func (f serveFlags) selfSigned(t *cli.Terminal) (c tls.Certificate, err error) {
	dir, err := f.dataDir(t)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return c, err
	}
	hostname, _ := os.Hostname() // without a name, other machines use the address
	names := slices.Concat([]string{"localhost"}, cli.HostNames(hostname), mdns.Names())
	addresses, err := share.LocalAddresses()
	if err != nil {
		return c, err
	}
	addresses = append(addresses, netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback())
	return certificate.SelfSigned(dir, names, addresses, time.Now())
}

// scheme is that of the server's URLs.
func (e encryption) scheme() string {
	if e.config != nil {
		return "https"
	}
	return "http"
}
