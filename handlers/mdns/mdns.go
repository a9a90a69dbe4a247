// Package mdns gives the server a name in the local network by multicast DNS (RFC 6762), such as
// m40-llm.local, with which people reach it while its addresses change.
//
// A query for a type of address that this machine does not have gets no answer: the library has no
// NSEC records, with which RFC 6762, section 6.1, lets a responder say so. Clients that ask for both
// types at once, as browsers do, have the other one; some wait a moment for the answer that does not come.
package mdns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pion/logging"
	pion "github.com/pion/mdns/v2"
	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// Names returns the names that a server may have, the best first: those of other servers in the
// network are taken.
func Names() []string {
	names := []string{"m40-llm.local"}
	for n := 2; n < 10; n++ {
		names = append(names, fmt.Sprintf("m40-llm-%d.local", n))
	}
	return names
}

// Options are the settings of a Responder. All must be set.
type Options struct {
	Addr      netip.Addr        // that the server listens on; unspecified: all of this machine
	Announced func(name string) // called when the server gets a name, or another one
	Log       *slog.Logger
}

// Responder answers queries for one of Names with the addresses of this machine, in all networks
// that have multicast. The zero value is not usable.
type Responder struct {
	opt     Options
	name    atomic.Pointer[string]
	trouble bool // has been logged
}

// New returns a Responder without a name; Run gives it one.
func New(opt Options) *Responder { return &Responder{opt: opt} }

// Name returns the name of the server now; empty: it has none yet, or there is no network.
func (r *Responder) Name() string {
	if name := r.name.Load(); name != nil {
		return *name
	}
	return ""
}

// How often the networks of this machine are looked at, and how often it is checked whether another
// machine has the same name: once soon, as two servers may start at the same time, and then rarely.
// A check takes probeTime, in which queries are not answered; whoever asks repeats them.
const (
	lookEvery  = 5 * time.Second
	checkSoon  = 10 * time.Second
	checkEvery = 10 * time.Minute
	probeTime  = 750 * time.Millisecond
	probeEvery = 250 * time.Millisecond
)

// Run answers queries until ctx ends. Failures are logged once; it tries again when the networks
// have changed.
func (r *Responder) Run(ctx context.Context) {
	var conn *pion.Conn
	stop := func() {
		if conn != nil {
			conn.Close()
			conn = nil
		}
	}
	defer stop()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	var known networks
	var check time.Time
	for {
		now, err := r.networks()
		changed := !slices.Equal(now.addresses, known.addresses)
		if err == nil && (changed || time.Now().After(check)) {
			stop()
			conn, err = r.claim(ctx, now)
			pause := checkEvery
			if changed {
				pause = checkSoon
			}
			known, check = now, time.Now().Add(pause/2+rand.N(pause))
		}
		r.note(ctx, err)
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

// note logs the first failure.
func (r *Responder) note(ctx context.Context, err error) {
	if err != nil && !r.trouble && ctx.Err() == nil {
		r.trouble = true
		r.opt.Log.Warn("the server has no name in the local network; its addresses work", "error", err)
	}
}

// claim gives the server its present name, or else the best that no other machine has, and answers
// queries for it.
func (r *Responder) claim(ctx context.Context, on networks) (*pion.Conn, error) {
	present := r.Name()
	if len(on.interfaces) == 0 {
		r.name.Store(nil)
		return nil, nil
	}
	names := Names()
	if present != "" {
		names = append([]string{present}, names...)
	}
	for _, name := range names {
		taken, err := r.taken(ctx, name, on)
		if err != nil {
			return nil, err
		}
		if taken {
			continue
		}
		conn, err := r.open(on, name)
		if err != nil {
			return nil, err
		}
		r.name.Store(&name)
		if name != present {
			r.opt.Announced(name)
		}
		return conn, nil
	}
	r.name.Store(nil)
	return nil, fmt.Errorf("all names from %s to %s are taken in this network", names[0], names[len(names)-1])
}

// taken reports whether another machine answers to a name.
func (r *Responder) taken(ctx context.Context, name string, on networks) (bool, error) {
	conn, err := r.open(on)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	probe, end := context.WithTimeout(ctx, probeTime)
	defer end()
	_, addr, err := conn.QueryAddr(probe, name)
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case err != nil:
		return false, nil // nobody has answered in time
	}
	return !slices.Contains(on.addresses, addr.Unmap().WithZone("")), nil // another server on this machine has the same addresses
}

// open returns a connection that answers queries for names; without names it only asks.
func (r *Responder) open(on networks, names ...string) (*pion.Conn, error) {
	v4, err4 := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(224, 0, 0, 251), Port: 5353})
	v6, err6 := net.ListenUDP("udp6", &net.UDPAddr{IP: net.ParseIP("ff02::fb"), Port: 5353})
	if err4 != nil && err6 != nil {
		return nil, fmt.Errorf("failed to listen for multicast DNS: %w", errors.Join(err4, err6))
	}
	var multicast4 *ipv4.PacketConn
	var multicast6 *ipv6.PacketConn
	if err4 == nil {
		multicast4 = ipv4.NewPacketConn(v4)
	}
	if err6 == nil {
		multicast6 = ipv6.NewPacketConn(v6)
	}
	options := []pion.ServerOption{
		pion.WithInterfaces(on.interfaces...),
		pion.WithLocalNames(names...),
		pion.WithRecordTypes(dnsmessage.TypeA, dnsmessage.TypeAAAA),
		pion.WithCacheRefresh(false),
		pion.WithQueryInterval(probeEvery),
		pion.WithLoggerFactory(loggers{r.opt.Log}),
	}
	if !r.opt.Addr.IsUnspecified() {
		options = append(options, pion.WithLocalAddress(r.opt.Addr.AsSlice()))
	}
	conn, err := pion.NewServer(multicast4, multicast6, options...)
	if err != nil {
		if err4 == nil {
			v4.Close()
		}
		if err6 == nil {
			v6.Close()
		}
		return nil, fmt.Errorf("failed to join multicast DNS: %w", err)
	}
	return conn, nil
}

// networks are the networks of this machine that have multicast.
type networks struct {
	interfaces []net.Interface
	addresses  []netip.Addr // of all of them, in order
}

// networks returns those in which the server is reached.
func (r *Responder) networks() (on networks, err error) {
	all, err := net.Interfaces()
	if err != nil {
		return on, fmt.Errorf("failed to list the networks of this machine: %w", err)
	}
	for _, i := range all {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagMulticast == 0 || i.Flags&net.FlagLoopback != 0 {
			continue
		}
		list, err := i.Addrs()
		if err != nil {
			continue // it has gone
		}
		var addresses []netip.Addr
		for _, a := range list {
			if network, err := netip.ParsePrefix(a.String()); err == nil {
				addresses = append(addresses, network.Addr().Unmap().WithZone(""))
			}
		}
		if len(addresses) == 0 || !r.opt.Addr.IsUnspecified() && !slices.Contains(addresses, r.opt.Addr) {
			continue
		}
		on.interfaces, on.addresses = append(on.interfaces, i), append(on.addresses, addresses...)
	}
	return on, nil
}

// loggers passes what the library logs to the server's log, at the level for debugging: every
// machine in the network can have it complain.
type loggers struct{ log *slog.Logger }

func (l loggers) NewLogger(string) logging.LeveledLogger { return leveled{l.log} }

type leveled struct{ log *slog.Logger }

func (leveled) Trace(string)                  {}
func (leveled) Tracef(string, ...any)         {}
func (leveled) Debug(string)                  {}
func (leveled) Debugf(string, ...any)         {}
func (leveled) Info(string)                   {}
func (leveled) Infof(string, ...any)          {}
func (l leveled) Warn(text string)            { l.say(text) }
func (l leveled) Warnf(f string, args ...any) { l.say(fmt.Sprintf(f, args...)) }
func (l leveled) Error(text string)           { l.say(text) }
func (l leveled) Errorf(f string, a ...any)   { l.say(fmt.Sprintf(f, a...)) }

func (l leveled) say(text string) {
	l.log.Debug("multicast DNS", "problem", strings.ToValidUTF8(text, "?"))
}
