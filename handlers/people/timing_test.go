package people

import (
	"math"
	"net/netip"
	"slices"
	"testing"
	"time"

	"m40-llm/handlers/access"
	"m40-llm/store"
)

// BenchmarkSecrets_TimeOfWrongOnes compares how long two wrong secrets take to be refused, of which one is
// nearer to a right one: it reports the medians in nanoseconds and Welch's t of the times, those above the 99th
// percentile of both left out. A |t| below about 4.5 says that the times tell nothing of the secret. The
// tries alternate, each from an address of its own.
func BenchmarkSecrets_TimeOfWrongOnes(b *testing.B) {
	const tries = 10_000
	ctx := b.Context()
	s, now := newService(b, "")
	setPassphrase(b, s, store.OwnerID, "the right passphrase")
	key, err := s.CreateKey(ctx, access.Local, store.OwnerID, "key")
	if err != nil {
		b.Fatal(err)
	}
	made, err := s.Invite(ctx, access.Local, store.OwnerID)
	if err != nil {
		b.Fatal(err)
	}
	other := func(c byte) string { // a letter that differs, of the alphabets of keys and codes
		if c == 'A' {
			return "B"
		}
		return "A"
	}
	last := func(secret string) string { return secret[:len(secret)-1] + other(secret[len(secret)-1]) }
	first := func(secret string) string { return other(secret[0]) + secret[1:] }
	for _, tc := range []struct {
		name string
		far  func(from Client) error
		near func(from Client) error
	}{
		{"a key that differs in its first letter, in its last",
			func(from Client) error { return second(s.ByKey(ctx, "m40-"+first(key[4:]), from)) },
			func(from Client) error { return second(s.ByKey(ctx, last(key), from)) }},
		{"a code that differs in its first letter, in its last",
			func(from Client) error { return second(s.Enter(ctx, first(made.Code), from)) },
			func(from Client) error { return second(s.Enter(ctx, last(made.Code), from)) }},
		{"a name that nobody has, the owner's",
			func(from Client) error { return second(s.EnterByName(ctx, "Ownes", "a wrong passphrase", from)) },
			func(from Client) error { return second(s.EnterByName(ctx, "Owner", "a wrong passphrase", from)) }},
		{"a passphrase that differs in its first letter, in its last",
			func(from Client) error { return second(s.EnterByName(ctx, "Owner", "The right passphrase", from)) },
			func(from Client) error { return second(s.EnterByName(ctx, "Owner", "the right passphrasE", from)) }},
	} {
		b.Run(tc.name, func(b *testing.B) {
			var times [2][]float64
			for i := range 2 * tries {
				now.now = now.now.Add(allGuessEvery)
				if i%100 == 0 { // an invitation lasts five minutes
					made.Expires = now.now.Add(InvitationLife)
					code, _ := asCode(made.Code)
					s.invited.byPerson[store.OwnerID] = invitation{hashOf(code), hashOf(made.Link), made.Expires}
				}
				from := Client{Addr: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})}
				do := []func(Client) error{tc.far, tc.near}[i%2]
				start := time.Now()
				err := do(from)
				times[i%2] = append(times[i%2], float64(time.Since(start)))
				if err != ErrWrongKey && err != ErrWrongSecret && err != ErrWrongCode && err != ErrWrongLogin {
					b.Fatal(err)
				}
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(times[0]), "far-ns")
			b.ReportMetric(median(times[1]), "near-ns")
			b.ReportMetric(welch(times[0], times[1]), "t")
		})
	}
}

func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}

// welch returns Welch's t of two samples, less what is above the 99th percentile of both together.
func welch(a, b []float64) float64 {
	all := slices.Sorted(slices.Values(slices.Concat(a, b)))
	most := all[len(all)*99/100]
	mean := func(list []float64) (mean, variance float64) {
		n := 0.0
		for _, x := range list {
			if x <= most {
				n++
				mean += x
			}
		}
		mean /= n
		for _, x := range list {
			if x <= most {
				variance += (x - mean) * (x - mean)
			}
		}
		return mean, variance / (n - 1) / n
	}
	meanA, varianceA := mean(a)
	meanB, varianceB := mean(b)
	return (meanA - meanB) / math.Sqrt(varianceA+varianceB)
}
