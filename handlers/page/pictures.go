package page

import (
	"io"
	"mime/multipart"
	"net/http"
	"slices"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/attached"
	"m40-llm/handlers/httpio"
	"m40-llm/infer/fault"
	"m40-llm/infer/units"
	"m40-llm/store"
)

// Pictures of messages. The page uploads each as soon as it is attached, and names it by its hash when it sends the message.

// addPicture answers POST /pictures, whose body is a picture file. The response says how the picture is named in a message.
func (h *Handlers) addPicture(c echo.Context) error {
	data, err := io.ReadAll(io.LimitReader(c.Request().Body, attached.MaxBytes+1))
	if err != nil {
		return err
	}
	if len(data) > attached.MaxBytes {
		return fault.Errorf(fault.CodeBodyTooLarge, "the picture has more than %s, the most that one can have; send a smaller one", units.ByteSize(attached.MaxBytes))
	}
	p, err := h.upload(c, data)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusCreated, p)
}

// uploadedPicture answers GET /pictures/:hash with a picture that the asker uploaded and has not sent yet.
func (h *Handlers) uploadedPicture(c echo.Context) error {
	p, err := h.Live.Uploads.Get(principal(c), c.Param("hash"))
	if err != nil {
		return err
	}
	return httpio.Picture(c, p.Hash, p.Type, p.Data)
}

// chatPicture answers GET /c/:id/pictures/:hash.
func (h *Handlers) chatPicture(c echo.Context) error {
	chat, err := h.Live.Chat(c.Request().Context(), principal(c), c.Param("id"))
	if err != nil {
		return err
	}
	p, err := chat.Picture(c.Request().Context(), principal(c), c.Param("hash"))
	if err != nil {
		return err
	}
	return httpio.Picture(c, p.Hash, p.Type, p.Data)
}

// formPictures keeps the picture files of the form of the composer, and returns their names with the detail in which the model reads them.
func (h *Handlers) formPictures(c echo.Context, detail string) (names []string, err error) {
	form, err := c.MultipartForm()
	if err == http.ErrNotMultipart {
		return nil, nil
	}
	if err != nil {
		return nil, fault.Invalid("pictures", "the form cannot be read: %v", err)
	}
	files := slices.DeleteFunc(form.File["pictures"], func(f *multipart.FileHeader) bool { return f.Filename == "" }) // none was chosen
	if len(files) > attached.MaxPictures {
		return nil, fault.Invalid("pictures", "the message has %d pictures, and at most %d fit; send several messages", len(files), attached.MaxPictures)
	}
	for _, file := range files {
		if file.Size > attached.MaxBytes {
			return nil, fault.Invalid("pictures", "%s has %s, and a picture can have at most %s; send a smaller one", httpio.Shorten(file.Filename), units.ByteSize(file.Size), units.ByteSize(attached.MaxBytes))
		}
		hash, err := h.formPicture(c, file)
		if err != nil {
			return nil, err
		}
		names = append(names, attached.Name(hash, detail))
	}
	return names, nil
}

func (h *Handlers) formPicture(c echo.Context, file *multipart.FileHeader) (hash string, err error) {
	data, err := readFormFile(file)
	if err != nil {
		return "", err
	}
	p, err := h.upload(c, data)
	return p.Hash, err
}

// upload holds a picture file for a question that is to be sent.
func (h *Handlers) upload(c echo.Context, data []byte) (store.Picture, error) {
	if h.Visitors != nil {
		if err := h.Visitors.Picture(principal(c), len(data)); err != nil {
			return store.Picture{}, err
		}
	}
	return h.Live.Uploads.Add(c.Request().Context(), principal(c), data)
}
