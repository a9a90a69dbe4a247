package upstream

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
)

// Address is where a server is reached.
type Address struct {
	Base string // scheme, host, port and path, without /v1 and without a slash at its end
	Host string // HOST or HOST:PORT, for people
	Key  string // bearer token; empty: none is sent
}

// ParseAddress returns the address that a person gave, without a key.
func ParseAddress(text string) (Address, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return Address{}, fmt.Errorf("%q is not the address of a server, such as http://gpu-box:8000", text)
	case u.User != nil:
		return Address{}, fmt.Errorf("the address of %s has a user name or a password: give its key in a file instead", u.Host)
	case u.RawQuery != "" || u.Fragment != "":
		return Address{}, fmt.Errorf("the address %q must end with its path", text)
	}
	base := strings.TrimSuffix(strings.TrimRight(u.Scheme+"://"+u.Host+u.EscapedPath(), "/"), "/v1")
	return Address{Base: strings.TrimRight(base, "/"), Host: u.Host}, nil
}

// Private reports whether no one can read what is sent to the server: it is encrypted, or does not leave this
// machine.
func (a Address) Private() bool {
	u, err := url.Parse(a.Base)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Scheme == "https" || u.Hostname() == "localhost" || err == nil && ip.IsLoopback()
}

// ParseKeys reads the keys of servers: lines of an address and its key, which is sent to this address alone.
// Empty lines and those that begin with # say nothing.
func ParseKeys(text string) (map[string]string, error) {
	keys := map[string]string{}
	number := 0
	for line := range strings.Lines(text) {
		number++
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) != 2 {
			return nil, fmt.Errorf("line %d must have an address and its key, with a space between them", number)
		}
		a, err := ParseAddress(fields[0])
		if err != nil {
			return nil, fmt.Errorf("line %d must begin with an address such as http://gpu-box:8000", number) // it may begin with a key
		}
		keys[a.Base] = fields[1]
	}
	return keys, nil
}
