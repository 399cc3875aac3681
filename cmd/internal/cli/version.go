package cli

import (
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/program"
)

// A Version identifies a build and its source.
type Version struct {
	Version  string `json:"version"` // of the module; "(devel)" for a build outside of it
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"` // of the revision
	Modified bool   `json:"modified"`       // the tree had changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func buildVersion() Version {
	v := Version{Version: "(devel)"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Go = info.GoVersion
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	v.Revision, v.Time, v.Modified = settings["vcs.revision"], settings["vcs.time"], settings["vcs.modified"] == "true"
	v.Platform = settings["GOOS"] + "/" + settings["GOARCH"]
	return v
}

func newVersion(app *program.App) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version of this program",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := buildVersion()
			revision := v.Revision
			if v.Modified {
				revision += " with changes"
			}
			return app.Print(program.Sentence(v, strings.Join(strings.Fields(app.Program+" "+v.Version+" "+revision+" "+v.Go+" "+v.Platform), " ")))
		},
	}
}
