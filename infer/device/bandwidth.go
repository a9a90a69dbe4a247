package device

// BandwidthMeter is implemented by devices that can measure the read bandwidth of their memory.
type BandwidthMeter interface {
	// ReadBandwidth returns bytes per second. It takes up to some seconds.
	ReadBandwidth() (float64, error)
}
