package view

import (
	"fmt"
	"strconv"

	"m40-llm/handlers/failure"
	"m40-llm/handlers/models"
	"m40-llm/infer"
	"m40-llm/infer/units"
	"m40-llm/web"
)

// News is what the page is told of models while it is open.
func News(service *models.Service) web.News {
	news := web.News{Version: service.Version(), Downloads: []web.Download{}}
	for _, d := range service.Active() {
		news.Downloads = append(news.Downloads, Download(d))
	}
	return news
}

// Download puts a download into words.
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
			v.Amount = "nothing of it is kept"
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
		v.Phase = "checking what is here already"
	case infer.PhaseDone:
		v.Phase = "checked"
	}
	if p.BytesPerSecond >= 1 && p.Phase == infer.PhaseDownloading {
		v.Rate = units.ByteSize(int64(p.BytesPerSecond)) + "/s"
		v.Left = remaining(p.ETASeconds)
	}
}

// remaining says how long something still takes; nothing if that is not known.
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

// Scaled is a count as people say it: 8.0 B; nothing for 0.
func Scaled(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1f B", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f M", float64(n)/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%d k", n/1000)
	case n > 0:
		return strconv.FormatInt(n, 10)
	}
	return ""
}
