package bench

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"
)

// The plot's sizes in pixels. Text is at least 12 high, so that it is readable when the plot is
// shown at half its size.
const (
	svgWidth  = 990
	svgLabels = 400 // width of the column of labels
	svgValues = 160 // width of the column of estimates
	svgRow    = 30
	svgTop    = 74
	svgBottom = 74
)

// plot places ratios on a logarithmic axis: twice as much and half as much are equally far from
// one.
type plot struct {
	strings.Builder
	low, high float64 // ratios at the ends of the axis
}

// SVG draws one row for each comparison: each pair's ratio as a dot, the estimate and its bounds as
// a bar, and the bar to meet as a mark.
func (r *Report) SVG(w io.Writer) error {
	p := &plot{low: 0.8, high: 1.25}
	for i := range r.Comparisons {
		p.reach(&r.Comparisons[i])
	}
	height := svgTop + svgRow*len(r.Comparisons) + svgBottom
	fmt.Fprintf(p, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="13" fill="#222">`+"\n",
		svgWidth, height, svgWidth, height)
	fmt.Fprintf(p, "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", svgWidth, height)
	p.text(16, 28, `font-size="17" font-weight="bold"`, r.Title+": "+r.Ours+" against "+r.Theirs)
	p.text(16, 50, `fill="#555"`, fmt.Sprintf("ratio of ours to theirs, pair by pair · Linux %s, %d CPUs, %s", r.Kernel, r.CPUs, r.Start.Format("2006-01-02")))
	p.axis(svgTop + svgRow*len(r.Comparisons) + 6)
	for i := range r.Comparisons {
		p.row(&r.Comparisons[i], svgTop+svgRow*i+svgRow/2)
	}
	p.legend(height - 16)
	p.WriteString("</svg>\n")
	_, err := io.WriteString(w, p.String())
	return err
}

// widest limits how far the axis goes from one in each direction. Otherwise a pair during which the
// machine was busy would make everything else unreadable.
const widest = 2.0

// reach widens the axis for the values of a comparison.
func (p *plot) reach(c *Comparison) {
	for _, v := range append(c.Ratios(), c.Bar) {
		if isKnown(v) {
			p.low, p.high = min(p.low, max(v/1.03, 1/widest)), max(p.high, min(v*1.03, widest))
		}
	}
}

// x is the place of a ratio. Ratios outside the axis are at its end.
func (p *plot) x(ratio float64) float64 {
	at := math.Log(max(p.low, min(p.high, ratio))/p.low) / math.Log(p.high/p.low)
	return svgLabels + at*(svgWidth-svgLabels-svgValues)
}

func (p *plot) text(x float64, y int, attributes, s string) {
	fmt.Fprintf(p, `<text x="%.1f" y="%d" %s>`, x, y, attributes)
	_ = xml.EscapeText(p, []byte(s)) // a Builder takes everything
	p.WriteString("</text>\n")
}

func (p *plot) line(x1, y1, x2, y2 float64, attributes string) {
	fmt.Fprintf(p, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" %s/>`+"\n", x1, y1, x2, y2, attributes)
}

// axis draws a line for each round number, down to y.
func (p *plot) axis(y int) {
	last := math.Inf(-1)
	for _, tick := range []float64{0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.2, 1.5, 2, 3, 5, 10} {
		x := p.x(tick)
		if tick < p.low || tick > p.high || x-last < 32 && tick != 1 {
			continue
		}
		last = x
		style := `stroke="#ddd"`
		if tick == 1 {
			style = `stroke="#555"`
		}
		p.line(x, svgTop-6, x, float64(y), style)
		p.text(x, y+18, `text-anchor="middle" font-size="12"`, fmt.Sprint(tick))
	}
}

// row draws a comparison around y.
func (p *plot) row(c *Comparison, y int) {
	e, mid := c.Estimate(), float64(y)
	p.text(16, y+4, `text-anchor="start"`, c.Case+": "+c.Metric)
	color := "#1b6ca8"
	if !c.Met() {
		color = "#b3401f"
	}
	for _, ratio := range c.Ratios() {
		fmt.Fprintf(p, `<circle cx="%.1f" cy="%d" r="3" fill="#888" fill-opacity="0.6"/>`+"\n", p.x(ratio), y+7)
	}
	if isKnown(e.Low) && isKnown(e.High) {
		p.line(p.x(e.Low), mid-4, p.x(e.High), mid-4, `stroke="`+color+`" stroke-width="6" stroke-opacity="0.5"`)
	}
	if isKnown(e.Ratio) {
		p.line(p.x(e.Ratio), mid-9, p.x(e.Ratio), mid+1, `stroke="`+color+`" stroke-width="3"`)
	}
	if c.Bar > 0 {
		p.line(p.x(c.Bar), mid-12, p.x(c.Bar), mid+12, `stroke="#222" stroke-width="1.5" stroke-dasharray="3 2"`)
	}
	p.text(svgWidth-svgValues+14, y+4, `fill="`+color+`"`, fmt.Sprintf("%.3f, %s is better", e.Ratio, c.Better))
}

// legend explains the marks.
func (p *plot) legend(y int) {
	p.text(16, y, `font-size="12" fill="#555"`,
		fmt.Sprintf("grey dot: one pair · upright: estimate, in its bounds, each %.0f %% sure · dashed: the bar · red: bar missed · beyond the axis: at its end", 100*confidence))
}
