package bridge_test

import (
	"log"

	bridge "example.com/yunikorn-bridge"
	"github.com/apache/yunikorn-scheduler-interface/lib/go/api"
	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"
)

func Example() {
	var callback api.ResourceManagerCallback // the resource manager
	sa, err := bridge.New(bridge.Options{
		Address: "evenhand.example:50051",
		Files:   bridge.Files{CA: "/etc/evenhand/ca.crt", Token: "/etc/evenhand/token"},
	})
	if err != nil {
		log.Fatal(err)
	}
	request := &si.RegisterResourceManagerRequest{RmID: "mycluster", Version: "1", PolicyGroup: "queues"}
	if _, err := sa.RegisterResourceManager(request, callback); err != nil {
		log.Fatal(err)
	}
}
