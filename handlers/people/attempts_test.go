package people

import (
	"net"
	"net/netip"
	"testing"
	"time"
)

func TestAttempts(t *testing.T) {
	type try struct {
		from, key string
		times     int // that this is tried
		refused   int // of them
	}
	for _, tc := range []struct {
		name  string
		tries []try
	}{
		{"one wrong key is told five times that it is wrong", []try{{"192.0.2.1", "a", 8, 3}}},
		{"another wrong key of the address is told so too", []try{{"192.0.2.1", "a", 8, 3}, {"192.0.2.1", "b", 1, 0}}},
		{"an address is told so twenty times together", []try{{"192.0.2.1", "a", 5, 0}, {"192.0.2.1", "b", 5, 0}, {"192.0.2.1", "c", 5, 0}, {"192.0.2.1", "d", 5, 0}, {"192.0.2.1", "e", 5, 5}}},
		{"another address is not affected", []try{{"192.0.2.1", "a", 8, 3}, {"192.0.2.2", "a", 5, 0}}},
		{"an IPv6 network of 64 bits is one client", []try{{"2001:db8::1", "a", 5, 0}, {"2001:db8::2", "a", 5, 5}, {"2001:db8:0:1::1", "a", 5, 0}}},
		{"in a local network each IPv6 address is one", []try{{"fd77::1", "a", 5, 0}, {"fd77::1", "a", 5, 5}, {"fd77::2", "a", 5, 0}, {"fe80::1", "a", 5, 0}, {"fe80::2", "a", 5, 0}}},
		{"in the /64 of this machine too", []try{{"2001:db8:77::9", "a", 5, 0}, {"2001:db8:77::9", "a", 5, 5}, {"2001:db8:77::a", "a", 5, 0}, {"2001:db8:78::1", "a", 5, 0}, {"2001:db8:78::2", "a", 5, 5}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var a attempts
			n := networks{interfaces: func() ([]net.Addr, error) {
				return []net.Addr{&net.IPNet{IP: net.ParseIP("2001:db8:77::2"), Mask: net.CIDRMask(64, 128)}}, nil
			}}
			now := time.Unix(1_800_000_000, 0)
			for _, try := range tc.tries {
				refused := 0
				for range try.times {
					if a.record(n.of(netip.MustParseAddr(try.from), now), try.key, now) > 0 {
						refused++
					}
				}
				if refused != try.refused {
					t.Errorf("%s of %s: %d of %d are refused, want %d", try.key, try.from, refused, try.times, try.refused)
				}
			}
			first := tc.tries[0]
			if a.record(n.of(netip.MustParseAddr(first.from), now), first.key, now.Add(sameKeyEvery)) > 0 {
				t.Errorf("after the pause of %v the address is still refused", sameKeyEvery)
			}
			for i := range 3 * maxLimiters {
				a.record(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32), "a", now)
			}
			if len(a.failed) > maxLimiters+1 {
				t.Errorf("%d attempts are remembered, want at most %d", len(a.failed), maxLimiters+1)
			}
		})
	}
}
