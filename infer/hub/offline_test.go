package hub

import (
	"net"
	"strings"
	"testing"
)

// Without a network, names are not found either: nobody knows whether the host exists.
func TestConnectionError_ANameThatIsNotFoundIsNotSaidToNotExist(t *testing.T) {
	for _, lookup := range []*net.DNSError{{Err: "no such host", Name: "hub.example", IsNotFound: true}, {Err: "no answer", Name: "hub.example", IsNotFound: true, Server: "192.0.2.53"}} {
		got := connectionError(t.Context(), "hub.example", lookup).Error()
		if strings.Contains(got, "does not exist") || !strings.Contains(got, "hub.example") || !strings.Contains(got, "online") {
			t.Errorf("%v: %s", lookup, got)
		}
	}
}
