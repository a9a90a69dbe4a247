package people

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// networks tells the clients whose wrong tries are counted apart.
type networks struct {
	interfaces func() ([]net.Addr, error) // of this machine; nil: net.InterfaceAddrs

	mu    sync.Mutex
	local []netip.Prefix // of this machine's interfaces
	read  time.Time      // when they were read
}

// networksEvery is how long the networks of this machine are believed to stay the same.
const networksEvery = 30 * time.Second

// of returns the network that one client can send from: its IPv4 address, or the /64 of its IPv6
// address, which is what a customer gets at least. All machines of the networks that this machine is
// in have one /64 too, so there it is the address: one machine must not use up the tries of the
// others.
func (n *networks) of(client netip.Addr, now time.Time) netip.Prefix {
	bits := client.BitLen()
	if client.Is6() && !client.IsPrivate() && !client.IsLinkLocalUnicast() && !n.isLocal(client, now) {
		bits = 64
	}
	network, _ := client.Prefix(bits)
	return network
}

// isLocal reports whether an address is in a network that this machine is in.
func (n *networks) isLocal(client netip.Addr, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if since := now.Sub(n.read); since < 0 || since >= networksEvery {
		n.local, n.read = n.list(), now
	}
	for _, network := range n.local {
		if network.Contains(client) {
			return true
		}
	}
	return false
}

// list returns the IPv6 networks that this machine is in. If they cannot be read there are none, so
// that more clients are counted as one.
func (n *networks) list() (list []netip.Prefix) {
	interfaces := n.interfaces
	if interfaces == nil {
		interfaces = net.InterfaceAddrs
	}
	all, err := interfaces()
	if err != nil {
		return nil
	}
	for _, a := range all {
		if network, err := netip.ParsePrefix(a.String()); err == nil && network.Addr().Is6() {
			list = append(list, network.Masked())
		}
	}
	return list
}
