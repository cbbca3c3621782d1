package mockserver

import (
	"math"
	"strings"
	"testing"
)

func TestDefaultIsValid(t *testing.T) {
	c := Default()
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}

func TestValidateNamesEachFault(t *testing.T) {
	for _, c := range []struct {
		field  string
		change func(*Config)
	}{
		{"Model", func(c *Config) { c.Model = "" }},
		{"MaxModelLen", func(c *Config) { c.MaxModelLen = 1 }},
		{"MaxBatch", func(c *Config) { c.MaxBatch = 0 }},
		{"PrefillBase", func(c *Config) { c.PrefillBase = -1 }},
		{"PrefillPerToken", func(c *Config) { c.PrefillPerToken = -1 }},
		{"PrefillChunk", func(c *Config) { c.PrefillChunk = 0 }},
		{"DecodeBase", func(c *Config) { c.DecodeBase = -1 }},
		{"DecodePerSequence", func(c *Config) { c.DecodePerSequence = -1 }},
		{"DecodePerContextToken", func(c *Config) { c.DecodePerContextToken = -1 }},
		{"Noise", func(c *Config) { c.Noise = math.NaN() }},
		{"KVBlocks", func(c *Config) { c.KVBlocks = 0 }},
		{"DraftTokens", func(c *Config) { c.DraftTokens = 65 }},
		{"AcceptanceRate", func(c *Config) { c.AcceptanceRate = 1.1 }},
		{"MeanOutput", func(c *Config) { c.MeanOutput = 1 }},
		{"ReasoningShare", func(c *Config) { c.ReasoningShare = -0.1 }},
		{"ReasoningTokens", func(c *Config) { c.ReasoningTokens = -1 }},
		{"KeepTruth", func(c *Config) { c.KeepTruth = -1 }},
		{"Faults.Reset", func(c *Config) { c.Faults.Reset = math.NaN() }},
		{"Faults.RoleFirst", func(c *Config) { c.Faults.RoleFirst = 2 }},
		{"Faults: the sum", func(c *Config) { c.Faults.Reset, c.Faults.Stall = 0.6, 0.6 }},
		{"Faults.StallFor", func(c *Config) { c.Faults.StallFor = -1 }},
	} {
		cfg := Default()
		c.change(&cfg)
		err := cfg.Validate()
		if err == nil || !strings.Contains(err.Error(), c.field+" ") && !strings.Contains(err.Error(), c.field+" of") {
			t.Errorf("%s: %v", c.field, err)
		} else if n := strings.Count(err.Error(), "\n"); n != 0 {
			t.Errorf("%s: %d further faults: %v", c.field, n, err)
		}
		if srv, err := New(cfg); err == nil {
			_ = srv.Close()
			t.Errorf("%s: New took it", c.field)
		}
	}
	cfg := Config{}
	if err := cfg.Validate(); strings.Count(err.Error(), "\n") < 4 {
		t.Errorf("not every fault is told: %v", err)
	}
}
