package view

import (
	"context"
	"m40-llm/handlers/failure"
	"m40-llm/handlers/models"
	"m40-llm/infer"
	"m40-llm/infer/units"
	"m40-llm/web"
	"m40-llm/web/lang"
)

// News returns what open pages show about models: the version of the list, and the downloads.
func News(ctx context.Context, service *models.Service) web.News {
	news := web.News{Version: service.Version(), Downloads: []web.Download{}}
	for _, d := range service.Active() {
		news.Downloads = append(news.Downloads, Download(ctx, d))
	}
	return news
}

// Download describes a download for the page.
func Download(ctx context.Context, d models.Download) web.Download {
	p := d.Progress
	v := web.Download{
		File: d.File, State: string(d.State), Title: d.Title(), Quant: d.Quant,
		Amount: lang.T(ctx, "%s of %s", lang.Size(ctx, p.Done), lang.Size(ctx, p.Total)),
	}
	if p.Total > 0 {
		v.Share = float64(1000*p.Done/p.Total) / 10
	}
	switch d.State {
	case models.Paused:
		v.Phase = lang.T(ctx, "paused")
	case models.Failed:
		v.Phase, v.Error = lang.T(ctx, "failed"), failure.Sentence(ctx, d.Error)
		if p.Done == 0 {
			v.Amount = lang.T(ctx, "nothing was downloaded")
		}
	case models.Done:
		v.Amount, v.Phase, v.Model = lang.Size(ctx, p.Total), lang.T(ctx, "complete"), d.Model.Name
		if d.Verifiable() {
			v.Note = lang.T(ctx, "SHA-256 checked")
		}
		if d.Model.Fit != nil {
			v.Note = Joined(" · ", v.Note, lang.Message(ctx, d.Model.Fit.String()))
		}
		if d.Model.Error != "" {
			v.Error = lang.T(ctx, "It cannot be used: %s", failure.Sentence(ctx, d.Model.Error))
		}
	default:
		describeProgress(ctx, &v, p)
	}
	return v
}

func describeProgress(ctx context.Context, v *web.Download, p infer.DownloadProgress) {
	switch p.Phase {
	case infer.PhaseResolving:
		v.Phase = lang.T(ctx, "asking the registry")
	case infer.PhaseWaiting:
		v.Phase = lang.T(ctx, "waiting: %s", lang.Message(ctx, p.Notice))
	case infer.PhaseVerifying:
		v.Phase = lang.T(ctx, "checking the part that is already here")
	case infer.PhaseDone:
		v.Phase = lang.T(ctx, "checked")
	}
	if p.BytesPerSecond >= 1 && p.Phase == infer.PhaseDownloading {
		v.Rate = lang.Size(ctx, int64(p.BytesPerSecond)) + "/s"
		v.Left = remaining(ctx, p.ETASeconds)
	}
}

// remaining describes how long a download still takes; "" if that is unknown.
func remaining(ctx context.Context, seconds float64) string {
	minutes := int(seconds+59) / 60
	switch {
	case seconds <= 0:
		return ""
	case seconds < 60:
		return lang.T(ctx, "%d s left", int(seconds)+1)
	case minutes < 60:
		return lang.T(ctx, "%d min left", minutes)
	case minutes < 100*60:
		return lang.T(ctx, "%d h %02d min left", minutes/60, minutes%60)
	}
	return lang.T(ctx, "days left")
}

// Quantity formats a number of parameters or weights, such as 8.0 B; "" for 0, which means
// unknown.
func Quantity(ctx context.Context, n int64) string {
	if n == 0 {
		return ""
	}
	return lang.Figure(ctx, units.Quantity(n))
}
