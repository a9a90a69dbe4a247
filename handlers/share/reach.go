package share

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"m40-llm/handlers/live"
)

// Reach lets other machines read shared chats. If they cannot reach the server itself, Reach opens
// further listeners while a chat is shared: one for each address of this machine in a local
// network, at the same port. These serve shared chats and nothing else.
type Reach struct {
	opt ReachOptions

	mu      sync.Mutex
	open    map[netip.Addr]func() // what closes each listener
	trouble error
}

// ReachOptions are the settings of a Reach. Encrypted may be false, the others must be set.
type ReachOptions struct {
	Server    netip.AddrPort                    // what the server itself listens on
	Addresses func() ([]netip.Addr, error)      // of this machine in local networks, the best first; see LocalAddresses
	Serve     func(net.Listener) (close func()) // serves shared chats alone, until it is closed
	Encrypted bool                              // with TLS
	Log       *slog.Logger
}

// NewReach returns a Reach without listeners.
func NewReach(opt ReachOptions) *Reach { return &Reach{opt: opt, open: map[netip.Addr]func(){}} }

// Nowhere returns a Reach that never listens.
func Nowhere() *Reach {
	none := func() ([]netip.Addr, error) { return nil, nil }
	return NewReach(ReachOptions{Server: netip.AddrPortFrom(netip.IPv6Loopback(), 0), Addresses: none, Log: slog.New(slog.DiscardHandler)})
}

// recheck is how often the addresses of this machine are looked at while a chat is shared: it
// may have come into another network.
const recheck = 30 * time.Second

// Run keeps the listeners open while a chat of service is shared, until ctx ends.
func (r *Reach) Run(ctx context.Context, service *live.Service) {
	defer r.closeAll()
	for {
		changed := service.Links.Changed()
		again := time.NewTimer(r.check(ctx, service))
		select {
		case <-ctx.Done():
		case <-changed:
		case <-again.C:
		}
		again.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// check opens the listeners if a chat of service is shared, else closes them, and returns when to
// check again.
func (r *Reach) check(ctx context.Context, service *live.Service) time.Duration {
	shared, expires, err := service.Links.Any(ctx)
	if err != nil {
		if ctx.Err() == nil {
			r.opt.Log.Warn("failed to look for shared chats", "error", err)
		}
		return recheck
	}
	if !shared {
		r.closeAll()
		return time.Hour
	}
	r.Open()
	if expires.IsZero() {
		return recheck
	}
	return max(time.Millisecond, min(recheck, time.Until(expires)))
}

// URL returns the address of the server's pages for a host and port, such as http://10.0.0.7:8080.
func (r *Reach) URL(host string) string {
	if r.Encrypted() {
		return "https://" + host
	}
	return "http://" + host
}

// Encrypted reports whether the server speaks TLS.
func (r *Reach) Encrypted() bool { return r.opt.Encrypted }

// Port returns the port of the server.
func (r *Reach) Port() uint16 { return r.opt.Server.Port() }

// reachable reports whether other machines reach the server itself.
func (r *Reach) reachable() bool { return !r.opt.Server.Addr().IsLoopback() }

// Open opens a listener at each address that has none, and closes those at addresses that this
// machine has no more.
func (r *Reach) Open() {
	if r.reachable() {
		return
	}
	addresses, err := r.opt.Addresses()
	if err == nil && len(addresses) == 0 {
		err = errors.New("this machine has no address in a local network")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for addr, close := range r.open {
		if !slices.Contains(addresses, addr) {
			close()
			delete(r.open, addr)
		}
	}
	for _, addr := range addresses {
		if r.open[addr] != nil {
			continue
		}
		at := netip.AddrPortFrom(addr, r.opt.Server.Port())
		l, listenErr := net.Listen("tcp", at.String())
		if listenErr != nil {
			err = errors.Join(err, fmt.Errorf("nobody reaches shared chats at %s: %w", at, listenErr))
			continue
		}
		r.open[addr] = r.opt.Serve(l)
		r.opt.Log.Info("shared chats can be read from the network", "address", at)
	}
	if err != nil && r.trouble == nil {
		r.opt.Log.Warn("shared chats cannot be read from all of the network", "error", err)
	}
	r.trouble = err
}

func (r *Reach) closeAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.open) > 0 {
		r.opt.Log.Info("nothing is shared any more; shared chats cannot be read from the network")
	}
	for addr, close := range r.open {
		close()
		delete(r.open, addr)
	}
	r.trouble = nil
}

// Addresses returns where other machines reach shared chats now, the best first, and what keeps
// them from it.
func (r *Reach) Addresses() (list []netip.AddrPort, trouble error) {
	addresses, err := r.opt.Addresses()
	r.mu.Lock()
	defer r.mu.Unlock()
	server := r.opt.Server
	for _, addr := range addresses {
		if r.open[addr] != nil || server.Addr() == addr || server.Addr().IsUnspecified() {
			list = append(list, netip.AddrPortFrom(addr, server.Port()))
		}
	}
	if len(list) == 0 && r.reachable() && !server.Addr().IsUnspecified() {
		list = append(list, server)
	}
	return list, cmp.Or(r.trouble, err)
}

// LocalAddresses returns the addresses that this machine has in local networks. The one that it
// would reach others with comes first.
func LocalAddresses() (list []netip.Addr, err error) {
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("failed to list the network addresses of this machine: %w", err)
	}
	for _, a := range interfaces {
		network, err := netip.ParsePrefix(a.String())
		if ip := network.Addr().Unmap(); err == nil && ip.IsPrivate() {
			list = append(list, ip)
		}
	}
	first := outgoing()
	rank := func(ip netip.Addr) int {
		switch {
		case ip == first:
			return 0
		case ip.Is4():
			return 1
		}
		return 2
	}
	slices.SortStableFunc(list, func(a, b netip.Addr) int { return cmp.Compare(rank(a), rank(b)) })
	return list, nil
}

// outgoing returns the address with which this machine would reach the internet. Nothing is sent.
func outgoing() netip.Addr {
	conn, err := net.Dial("udp4", "192.0.2.1:9") // an address reserved for documentation (RFC 5737)
	if err != nil {
		return netip.Addr{}
	}
	defer conn.Close()
	local, _ := netip.ParseAddrPort(conn.LocalAddr().String())
	return local.Addr().Unmap()
}
