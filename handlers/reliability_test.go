package handlers_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"m40-llm/handlers"
	"m40-llm/handlers/access"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/links"
	"m40-llm/infer/fixtures"
	"m40-llm/store"
)

// The id of another's message, link, device or key in a request about what is one's own changes and
// shows nothing.
func TestMatrix_ChildrenOfOthersAreNotReachedThroughOnesOwn(t *testing.T) {
	h := newHouse(t)
	anna := h.askers[4]
	account, err := h.people.Account(t.Context(), access.Local, store.OwnerID)
	if err != nil {
		t.Fatal(err)
	}
	owned := h.objects[ofChat][store.OwnerID]
	messages, err := h.db.Messages(t.Context(), store.OwnerID, owned, 0)
	if err != nil {
		t.Fatal(err)
	}
	own, err := h.db.Messages(t.Context(), anna.person, h.objects[ofChat][anna.person], 0)
	if err != nil {
		t.Fatal(err)
	}
	share, err := h.chats.Links.Add(t.Context(), access.Local, owned, links.Wanted{Live: true})
	if err != nil {
		t.Fatal(err)
	}
	chat, preset := h.objects[ofChat][anna.person], h.objects[ofPreset][anna.person]
	foreign := messages[0].ID
	tried := 0
	for _, request := range []string{
		"POST /c/CHAT/answer question=MESSAGE", "POST /c/CHAT/show message=MESSAGE", "POST /c/CHAT/show message=MESSAGE&version=1",
		"POST /c/CHAT/share life=hour&what=live&first=MESSAGE", "POST /c/CHAT/share/end share=SHARE", "GET /c/CHAT?at=MESSAGE",
		"GET /c/CHAT/code/MESSAGE?as=curl", "POST /people/ANNA/devices/revoke id=DEVICE", "POST /people/ANNA/keys/revoke id=KEY",
		"POST / text=hi&preset=PRESET", "POST /presets/PRESET/use chat=CHAT", "POST /presets/MINE/use chat=OWNED",
	} {
		request = strings.NewReplacer("CHAT", chat, "OWNED", owned, "MESSAGE", fmt.Sprint(foreign), "SHARE", fmt.Sprint(share.ID), "ANNA", anna.person,
			"DEVICE", fmt.Sprint(account.Devices[0].ID), "KEY", fmt.Sprint(account.Keys[0].ID), "PRESET", h.objects[ofPreset][store.OwnerID], "MINE", preset).Replace(request)
		method, rest, _ := strings.Cut(request, " ")
		path, form, _ := strings.Cut(rest, " ")
		got := handlerstest.Call(t, h.Server, method, path, form, append(slices.Clone(anna.header), "Content-Type", "application/x-www-form-urlencoded", "Accept", "application/json")...)
		tried++
		if strings.Contains(got.Body, "secret of "+store.OwnerID) || got.Status >= 500 {
			t.Errorf("%s: got %d: %.300s", request, got.Status, got.Body)
		}
		if strings.Contains(path, "/revoke") || strings.Contains(path, "/show") || strings.Contains(path, "/end") || strings.Contains(path, "/code/") {
			if got.Status < 400 {
				t.Errorf("%s was carried out: %d", request, got.Status)
			}
		}
	}
	after, err := h.people.Account(t.Context(), access.Local, store.OwnerID)
	if err != nil || len(after.Devices) != len(account.Devices) || len(after.Keys) != len(account.Keys) {
		t.Errorf("the owner has %d devices and %d keys (%v)", len(after.Devices), len(after.Keys), err)
	}
	if list, err := h.db.Messages(t.Context(), store.OwnerID, owned, 0); err != nil || len(list) != len(messages) {
		t.Errorf("the owner's chat has %d messages (%v)", len(list), err)
	}
	if list, err := h.db.Messages(t.Context(), anna.person, chat, 0); err != nil || len(list) != len(own) {
		t.Errorf("the chat through which they were asked for has %d messages, and had %d (%v)", len(list), len(own), err)
	}
	if shares, err := h.db.Shares(t.Context()); err != nil || !slices.ContainsFunc(shares, func(s store.Share) bool { return s.ID == share.ID }) {
		t.Errorf("the owner's link is gone: %v (%v)", shares, err)
	}
	t.Logf("%d requests", tried)
}

// encodedPaths are paths that leave the folder of the assets, or mean another route, on servers that
// decode twice, or late.
func encodedPaths(n int) (list []string) {
	ups := []string{"..", "%2e%2e", "%2E.", ".%2e", "%252e%252e", "..%00", "..;", "..%09", "%c0%ae%c0%ae", "%uff0e%uff0e", "....", "..%5c", "..\\"}
	slashes := []string{"/", "%2f", "%2F", "%5c", "\\", "//", "%252f", "/./", "%c0%af"}
	ends := []string{"etc/passwd", "chats.db", "c/1", "people", "v1/models", "ws", "static/app.css.map", ".git/config", "proc/self/environ", "m40-llm"}
	random := rand.New(rand.NewPCG(1, 2))
	for len(list) < n {
		path := []string{"/static/", "/static/x/", "/s/", "/s/none/", "/", "//", "/static/%2f"}[random.IntN(7)]
		for range 1 + random.IntN(4) {
			path += ups[random.IntN(len(ups))] + slashes[random.IntN(len(slashes))]
		}
		list = append(list, path+ends[random.IntN(len(ends))])
	}
	return list
}

// Whatever a path is encoded as, it gets an asset, a page of nothing or a refusal: no byte of a file, of
// a chat or of a route that needs a login; on the server and on the listener for shared chats.
func TestPath_EncodedPathsReachNothing(t *testing.T) {
	h := newHouse(t)
	shares := httptest.NewServer(handlers.NewShared(handlerstest.TestConfig(t, &handlerstest.FakeEngine{})))
	defer shares.Close()
	for name, address := range map[string]string{"the server": h.Listener.Addr().String(), "the listener for shared chats": shares.Listener.Addr().String()} {
		k := &knock{address: address}
		statuses := map[int]int{}
		for _, path := range encodedPaths(500) {
			body := k.body(t, fmt.Sprintf("GET %s HTTP/1.1\r\nHost: localhost\r\nVia: 1.1 elsewhere\r\nAccept: application/json\r\n\r\n", path))
			statuses[body.Status]++
			if body.Status < 300 || body.Status >= 500 {
				t.Errorf("%s: %s got %d: %.200s", name, path, body.Status, body.Body)
			}
			if to := body.Header.Get("Location"); to != "" && to != "/login" {
				t.Errorf("%s: %s is redirected to %q", name, path, to)
			}
			for _, secret := range []string{"root:", "secret of", "SQLite", "PATH="} {
				if strings.Contains(body.Body, secret) {
					t.Errorf("%s: %s has %q: %.200s", name, path, secret, body.Body)
				}
			}
		}
		k.close()
		t.Logf("%s: 500 paths, %v", name, statuses)
	}
}

// Connections that send their requests byte by byte, or nothing, hold up nobody else, and end.
func TestConnections_SlowOnesHoldUpNobody(t *testing.T) {
	n := fixtures.Full(200, 1000)
	config := handlerstest.TestConfig(t, &handlerstest.FakeEngine{})
	s := httptest.NewUnstartedServer(nil)
	s.Listener.Close()
	listener, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Listener = handlers.LimitListener(listener, nil, nil)
	s.Config = handlers.NewServer(handlers.New(config), config.Logger)
	s.Start()
	defer s.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	var before, during runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	conns := make([]net.Conn, n)
	for i := range conns {
		// A machine may have 256: they come from several addresses of loopback.
		from := &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(10+i/200))}
		dialer := net.Dialer{LocalAddr: from}
		if conns[i], err = dialer.Dial("tcp", "127.0.0.1:"+port); err != nil {
			t.Fatal(err)
		}
		defer conns[i].Close()
		part := []string{"", "GET / HTTP/1.1\r\nHost: loc", "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n{", "GET / HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 1000)}[i%4]
		if _, err := io.WriteString(conns[i], part); err != nil {
			t.Fatal(err)
		}
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	var took []time.Duration
	for range 50 {
		began := time.Now()
		resp, err := client.Get("http://127.0.0.1:" + port + "/v1/models")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("a request beside the slow ones got %d, %v", resp.StatusCode, err)
		}
		resp.Body.Close()
		took = append(took, time.Since(began))
	}
	runtime.GC()
	runtime.ReadMemStats(&during)
	slices.Sort(took)
	grown := int64(during.HeapInuse+during.StackInuse) - int64(before.HeapInuse+before.StackInuse)
	t.Logf("beside %d slow connections: p50 %v, p99 %v; %.1f MiB for all of them", n, took[len(took)/2], took[len(took)*99/100], float64(grown)/(1<<20))
	if grown > 64<<20 {
		t.Errorf("%d slow connections take %d bytes", n, grown)
	}
	for i, conn := range conns {
		if i%4 == 2 {
			continue // their bodies have 30 s
		}
		if _, err := io.Copy(io.Discard, conn); err != nil && !strings.Contains(err.Error(), "reset") { // until the server closes it
			t.Errorf("slow connection %d ends with %v", i, err)
		}
	}
}

// Programs that leave at any moment, in the queue, in the prompt or within the answer, free their place.
func TestDisconnect_AtAnyMomentFreesItsPlace(t *testing.T) {
	engine := handlerstest.OpenGuide(t)
	s := handlerstest.Server(t, engine)
	defer s.Close()
	if err := engine.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(3, 4))
	var took []time.Duration
	for i := range fixtures.Full(40, 1000) {
		ctx, leave := context.WithCancel(t.Context())
		body := fmt.Sprintf(`{"prompt":%q,"max_tokens":400,"ignore_eos":true,"stream":%t,"seed":%d}`, strings.Repeat("rain and snow ", 1+random.IntN(40)), i%2 == 0, i)
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/v1/completions", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			if resp, err := s.Client().Do(r); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}()
		time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond)
		leave()
		left := time.Now()
		<-done
		for now := engine.Status(); now.Running+now.Queued > 0; now = engine.Status() {
			if time.Since(left) > handlerstest.Hang {
				t.Fatalf("after disconnect %d, %d answers still run and %d wait", i, now.Running, now.Queued)
			}
			time.Sleep(time.Millisecond)
		}
		took = append(took, time.Since(left))
	}
	slices.Sort(took)
	t.Logf("%d disconnects; the place is free after p50 %v, p99 %v", len(took), took[len(took)/2], took[len(took)*99/100])
}

// What the listener for shared chats answers has every header, whatever the status.
func TestHeaders_OfTheListenerForSharedChats(t *testing.T) {
	s := httptest.NewServer(handlers.NewShared(handlerstest.TestConfig(t, &handlerstest.FakeEngine{})))
	defer s.Close()
	seen := map[int]int{}
	for _, path := range []string{"/", "/s/none", "/s/none/events", "/static/x", "/v1/models", "/login", "/%2e%2e/x", "/ws"} {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "OPTIONS"} {
			for _, variant := range []string{"", "Origin: http://localhost:PORT\n", "Origin: http://evil.example\n", "Origin: null\n", "Origin: http://localhost:PORT\nContent-Length: 999999999\n"} {
				for _, host := range []string{"localhost:PORT", "evil.example"} {
					status, header := raw(t, s, fmt.Sprintf("%s %s HTTP/1.1\nHost: %s\nConnection: close\n%s\n", method, path, host, variant))
					seen[status]++
					expectSecure(t, method+" "+path+" "+variant, status, header)
				}
			}
		}
	}
	for _, status := range []int{403, 404, 421} {
		if seen[status] == 0 {
			t.Errorf("no request was answered with %d: %v", status, seen)
		}
	}
}

// A compressed body that grows without end takes little memory before it is refused, on every route
// that reads one.
func TestBody_BombsTakeLittleMemory(t *testing.T) {
	s := handlerstest.Server(t, &handlerstest.FakeEngine{})
	size := fixtures.Full(64<<20, 1<<30)
	var bomb bytes.Buffer
	w := gzip.NewWriter(&bomb)
	if _, err := io.WriteString(w, `{"content":"`); err != nil {
		t.Fatal(err)
	}
	for zeros := make([]byte, 1<<20); size > 0; size -= len(zeros) {
		if _, err := w.Write(zeros); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/tokenize", "/v1/generate", "/v1/chat/completions", "/apply-template", "/import", "/presets/import", "/command", "/count", "/"} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r, err := http.NewRequest(http.MethodPost, s.URL+path, bytes.NewReader(bomb.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		got := handlerstest.Do(t, s, r, "Content-Encoding", "gzip", "Origin", s.URL, "Content-Type", "application/json", "X-Session", "x")
		runtime.ReadMemStats(&after)
		took := after.TotalAlloc - before.TotalAlloc
		t.Logf("%s: %d, %.1f MiB were allocated for %.1f MiB of gzip", path, got.Status, float64(took)/(1<<20), float64(bomb.Len())/(1<<20))
		if got.Status < 400 || got.Status >= 500 {
			t.Errorf("%s: got %d: %.200s", path, got.Status, got.Body)
		}
		if took > 32<<20 {
			t.Errorf("%s: %d bytes were allocated", path, took)
		}
	}
}

// rawFrame is a frame of a websocket with random bits, and sometimes a length that is not its own.
func rawFrame(random *rand.Rand) []byte {
	payload := make([]byte, []int{0, 1, 5, 125, 126, 700, 70_000}[random.IntN(7)])
	for i := range payload {
		payload[i] = byte(random.IntN(256))
	}
	if random.IntN(2) == 0 {
		payload = []byte(`{"type":"ping","ref":1}`)
	}
	opcodes := []byte{0, 1, 1, 1, 2, 8, 9, 9, 10, byte(random.IntN(16))}
	first := opcodes[random.IntN(len(opcodes))]
	if random.IntN(4) > 0 {
		first |= 0x80 // the last of its message
	}
	if random.IntN(20) == 0 {
		first |= byte(random.IntN(8)) << 4
	}
	masked := byte(0x80)
	if random.IntN(30) == 0 {
		masked = 0
	}
	length := uint64(len(payload))
	if random.IntN(50) == 0 {
		length = random.Uint64()
	}
	frame := []byte{first}
	switch {
	case length < 126:
		frame = append(frame, masked|byte(length))
	case length < 1<<16:
		frame = binary.BigEndian.AppendUint16(append(frame, masked|126), uint16(length))
	default:
		frame = binary.BigEndian.AppendUint64(append(frame, masked|127), length)
	}
	if masked != 0 {
		mask := []byte{1, 2, 3, 4}
		frame = append(frame, mask...)
		for i, b := range payload {
			frame = append(frame, b^mask[i%4])
		}
		return frame
	}
	return append(frame, payload...)
}

// Frames of any kind, fragmented, oversized, unmasked, of unknown opcodes and with bad UTF-8, end their
// connection at most; others are served, and nothing of a connection remains.
func TestSocket_FramesOfAnyKindEndTheirConnectionAtMost(t *testing.T) {
	s := handlerstest.Serve(t, handlerstest.NewScript())
	random := rand.New(rand.NewPCG(5, 6))
	const handshake = "GET /ws HTTP/1.1\nHost: localhost\nOrigin: http://localhost\nConnection: Upgrade\nUpgrade: websocket\n" +
		"Sec-WebSocket-Version: 13\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\n\n"
	sent, connections := 0, 0
	for all := fixtures.Full(3000, 1_000_000); sent < all; connections++ {
		conn := dial(t, s.Listener.Addr().String(), handshake)
		go func() { _, _ = io.Copy(io.Discard, conn) }() // until it is closed
		for range 30 {
			if _, err := conn.Write(rawFrame(random)); err != nil {
				break
			}
			sent++
		}
		conn.Close()
	}
	good := handlerstest.DialSocket(t, s)
	good.Do("ping", nil)
	t.Logf("%d frames over %d connections", sent, connections)
}
