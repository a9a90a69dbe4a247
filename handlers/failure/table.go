package failure

import (
	"net/http"

	"m40-llm/infer"
)

// Codes of failures besides those of the engine. Programs depend on them.
const (
	AnswerEnded         = "answer_ended"
	BodyTooLarge        = "body_too_large"
	ChatNotFound        = "chat_not_found"
	ChatsLocked         = "chats_locked"
	ChatsMissing        = "chats_missing"
	Conflict            = "conflict"
	Denied              = "not_allowed"
	DiskFull            = "disk_full"
	HostNotAllowed      = "host_not_allowed"
	InvalidCode         = "invalid_code"
	InvalidEncoding     = "invalid_encoding"
	InvalidKey          = "invalid_api_key"
	InvalidLogin        = "invalid_login"
	MethodNotAllowed    = "method_not_allowed"
	MissingKey          = "missing_api_key"
	NameTaken           = "name_taken"
	NoKeyboard          = "no_keyboard"
	NoRequests          = "no_requests"
	NotLoggedIn         = "not_logged_in"
	NotShared           = "not_shared"
	OriginNotAllowed    = "origin_not_allowed"
	PersonNotFound      = "person_not_found"
	PictureGone         = "picture_gone"
	PictureNotFound     = "picture_not_found"
	PicturesFull        = "pictures_full"
	PresetBuiltin       = "preset_builtin"
	PresetNotFound      = "preset_not_found"
	Registry            = "registry"
	SessionGone         = "session_gone"
	SeveralCredentials  = "several_credentials"
	Timeout             = "timeout"
	TooLargeForNow      = "too_large_for_now"
	TooManyAsk          = "too_many_requests_to_write"
	TooManyAttempts     = "too_many_attempts"
	TooManyChats        = "too_many_chats"
	TooManyConnections  = "too_many_connections"
	TooManyFollow       = "too_many_followers"
	TooSoon             = "too_soon"
	UnknownURL          = "unknown_url"
	UnsupportedEncoding = "unsupported_encoding"
	WebSocketOnly       = "websocket_only"
	WrongPassphrase     = "wrong_passphrase"
	WriterNotFound      = "writer_not_found"
)

// row is what clients are told about errors with one code.
type row struct {
	status  int
	title   string // what happened, for people; empty: derived from the status
	text    string // why and what to do, for people; empty: the error's own text
	final   bool   // the same request would fail again
	private bool   // the error's own text is for the log only
}

// table has a row for each code.
var table = map[string]row{
	string(infer.CodeInvalid):   {status: http.StatusBadRequest, title: "This was not accepted"},
	string(infer.CodeContext):   {status: http.StatusBadRequest, title: "This does not fit into the context"},
	string(infer.CodeTemplate):  {status: http.StatusBadRequest, title: "The model’s chat template refused this chat"},
	string(infer.CodeNotFound):  {status: http.StatusNotFound, title: "There is no such model"},
	string(infer.CodeQueueFull): {status: http.StatusTooManyRequests, title: "The queue is full"},
	string(infer.CodeLoading):   {status: http.StatusServiceUnavailable, title: "The model is still loading"},
	string(infer.CodeMemory):    {status: http.StatusServiceUnavailable, title: "Not enough memory", final: true},
	string(infer.CodeClosed):    {status: http.StatusServiceUnavailable, title: "The server is stopping"},
	string(infer.CodeModelFile): {status: http.StatusInternalServerError, title: "The model file cannot be used", final: true},
	string(infer.CodeDevice):    {status: http.StatusInternalServerError, title: "The device failed", private: true},
	string(infer.CodeNotFinite): {status: http.StatusInternalServerError, title: "The model computed nonsense", private: true, final: true},
	string(infer.CodeGrammar):   {status: http.StatusInternalServerError, title: "The model cannot keep to the form", final: true},
	string(infer.CodeStopped):   {status: http.StatusForbidden, title: "The answer was stopped", final: true},
	string(infer.CodeLost):      {status: http.StatusServiceUnavailable, title: "The engine stopped"},
	string(infer.CodeCrashes):   {status: http.StatusInternalServerError, title: "This makes the engine crash", final: true},
	string(infer.CodeUpstream):  {status: http.StatusBadGateway, title: "The engine that runs this model failed"},
	string(infer.CodeInternal):  {status: http.StatusInternalServerError, title: "The answer failed", private: true},

	ChatNotFound: {status: http.StatusNotFound, title: "This chat is gone",
		text: "It was deleted, or it was a temporary chat, which is kept until the server stops."},
	NotShared:      {status: http.StatusNotFound, title: "There is nothing under this link"},
	TooManyFollow:  {status: http.StatusServiceUnavailable, title: "Too many readers"},
	NoKeyboard:     {status: http.StatusForbidden, title: "You cannot write here"},
	NoRequests:     {status: http.StatusForbidden, title: "Nobody can ask to write here"},
	TooManyAsk:     {status: http.StatusTooManyRequests, title: "Others are asking already", final: true},
	TooSoon:        {status: http.StatusTooManyRequests, title: "Not so fast", final: true},
	WriterNotFound: {status: http.StatusNotFound, title: "Nobody asks or writes any more"},
	TooManyChats:   {status: http.StatusServiceUnavailable, title: "Too many chats at once"},
	ChatsMissing:   {status: http.StatusServiceUnavailable, title: "The file of the chats is gone"},
	ChatsLocked:    {status: http.StatusServiceUnavailable, title: "Another program holds the chats"},
	DiskFull: {status: http.StatusInsufficientStorage, title: "The disk is full",
		text: "Nothing was changed. Free some space on the disk of the data folder and try again."},
	AnswerEnded:    {status: http.StatusNotFound, title: "This answer has ended"},
	Conflict:       {status: http.StatusConflict},
	NameTaken:      {status: http.StatusConflict, title: "This name is taken"},
	PersonNotFound: {status: http.StatusNotFound, title: "This is gone"},
	PictureGone:    {status: http.StatusGone, title: "A picture is gone"},
	PicturesFull:   {status: http.StatusInsufficientStorage, title: "No room for more pictures", final: true},
	PresetBuiltin:  {status: http.StatusConflict, title: "This preset is built in"},
	PresetNotFound: {status: http.StatusNotFound, title: "This preset is gone"},
	Registry:       {status: http.StatusBadGateway, title: "The model cannot be fetched"},

	PictureNotFound:                {status: http.StatusNotFound},
	BodyTooLarge:                   {status: http.StatusRequestEntityTooLarge},
	Denied:                         {status: http.StatusForbidden, title: "Only the owner can do this"},
	HostNotAllowed:                 {status: http.StatusMisdirectedRequest},
	InvalidCode:                    {status: http.StatusUnauthorized},
	InvalidEncoding:                {status: http.StatusBadRequest},
	InvalidKey:                     {status: http.StatusUnauthorized},
	InvalidLogin:                   {status: http.StatusUnauthorized},
	MethodNotAllowed:               {status: http.StatusMethodNotAllowed},
	MissingKey:                     {status: http.StatusUnauthorized},
	NotLoggedIn:                    {status: http.StatusUnauthorized, title: "Not logged in"},
	string(infer.CodeNotSupported): {status: http.StatusBadRequest, title: "The model cannot do this", final: true},
	OriginNotAllowed:               {status: http.StatusForbidden},
	SessionGone:                    {status: http.StatusGone},
	SeveralCredentials:             {status: http.StatusBadRequest},
	Timeout:                        {status: http.StatusRequestTimeout},
	TooLargeForNow:                 {status: http.StatusTooManyRequests},
	TooManyAttempts:                {status: http.StatusTooManyRequests, final: true},
	TooManyConnections:             {status: http.StatusServiceUnavailable},
	UnknownURL:                     {status: http.StatusNotFound},
	UnsupportedEncoding:            {status: http.StatusUnsupportedMediaType},
	WebSocketOnly:                  {status: http.StatusUpgradeRequired},
	WrongPassphrase:                {status: http.StatusForbidden},
}

// types are OpenAI's names for the kinds of failure; other statuses below 500 are
// invalid_request_error, others above it server_error.
var types = map[int]string{
	http.StatusUnauthorized:       "authentication_error",
	http.StatusForbidden:          "permission_error",
	http.StatusTooManyRequests:    "rate_limit_error",
	http.StatusServiceUnavailable: "unavailable_error",
}

func typeOf(status int) string {
	switch {
	case types[status] != "":
		return types[status]
	case status < http.StatusInternalServerError:
		return "invalid_request_error"
	}
	return "server_error"
}

// RetryAfter is the pause in seconds asked of a client that was turned away with 429 or
// 503, unless its error names another.
const RetryAfter = 5

func retryAfter(status int) int {
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		return RetryAfter
	}
	return 0
}
