package commands

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pion/mdns/v2"
	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/net/ipv4"

	"m40-llm/handlers/cli"
	"m40-llm/infer/fixtures"
)

// resolve asks the network of the machine by multicast for the addresses of a name; none if nobody
// answers.
func (m *machine) resolve(name string, kind dnsmessage.Type) (found []netip.Addr) {
	m.t.Helper()
	question := dnsmessage.Message{Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name + "."), Type: kind, Class: dnsmessage.ClassINET}}}
	packed, err := question.Pack()
	if err != nil {
		m.t.Fatal(err)
	}
	var conn net.PacketConn
	err = m.within(func() error {
		lan, err := net.InterfaceByName("lan0")
		if err != nil {
			return err
		}
		if conn, err = net.ListenPacket("udp4", "0.0.0.0:0"); err != nil {
			return err
		}
		return ipv4.NewPacketConn(conn).SetMulticastInterface(lan)
	})
	if err != nil {
		m.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.WriteTo(packed, &net.UDPAddr{IP: net.IPv4(224, 0, 0, 251), Port: 5353}); err != nil {
		return nil // the cable is out
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Second))
	buffer := make([]byte, 9000)
	n, _, err := conn.ReadFrom(buffer)
	if err != nil {
		return nil
	}
	var answer dnsmessage.Message
	if err := answer.Unpack(buffer[:n]); err != nil {
		m.t.Fatal(err)
	}
	for _, record := range answer.Answers {
		switch body := record.Body.(type) {
		case *dnsmessage.AResource:
			found = append(found, netip.AddrFrom4(body.A))
		case *dnsmessage.AAAAResource:
			found = append(found, netip.AddrFrom16(body.AAAA))
		}
	}
	return found
}

// resolves waits until a name has an address, and that one alone.
func (m *machine) resolves(name string, kind dnsmessage.Type, want string) {
	m.t.Helper()
	eventually(m.t, fmt.Sprintf("%s is %s", name, want), func() bool {
		found := m.resolve(name, kind)
		return len(found) == 1 && found[0] == netip.MustParseAddr(want)
	})
}

// statusAs requests the page of logging in from an address, by the name host.
func (m *machine) statusAs(at, host string) int {
	m.t.Helper()
	r, err := http.NewRequest(http.MethodGet, "http://"+at+":8080/login", nil)
	if err != nil {
		m.t.Fatal(err)
	}
	r.Host = host + ":8080"
	response, err := m.client().Do(r)
	if err != nil {
		m.t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

// said waits until the log of a server has a text.
func said(t *testing.T, log, text string) {
	t.Helper()
	eventually(t, fmt.Sprintf("the server says %q", text), func() bool {
		content, err := os.ReadFile(log)
		return err == nil && strings.Contains(string(content), text)
	})
}

// TestNetwork_AServerHasAName asks by multicast for the name of a server on another machine, before
// and after that gets another address.
func TestNetwork_AServerHasAName(t *testing.T) {
	if !asMachines(t) {
		return
	}
	house, phone := newMachine(t), newMachine(t)
	connect(house, phone)
	house.ip("addr", "add", "fd77::1/64", "dev", "lan0", "nodad")
	_, log := house.serve("--lan")
	phone.resolves("m40-llm.local", dnsmessage.TypeA, house.addr)
	phone.resolves("M40-LLM.local", dnsmessage.TypeAAAA, "fd77::1")
	said(t, log, "http://m40-llm.local:8080")
	for name, want := range map[string]int{"m40-llm.local": http.StatusOK, "m40-llm-2.local": http.StatusMisdirectedRequest, "evil.local": http.StatusMisdirectedRequest} {
		if got := phone.statusAs(house.addr, name); got != want {
			t.Errorf("as %s the server answers %d, want %d", name, got, want)
		}
	}
	if found := phone.resolve("m40-llm-2.local", dnsmessage.TypeA); len(found) > 0 {
		t.Errorf("it has a second name, for %v", found)
	}
	house.ip("link", "set", "lan0", "down")
	house.ip("addr", "del", house.addr+"/24", "dev", "lan0")
	house.ip("addr", "add", "10.77.0.9/24", "dev", "lan0")
	house.ip("link", "set", "lan0", "up")
	phone.resolves("m40-llm.local", dnsmessage.TypeA, "10.77.0.9")
	if got := phone.statusAs("10.77.0.9", "m40-llm.local"); got != http.StatusOK {
		t.Errorf("at the new address the server answers %d", got)
	}
	if content, err := os.ReadFile(log); err != nil || strings.Contains(string(content), "has no name in the local network") {
		t.Errorf("the log says (%v): %s", err, content)
	}
}

// TestNetwork_ANameThatIsTaken starts a server where another machine has its name.
func TestNetwork_ANameThatIsTaken(t *testing.T) {
	if !asMachines(t) {
		return
	}
	house, other := newMachine(t), newMachine(t)
	connect(house, other)
	err := other.within(func() error {
		l, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(224, 0, 0, 251), Port: 5353})
		if err != nil {
			return err
		}
		conn, err := mdns.NewServer(ipv4.NewPacketConn(l), nil, mdns.WithLocalNames("m40-llm.local"))
		if err == nil {
			t.Cleanup(func() { conn.Close() })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	_, log := house.serve("--lan")
	other.resolves("m40-llm-2.local", dnsmessage.TypeA, house.addr)
	said(t, log, "the name m40-llm.local is taken in this network")
	said(t, log, "http://m40-llm-2.local:8080")
	other.resolves("m40-llm.local", dnsmessage.TypeA, other.addr)
	for name, want := range map[string]int{"m40-llm.local": http.StatusMisdirectedRequest, "m40-llm-2.local": http.StatusOK} {
		if got := other.statusAs(house.addr, name); got != want {
			t.Errorf("as %s the server answers %d, want %d", name, got, want)
		}
	}
}

// A server for this machine alone takes no part in multicast DNS.
func TestNetwork_AServerForThisMachineIsSilent(t *testing.T) {
	if !asMachines(t) {
		return
	}
	house, phone := newMachine(t), newMachine(t)
	connect(house, phone)
	house.serve()
	if found := phone.resolve("m40-llm.local", dnsmessage.TypeA); len(found) > 0 {
		t.Errorf("it has the name m40-llm.local at %v", found)
	}
	for _, sockets := range []string{"/proc/net/udp", "/proc/net/udp6"} {
		list := exec.Command("cat", sockets)
		house.inside(list)
		out, err := list.Output()
		if err != nil || !strings.Contains(string(out), "local_address") {
			t.Fatalf("%s: %v, %q", sockets, err, out)
		}
		if strings.Contains(string(out), fmt.Sprintf(":%04X ", 5353)) {
			t.Errorf("it listens for multicast DNS: %s", out)
		}
	}
}

// TestNetwork_NoStartIsOpen starts the program with each combination of address, credential and encryption.
// It refuses to start, or other machines do not reach it, or they have to log in.
func TestNetwork_NoStartIsOpen(t *testing.T) {
	if !asMachines(t) {
		return
	}
	house, phone := newMachine(t), newMachine(t)
	connect(house, phone)
	withPassphrase := filepath.Join(t.TempDir(), "data")
	if got := execute(t, nil, "correct horse battery staple\n", "passphrase", "--data", withPassphrase); got.code != cli.ExitOK {
		t.Fatalf("%+v", got)
	}
	starts, refused, closed, asked := 0, 0, 0, 0
	for _, lan := range [][]string{nil, {"--lan"}} {
		for _, addr := range []string{"", ":8080", "0.0.0.0:8080", "[::]:8080", house.addr + ":8080", "127.0.0.1:8080", "[::1]:8080", "localhost:8080"} {
			for _, credential := range [][]string{nil, {"--api-key", "short"}, {"--api-key", "0123456789abcdef"}, {"--data", withPassphrase}} {
				for _, encryption := range [][]string{nil, {"--tls"}} {
					args := slices.Concat(lan, credential, encryption)
					if addr != "" {
						args = append(args, "--addr", addr)
					}
					if slices.Contains(args, "short") && addr != "" {
						continue // is refused for itself
					}
					if few := encryption != nil || slices.Contains(args, withPassphrase); few && !fixtures.Torture() && addr != "" && addr != "0.0.0.0:8080" {
						continue
					}
					if !slices.Contains(args, "--data") {
						args = append(args, "--data", t.TempDir())
					}
					starts++
					end, code := house.try(args...)
					switch {
					case code == cli.ExitUsage:
						refused++
					case code != cli.ExitOK:
						t.Errorf("%q ended with code %d", args, code)
					case !phone.mustLogIn(house.addr, args):
						closed++
					default:
						asked++
					}
					end()
				}
			}
		}
	}
	t.Logf("of %d starts %d were refused, %d reached no other machine, and %d asked for a login", starts, refused, closed, asked)
	if refused == 0 || closed == 0 || asked == 0 || refused+closed+asked != starts {
		t.Error("the combinations are not what they should be")
	}
}

// try starts the program on the machine. If it starts, code is ExitOK, and end ends it; else code is
// that with which it ended.
func (m *machine) try(args ...string) (end func(), code int) {
	m.t.Helper()
	program := exec.Command(os.Args[0], append([]string{"serve", "--threads", "1", "--worker", "never"}, args...)...)
	m.inside(program)
	program.Env = append(os.Environ(), "HOME="+m.t.TempDir(), asProgram+"=1")
	out, err := program.StdoutPipe()
	if err == nil {
		err = program.Start()
	}
	if err != nil {
		m.t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err == nil {
		return func() {
			_ = program.Process.Signal(syscall.SIGTERM)
			_ = program.Wait()
		}, cli.ExitOK
	}
	var exit *exec.ExitError
	if err := program.Wait(); !errors.As(err, &exit) {
		m.t.Fatalf("%q ended with %v", args, err)
	}
	return func() {}, exit.ExitCode()
}

// mustLogIn reports whether the machine reaches the server at an address at all. It is an error if
// that then answers without a login.
func (m *machine) mustLogIn(at string, args []string) bool {
	m.t.Helper()
	conn, err := m.dial(context.Background(), "tcp", at+":8080")
	if err != nil {
		return false
	}
	conn.Close()
	scheme, client := "http", m.client()
	if slices.Contains(args, "--tls") {
		scheme = "https"
		client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
	}
	for _, path := range []string{"/", "/v1/models", "/v1/status", "/people", "/ws", "/presets"} {
		for _, host := range []string{at + ":8080", "localhost:8080", "127.0.0.1:8080"} {
			r, err := http.NewRequest(http.MethodGet, scheme+"://"+at+":8080"+path, nil)
			if err != nil {
				m.t.Fatal(err)
			}
			r.Host = host
			response, err := client.Do(r)
			if err != nil {
				m.t.Fatal(err)
			}
			response.Body.Close()
			if response.StatusCode != http.StatusUnauthorized {
				m.t.Errorf("%q: GET %s as %s is answered with %d", args, path, host, response.StatusCode)
			}
		}
	}
	return true
}
