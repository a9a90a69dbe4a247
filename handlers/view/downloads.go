package view

import (
	"fmt"

	"m40-llm/handlers/failure"
	"m40-llm/handlers/models"
	"m40-llm/infer"
	"m40-llm/infer/units"
	"m40-llm/web"
)

// News returns what open pages show about models: the version of the list, and the downloads.
func News(service *models.Service) web.News {
	news := web.News{Version: service.Version(), Downloads: []web.Download{}}
	for _, d := range service.Active() {
		news.Downloads = append(news.Downloads, Download(d))
	}
	return news
}

// Download describes a download for the page.
func Download(d models.Download) web.Download {
	p := d.Progress
	v := web.Download{
		File: d.File, State: string(d.State), Title: d.Title(), Quant: d.Quant,
		Amount: fmt.Sprintf("%s of %s", units.ByteSize(p.Done), units.ByteSize(p.Total)),
	}
	if p.Total > 0 {
		v.Share = float64(1000*p.Done/p.Total) / 10
	}
	switch d.State {
	case models.Paused:
		v.Phase = "paused"
	case models.Failed:
		v.Phase, v.Error = "failed", failure.Sentence(d.Error)
		if p.Done == 0 {
			v.Amount = "nothing was downloaded"
		}
	case models.Done:
		v.Amount, v.Phase, v.Model = units.ByteSize(p.Total), "complete", d.Model.Name
		if d.Verifiable() {
			v.Note = "SHA-256 checked"
		}
		if d.Model.Fit != nil {
			v.Note = Joined(" · ", v.Note, d.Model.Fit.String())
		}
		if d.Model.Error != "" {
			v.Error = "It cannot be used: " + failure.Sentence(d.Model.Error)
		}
	default:
		describeProgress(&v, p)
	}
	return v
}

func describeProgress(v *web.Download, p infer.DownloadProgress) {
	switch p.Phase {
	case infer.PhaseResolving:
		v.Phase = "asking the registry"
	case infer.PhaseWaiting:
		v.Phase = "waiting: " + p.Notice
	case infer.PhaseVerifying:
		v.Phase = "checking the part that is already here"
	case infer.PhaseDone:
		v.Phase = "checked"
	}
	if p.BytesPerSecond >= 1 && p.Phase == infer.PhaseDownloading {
		v.Rate = units.ByteSize(int64(p.BytesPerSecond)) + "/s"
		v.Left = remaining(p.ETASeconds)
	}
}

// remaining describes how long a download still takes; "" if that is unknown.
func remaining(seconds float64) string {
	minutes := int(seconds+59) / 60
	switch {
	case seconds <= 0:
		return ""
	case seconds < 60:
		return fmt.Sprintf("%d s left", int(seconds)+1)
	case minutes < 60:
		return fmt.Sprintf("%d min left", minutes)
	case minutes < 100*60:
		return fmt.Sprintf("%d h %02d min left", minutes/60, minutes%60)
	}
	return "days left"
}

// Quantity formats a number of parameters or weights, such as 8.0 B; "" for 0, which stands for
// unknown.
func Quantity(n int64) string {
	if n == 0 {
		return ""
	}
	return units.Quantity(n)
}
