package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"m40-llm/infer/client"
	"m40-llm/infer/fault"
)

// failure is a request that a server could not be asked, or that it refused.
type failure struct {
	err    *fault.Error
	why    string // err without what to do
	server string
	status int  // of the response that refused the request; 0: there was none
	again  bool // the same request may succeed, there or at another server
	broken bool // the server is to blame: the breaker counts it
	gone   bool // no connection could be made, or it broke

	unreached bool          // no connection could be made: no server listens
	mute      bool          // nothing in it is of an engine: a connection that broke before a token, or an error that only a balancer writes
	breach    bool          // the server does not keep to its protocol
	busy      bool          // the server says that it has too much to do
	after     time.Duration // for which the server asked before the request is sent again
}

func (f *failure) Error() string { return f.err.Error() }

// lost returns the failure of a connection.
func (s *server) lost(err error) *failure {
	f := &failure{server: s.address, again: true, broken: true, gone: true}
	var op *net.OpError
	switch {
	case errors.Is(err, client.ErrSilent):
		f.gone, f.again = false, false
		return f.because(fault.CodeUpstream, askAgain, "%s sent nothing for too long, and the request to it was ended", s.address)
	case errors.As(err, &op) && op.Op == "dial":
		f.unreached = true
		return f.because(fault.CodeUpstream, askAgain, "%s cannot be reached: %s", s.address, s.reason(err))
	}
	f.mute = true
	return f.because(fault.CodeUpstream, askAgain, "%s broke off the connection: %s", s.address, s.reason(err))
}

// askAgain is what a person can do if a server failed.
const askAgain = "ask again, or choose another model"

// midAnswer returns the error of a failure that ended an answer after its first token.
func (f *failure) midAnswer() *fault.Error {
	if f.err.Code != fault.CodeUpstream {
		return f.err
	}
	return fault.Errorf(f.err.Code, "%s; what was written is kept: ask again, or continue from there", f.why)
}

// because sets what failed, why, and what to do, and returns f.
func (f *failure) because(code fault.Code, todo, format string, args ...any) *failure {
	f.why = fmt.Sprintf(format, args...)
	f.err = fault.Errorf(code, "%s; %s", f.why, todo)
	return f
}

// reason returns why a connection failed, without addresses: that of the server is said by the caller, and the port on
// this side means nothing to a person.
func (s *server) reason(err error) string {
	var dns *net.DNSError
	var op *net.OpError
	var system *os.SyscallError
	switch {
	case errors.As(err, &dns):
		return "its name is not known"
	case errors.As(err, &system):
		return system.Err.Error()
	case errors.As(err, &op) && op.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return "nothing came in time"
	case errors.As(err, &op):
		return s.said(op.Err.Error())
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return "it ended too early"
	}
	return s.said(err.Error())
}

// breach returns the failure of a server that does not keep to its protocol.
func (s *server) breach(format string, args ...any) *failure {
	f := &failure{server: s.address, again: true, broken: true, breach: true}
	return f.because(fault.CodeUpstream, "its log may say why, choose another model meanwhile", "%s %s", s.address, fmt.Sprintf(format, args...))
}

// refused returns the failure for a response whose status is not 200.
func (s *server) refused(response *http.Response) *failure {
	const limit = 64 << 10
	text, _ := io.ReadAll(io.LimitReader(response.Body, limit)) // what came of it is shown
	f := s.refusal(response.StatusCode, readError(response.Header.Get("Content-Type"), text))
	f.after = retryAfter(response.Header)
	return f
}

// refusal returns the failure for a status that is not 200, with the server's error.
func (s *server) refusal(status int, e engineError) *failure {
	f := &failure{server: s.address, status: status}
	message := s.said(cmp.Or(strings.TrimSpace(e.message), http.StatusText(status)))
	switch {
	case status >= 300 && status < 400:
		f.because(fault.CodeUpstream, "give --upstream the address itself", "%s leads to another address, which is not followed", s.address)
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		f.because(fault.CodeUpstream, "see --upstream-keys", "%s did not accept the key of this server: %s", s.address, message)
	case e.tooLong():
		f.because(fault.CodeContext, "shorten the prompt", "%s: %s", s.address, message)
		f.err.PromptTokens, f.err.ContextLength = e.figures()
	case status == http.StatusNotFound && e.aboutRoute():
		f.because(fault.CodeNotSupported, "choose another model", "%s does not have this route: %s", s.address, message)
	case status == http.StatusNotFound:
		f.again = true
		f.because(fault.CodeNotFound, "choose another model", "%s does not know this: %s", s.address, message)
	case status == http.StatusTooManyRequests:
		f.again, f.busy = true, true
		f.because(fault.CodeQueueFull, "ask again in a moment", "%s has too much to do: %s", s.address, message)
	case status == http.StatusNotImplemented || e.code == string(fault.CodeNotSupported):
		f.because(fault.CodeNotSupported, "choose another model", "%s cannot do this: %s", s.address, message)
	case status >= 400 && status < 500:
		f.because(fault.CodeInvalid, "change it, or choose another model", "%s refused the request (%d): %s", s.address, status, message)
	default:
		f.again, f.broken, f.busy, f.mute = true, true, status == http.StatusServiceUnavailable, !e.formed
		f.because(fault.CodeUpstream, askAgain, "%s failed (%d): %s", s.address, status, message)
	}
	return f
}

// retryAfter returns for how long a response asks to wait; 0: it does not.
func retryAfter(h http.Header) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.ParseFloat(text, 64); err == nil && seconds > 0 && seconds < 1e6 {
		return time.Duration(seconds * float64(time.Second))
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

// passed are the codes of another m40-llm's errors that say something about the request, or about its model.
var passed = []fault.Code{
	fault.CodeInvalid, fault.CodeContext, fault.CodeTemplate, fault.CodeNotFound, fault.CodeMemory, fault.CodeNotFinite,
	fault.CodeGrammar, fault.CodeQueueFull, fault.CodeStopped, fault.CodeCrashes, fault.CodeModelFile, fault.CodeNotSupported,
}

// blamed are those that say something about the server. Other codes are those of its rules for clients.
var blamed = []fault.Code{fault.CodeLoading, fault.CodeClosed, fault.CodeDevice, fault.CodeLost, fault.CodeUpstream, fault.CodeInternal}

// failure returns an error of the client as a *failure, and those of a context as they are.
func (s *server) failure(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if errors.Is(err, client.ErrTooLong) {
		return s.breach("sent a response of too many bytes")
	}
	known, ok := errors.AsType[*fault.Error](err)
	if !ok {
		return s.lost(err)
	}
	e := *known
	f := &failure{server: s.address, err: &e}
	switch {
	case slices.Contains(passed, e.Code):
		f.again = e.Code == fault.CodeQueueFull || e.Code == fault.CodeNotFound
		if e.Code == fault.CodeContext && e.PromptTokens == 0 { // as OpenAI's clients get it, the sentence alone has them
			e.PromptTokens, e.ContextLength = engineError{message: e.Message}.figures()
		}
		e.Param = s.said(e.Param)
		e.Param = e.Param[len("“") : len(e.Param)-len("”")]
		e.Message = s.address + ": " + s.said(e.Message)
		f.why = e.Message
	case slices.Contains(blamed, e.Code):
		f.again, f.broken = true, true
		f.because(fault.CodeUpstream, askAgain, "%s failed: %s", s.address, s.said(e.Message))
	default:
		f.because(fault.CodeUpstream, "choose another model", "%s refused the request: %s", s.address, s.said(e.Message))
	}
	return f
}
