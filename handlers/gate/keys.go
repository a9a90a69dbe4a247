package gate

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/labstack/echo/v4"
	"golang.org/x/time/rate"

	"m40-llm/handlers/failure"
	"m40-llm/handlers/httpio"
	"m40-llm/web"
)

// With an API key, every route asks for it but Options.Public. Programs send the key as a
// bearer token or as X-Api-Key; a browser exchanges it at /login for a cookie.

// sessionLife is how long a browser is remembered.
const sessionLife = 30 * 24 * time.Hour

// keyring checks credentials. Sessions are signed rather than stored: a new key
// ends them all.
type keyring struct {
	key      [sha256.Size]byte // digest of the API key
	signing  []byte
	cookie   string
	attempts attempts
	now      func() time.Time
}

// newKeyring returns nil if there is no key: then everybody may come in.
func newKeyring(key string) *keyring {
	if key == "" {
		return nil
	}
	signing := sha256.Sum256([]byte("m40-llm session\x00" + key))
	name := sha256.Sum256(signing[:])
	return &keyring{
		key:     sha256.Sum256([]byte(key)),
		signing: signing[:],
		cookie:  "m40_" + hex.EncodeToString(name[:4]), // several servers of one host share a cookie jar
		now:     time.Now,
	}
}

// opens compares digests, so that the time taken tells nothing about the key.
func (k *keyring) opens(key string) bool {
	digest := sha256.Sum256([]byte(key))
	return subtle.ConstantTimeCompare(digest[:], k.key[:]) == 1
}

// session returns the value of a new session's cookie.
func (k *keyring) session() string {
	return k.sign(strconv.FormatInt(k.now().Add(sessionLife).Unix(), 10))
}

func (k *keyring) sign(expiry string) string {
	mac := hmac.New(sha256.New, k.signing)
	mac.Write([]byte(expiry))
	return expiry + "." + hex.EncodeToString(mac.Sum(nil))
}

func (k *keyring) validSession(value string) bool {
	expiry, _, _ := strings.Cut(value, ".")
	if !hmac.Equal([]byte(k.sign(expiry)), []byte(value)) {
		return false
	}
	seconds, err := strconv.ParseInt(expiry, 10, 64)
	return err == nil && k.now().Unix() < seconds
}

// attempts counts wrong keys, so that a client which sends them for ever is told to stop.
// The right key is never refused: behind one address there may be other clients.
type attempts struct {
	mu     sync.Mutex
	failed map[attempt]*rate.Limiter
}

// attempt is a wrong key that came from a network, or all of them where digest is zero.
type attempt struct {
	from   netip.Prefix
	digest [sha256.Size]byte
}

const (
	sameKeyAtOnce    = 5 // of one wrong key: a program that was never told of a new one
	sameKeyEvery     = 12 * time.Second
	wrongKeysAtOnce  = 20 // of all
	wrongKeysEvery   = 3 * time.Second
	attemptsRemember = 4096
)

// fail notes that key, which is wrong, came from client. It returns how long the client
// has to wait if it has sent too many.
func (a *attempts) fail(client netip.Addr, key string, now time.Time) (wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	from := networkOf(client)
	all := a.limiter(attempt{from: from}, wrongKeysEvery, wrongKeysAtOnce)
	if wait := untilAllowed(all, now); wait > 0 {
		return wait
	}
	same := a.limiter(attempt{from, sha256.Sum256([]byte(key))}, sameKeyEvery, sameKeyAtOnce)
	if wait := untilAllowed(same, now); wait > 0 {
		return wait
	}
	all.AllowN(now, 1)
	same.AllowN(now, 1)
	return 0
}

func (a *attempts) limiter(of attempt, every time.Duration, atOnce int) *rate.Limiter {
	if l := a.failed[of]; l != nil {
		return l
	}
	if a.failed == nil || len(a.failed) >= attemptsRemember {
		a.failed = map[attempt]*rate.Limiter{}
	}
	l := rate.NewLimiter(rate.Every(every), atOnce)
	a.failed[of] = l
	return l
}

// untilAllowed returns how long it takes until l allows one more; 0 if it does now.
func untilAllowed(l *rate.Limiter, now time.Time) time.Duration {
	missing := 1 - l.TokensAt(now)
	if missing <= 0 {
		return 0
	}
	return time.Duration(missing / float64(l.Limit()) * float64(time.Second))
}

// networkOf returns what one client has for itself: an address, or in IPv6 a network of 64
// bits.
func networkOf(client netip.Addr) netip.Prefix {
	bits := client.BitLen()
	if client.Is6() {
		bits = 64
	}
	network, _ := client.Prefix(bits)
	return network
}

// try checks a key that client sent.
func (k *keyring) try(client netip.Addr, key string) error {
	if k.opens(key) {
		return nil
	}
	if wait := k.attempts.fail(client, key, k.now()); wait > 0 {
		seconds := int(math.Ceil(wait.Seconds()))
		return failure.RetryIn(seconds, failure.TooManyAttempts, "the API key is wrong, as were too many before it; wait %d seconds before you try another one", seconds)
	}
	return failure.New(failure.InvalidKey, "the API key is wrong")
}

// checkKey lets in who has the key.
func (g *Gate) checkKey(next echo.HandlerFunc) echo.HandlerFunc {
	if g.keys == nil {
		return next
	}
	return func(c echo.Context) error {
		if g.opt.Public[c.Path()] {
			return next(c)
		}
		if err := g.authenticate(c); err != nil {
			return g.refuse(c, err)
		}
		return next(c)
	}
}

// authenticate looks at one credential: the bearer token, or else X-Api-Key, as some clients
// send it, or else the session.
func (g *Gate) authenticate(c echo.Context) error {
	header := c.Request().Header
	given, keys := header.Values(echo.HeaderAuthorization), header.Values("X-Api-Key")
	switch {
	case len(given) > 1 || len(keys) > 1:
		return failure.New(failure.SeveralCredentials, "the request has several Authorization or X-Api-Key headers")
	case len(given) == 1:
		scheme, key, _ := strings.Cut(given[0], " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return failure.New(failure.InvalidKey, "send the API key as \"Authorization: Bearer KEY\"")
		}
		return g.keys.try(g.proxies.client(c.Request()), strings.TrimSpace(key))
	case len(keys) == 1:
		return g.keys.try(g.proxies.client(c.Request()), strings.TrimSpace(keys[0]))
	}
	if cookie, err := c.Cookie(g.keys.cookieName(c)); err == nil && g.keys.validSession(cookie.Value) {
		return nil
	}
	return failure.New(failure.MissingKey, "this server asks for an API key: send it as \"Authorization: Bearer KEY\", or log in at /login")
}

// refuse sends people to the login page and programs away.
func (g *Gate) refuse(c echo.Context, err error) error {
	r := c.Request()
	if AsksForPage(r) && r.Method == http.MethodGet && !isWebSocket(r) && failure.Describe(err).Status == http.StatusUnauthorized {
		return c.Redirect(http.StatusSeeOther, "/login")
	}
	c.Response().Header().Set(echo.HeaderWWWAuthenticate, "Bearer")
	return err
}

// cookieName has the prefix that binds a cookie to this host, where browsers
// honour it.
func (k *keyring) cookieName(c echo.Context) string {
	if isSecure(c) {
		return "__Host-" + k.cookie
	}
	return k.cookie
}

// isSecure reports whether the browser speaks https, here or to a proxy. Its own origin
// says so: it is that of the page, whatever brought the request here.
func isSecure(c echo.Context) bool {
	return strings.HasPrefix(OwnOrigin(c), "https://")
}

// Login answers GET /login with a form.
func (g *Gate) Login(c echo.Context) error {
	if g.keys == nil {
		return c.Redirect(http.StatusSeeOther, "/")
	}
	return httpio.Render(c, http.StatusOK, web.Login(""))
}

// SubmitLogin answers POST /login.
func (g *Gate) SubmitLogin(c echo.Context) error {
	if g.keys == nil {
		return c.Redirect(http.StatusSeeOther, "/")
	}
	if err := c.Request().ParseForm(); err != nil {
		return err
	}
	if err := g.keys.try(g.proxies.client(c.Request()), c.Request().PostForm.Get("key")); err != nil {
		f := failure.Describe(err)
		setRetry(c, f)
		return httpio.Render(c, f.Status, web.Login(f.Text))
	}
	c.SetCookie(&http.Cookie{
		Name:     g.keys.cookieName(c),
		Value:    g.keys.session(),
		Path:     "/",
		MaxAge:   int(sessionLife.Seconds()),
		Secure:   isSecure(c),
		HttpOnly: true,
		SameSite: http.SameSiteStrictMode,
	})
	return c.Redirect(http.StatusSeeOther, "/")
}
