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

// If Options.APIKey is set, every route but those of Options.Public requires it. Programs send
// the key as a bearer token or as X-Api-Key; a browser exchanges it at /login for a cookie.

// sessionLife is how long a browser stays logged in.
const sessionLife = 30 * 24 * time.Hour

// keyring checks credentials. Sessions are signed rather than stored, so changing the key
// ends them all.
type keyring struct {
	key      [sha256.Size]byte // digest of the API key
	signing  []byte
	cookie   string
	attempts attempts
	now      func() time.Time
}

// newKeyring returns nil if key is empty: then no request needs one.
func newKeyring(key string) *keyring {
	if key == "" {
		return nil
	}
	signing := sha256.Sum256([]byte("m40-llm session\x00" + key))
	name := sha256.Sum256(signing[:])
	return &keyring{
		key:     sha256.Sum256([]byte(key)),
		signing: signing[:],
		cookie:  "m40_" + hex.EncodeToString(name[:4]), // cookies do not distinguish ports: two servers on one host need two names
		now:     time.Now,
	}
}

// matches reports whether key is the API key. It compares digests, so that its duration
// reveals nothing about the key.
func (k *keyring) matches(key string) bool {
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

// attempts limits the rate of wrong keys. The right key is always accepted: other clients may
// share the address of one that guesses.
type attempts struct {
	mu     sync.Mutex
	failed map[attempt]*rate.Limiter
}

// attempt is one wrong key sent from a network, or all wrong keys from it if digest is zero.
type attempt struct {
	from   netip.Prefix
	digest [sha256.Size]byte
}

const (
	sameKeyBurst  = 5 // of one wrong key, as a program sends that still has an old key
	sameKeyEvery  = 12 * time.Second
	wrongKeyBurst = 20 // of any wrong keys
	wrongKeyEvery = 3 * time.Second
	maxLimiters   = 4096
)

// record counts a wrong key that client has sent. If the client has sent too many, it returns
// how long the client must wait, and does not count this one.
func (a *attempts) record(client netip.Addr, key string, now time.Time) (wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	from := networkOf(client)
	all := a.limiter(attempt{from: from}, wrongKeyEvery, wrongKeyBurst)
	if wait := untilAllowed(all, now); wait > 0 {
		return wait
	}
	same := a.limiter(attempt{from, sha256.Sum256([]byte(key))}, sameKeyEvery, sameKeyBurst)
	if wait := untilAllowed(same, now); wait > 0 {
		return wait
	}
	all.AllowN(now, 1)
	same.AllowN(now, 1)
	return 0
}

func (a *attempts) limiter(of attempt, every time.Duration, burst int) *rate.Limiter {
	if l := a.failed[of]; l != nil {
		return l
	}
	if a.failed == nil || len(a.failed) >= maxLimiters {
		a.failed = map[attempt]*rate.Limiter{}
	}
	l := rate.NewLimiter(rate.Every(every), burst)
	a.failed[of] = l
	return l
}

// untilAllowed returns how long it takes until l allows one more attempt; 0 if it does now.
func untilAllowed(l *rate.Limiter, now time.Time) time.Duration {
	missing := 1 - l.TokensAt(now)
	if missing <= 0 {
		return 0
	}
	return time.Duration(missing / float64(l.Limit()) * float64(time.Second))
}

// networkOf returns the network that one client can send from: its IPv4 address, or the /64
// of its IPv6 address.
func networkOf(client netip.Addr) netip.Prefix {
	bits := client.BitLen()
	if client.Is6() {
		bits = 64
	}
	network, _ := client.Prefix(bits)
	return network
}

// check returns nil if the key that client sent is right, and an error for the client if it
// is not.
func (k *keyring) check(client netip.Addr, key string) error {
	if k.matches(key) {
		return nil
	}
	if wait := k.attempts.record(client, key, k.now()); wait > 0 {
		seconds := int(math.Ceil(wait.Seconds()))
		return failure.RetryIn(seconds, failure.TooManyAttempts, "the API key is wrong, as were too many before it; wait %d seconds before you try another one", seconds)
	}
	return failure.New(failure.InvalidKey, "the API key is wrong")
}

// checkKey refuses requests without valid credentials.
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

// authenticate returns nil if the credential of c is valid. It reads one only: the bearer
// token, else X-Api-Key, which some clients send, else the session's cookie.
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
		return g.keys.check(g.proxies.client(c.Request()), strings.TrimSpace(key))
	case len(keys) == 1:
		return g.keys.check(g.proxies.client(c.Request()), strings.TrimSpace(keys[0]))
	}
	if cookie, err := c.Cookie(g.keys.cookieName(c)); err == nil && g.keys.validSession(cookie.Value) {
		return nil
	}
	return failure.New(failure.MissingKey, "this server asks for an API key: send it as \"Authorization: Bearer KEY\", or log in at /login")
}

// refuse redirects people to the login page, and returns err for programs.
func (g *Gate) refuse(c echo.Context, err error) error {
	r := c.Request()
	if AsksForPage(r) && r.Method == http.MethodGet && !isWebSocket(r) && failure.Describe(err).Status == http.StatusUnauthorized {
		return c.Redirect(http.StatusSeeOther, "/login")
	}
	c.Response().Header().Set(echo.HeaderWWWAuthenticate, "Bearer")
	return err
}

// cookieName returns the name of the session's cookie: on https with the prefix by which
// browsers bind a cookie to one host.
func (k *keyring) cookieName(c echo.Context) string {
	if isSecure(c) {
		return "__Host-" + k.cookie
	}
	return k.cookie
}

// isSecure reports whether the browser uses https, to this server or to a proxy. The own
// origin tells, as it is the page's origin.
func isSecure(c echo.Context) bool {
	return strings.HasPrefix(OwnOrigin(c), "https://")
}

// Login serves GET /login, a form for the API key.
func (g *Gate) Login(c echo.Context) error {
	if g.keys == nil {
		return c.Redirect(http.StatusSeeOther, "/")
	}
	return httpio.Render(c, http.StatusOK, web.Login(""))
}

// SubmitLogin serves POST /login: it sets the session's cookie if the key is right.
func (g *Gate) SubmitLogin(c echo.Context) error {
	if g.keys == nil {
		return c.Redirect(http.StatusSeeOther, "/")
	}
	if err := c.Request().ParseForm(); err != nil {
		return err
	}
	if err := g.keys.check(g.proxies.client(c.Request()), c.Request().PostForm.Get("key")); err != nil {
		f := failure.Describe(err)
		setRetryHeaders(c, f)
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
