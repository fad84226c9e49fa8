"""Files of asks that were never submitted: pods and workloads of Kubernetes, or asks in Evenhand's own short form."""
