module evenhand.test/asks

go 1.24.0

require (
	github.com/apache/yunikorn-scheduler-interface v1.2.0
	google.golang.org/grpc v1.70.0
)

require (
	github.com/golang/protobuf v1.5.4 // indirect
	golang.org/x/net v0.32.0 // indirect
	golang.org/x/sys v0.28.0 // indirect
	golang.org/x/text v0.21.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20241202173237-19429a94021a // indirect
	google.golang.org/protobuf v1.35.2 // indirect
)

// The interface's old requirement holds packages that stand in a module of their own today.
replace google.golang.org/genproto => google.golang.org/genproto v0.0.0-20231106174013-bbf56f31fb17
